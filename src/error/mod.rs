//! What can go wrong, with the numbers and places in it.

mod gap;
mod refused;
mod text;

#[cfg(doc)]
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub use gap::{Gap, GapCause, past_gaps};
#[cfg(feature = "capi")]
pub(crate) use refused::InFull;
use refused::refused_by;
use text::{Absent, Holder, Longest, Of, Passed, Since};

/// The result of every call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, with what and where.
///
/// Empty is never an error: a read from an empty queue answers `Ok(None)`.
///
/// After any error but [`Error::Poisoned`] and [`Error::Closed`] the queue goes on working: a call
/// that failed changed nothing, but for what its own `# Errors` say of a flush that failed behind
/// it, and [`Error::Gap`] has already been stepped over: see [`past_gaps`] for loops that go on
/// behind it.
///
/// The text of an error (its [`Display`](fmt::Display)) says all of it, the cause and the queue's
/// path included (but for [`Gap`](Error::Gap), [`Closed`](Error::Closed) and
/// [`Forked`](Error::Forked), which have no room for a path); [`source`](std::error::Error::source)
/// gives none, so that no cause is printed twice. The system's own error is the field
/// [`source`](Error::Io::source) of [`Error::Io`].
///
/// Match with `..`: variants may get more fields.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a call. A full disk comes this way too (`source.kind()` is
    /// [`io::ErrorKind::StorageFull`]); nothing was changed, and the call works again when there is
    /// space. With `op` `"flush"` the messages of the call are in the queue: what failed is making
    /// them durable.
    #[error("cannot {op} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: `"open"`, `"create"`, `"allocate"`, `"flush"`.
        op: &'static str,
        /// The file or directory it was tried on.
        path: PathBuf,
        /// The system's answer. (`r#`: the text above tells it, so it is not the error's `source()`
        /// as well.)
        r#source: io::Error,
    },
    /// Messages that will never come. Told once; the next read goes on behind them: see
    /// [`past_gaps`].
    #[error("{0}")]
    Gap(Gap),
    /// The message is longer than any queue, or this one, can hold.
    #[error("queue {}: a message of {len} bytes is too large: {}", path.display(), Longest { max: *max, max_bytes: *max_bytes })]
    MessageTooLarge {
        /// The queue's directory.
        path: PathBuf,
        /// Length of the refused message in bytes.
        len: u64,
        /// The longest message in bytes that this queue takes.
        max: u64,
        /// The value of [`max_bytes`](crate::Options::max_bytes) when it is what allows no longer
        /// ones; `None` when no queue takes longer ones.
        max_bytes: Option<u64>,
    },
    /// The queue is as large as `max_bytes` or `min_free_bytes` allow and its policy is to refuse.
    #[error("queue {} is full: {needed} more bytes of disk would {}", path.display(), Passed { option, used: *used, limit: *limit, free: *free })]
    Full {
        /// The queue's directory.
        path: PathBuf,
        /// The option whose limit it is: `"max_bytes"` or `"min_free_bytes"`.
        option: &'static str,
        /// Bytes of disk the queue takes now, every file counted.
        used: u64,
        /// The option's value in bytes.
        limit: u64,
        /// Bytes of disk the call would have needed on top.
        needed: u64,
        /// For `min_free_bytes`: bytes that are free on the file system.
        free: Option<u64>,
    },
    /// An option has a value that cannot be.
    #[error("queue {}: option {name}: {reason}", path.display())]
    InvalidOption {
        /// The directory of the queue that was to be opened.
        path: PathBuf,
        /// The option's name, as its setter is called.
        name: &'static str,
        /// What is wrong with its value.
        reason: String,
    },
    /// An argument has a value that cannot be, or a call was made where it cannot be.
    #[error("{}{what}: {reason}", Of(path.as_deref()))]
    InvalidArgument {
        /// The directory of the queue that was called, where it is known.
        path: Option<PathBuf>,
        /// The argument.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The queue is open already, here or in another process.
    #[error("queue {} is open already{}{}", path.display(), Holder { pid: *pid, here: *here }, Since(*since))]
    Locked {
        /// The queue's directory.
        path: PathBuf,
        /// The holder's process id; 0 when it could not be read.
        pid: u32,
        /// The holder is this very process. (In a container another process may have the same
        /// number.)
        here: bool,
        /// When the holder opened it: a process that began later only has its number. `None` when
        /// it could not be read.
        since: Option<SystemTime>,
    },
    /// There is nothing of that name.
    #[error("{}", Absent { path, what, name, held: held.as_ref() })]
    NotFound {
        /// The queue's directory.
        path: PathBuf,
        /// What was looked for: `"queue"`, `"consumer"`, `"message"`.
        what: &'static str,
        /// Its path, name or number.
        name: String,
        /// For a message: the numbers that the queue held then.
        held: Option<Range<u64>>,
    },
    /// The directory holds files, and nothing of a queue. It was left as it is: a queue wants a
    /// directory of its own.
    #[error("{} is not a queue: it holds {file:?}, which is not mmq's; nothing was changed", path.display())]
    NotAQueue {
        /// The directory.
        path: PathBuf,
        /// The name of a file in it.
        file: String,
    },
    /// The files were written by a later version of mmq. They were not touched.
    #[error("{}: format version {found} is not supported (up to {supported} is)", path.display())]
    UnsupportedFormat {
        /// The file that says so.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version this library reads.
        supported: u32,
    },
    /// An earlier flush failed, so nothing can be promised for what is written now. Reading goes
    /// on; open the queue again to write.
    #[error("writing is refused since a flush failed ({reason}); open the queue again")]
    Poisoned {
        /// The failure that poisoned the queue, with the path of the file.
        reason: String,
    },
    /// The queue was closed while the call waited, or before it: what is left of its handles can
    /// only be dropped.
    #[error("the queue is closed; open it again to go on")]
    Closed,
    /// The queue was opened in another process: this one is a fork of it and must open the queue
    /// for itself.
    #[error(
        "the queue was opened before a fork; a child process cannot use its parent's queue: open it where it is used"
    )]
    Forked,
    /// A bug in mmq: something was not as the library's own code has it. The queue may be used on;
    /// please report it with this text.
    #[error("queue {}: a bug in mmq: {what}; please report this text", path.display())]
    Internal {
        /// The queue's directory.
        path: PathBuf,
        /// What was not as it must be.
        what: &'static str,
    },
}

/// What a file of a later version is refused with, where no more is known of it than that it could
/// not be opened.
#[derive(Debug, thiserror::Error)]
#[error("format version {found} is not supported")]
pub(crate) struct LaterVersion {
    pub(crate) found: u32,
    pub(crate) supported: u32,
}

/// What the error of a failed sync says was tried.
const FLUSH: &str = "flush";

/// The answer of a sync that failed: what it was to make durable may never be, whatever a later
/// sync says (rule R6). It is an [`Error`] only once somebody has seen to that:
/// [`Index::heed`](crate::index::Index::heed) while the queue is open,
/// [`ends_opening`](Self::ends_opening) before.
#[derive(Debug)]
#[must_use]
pub(crate) struct SyncFailed(pub(crate) io::Error);

impl SyncFailed {
    /// For whoever refuses to write from now on.
    pub(crate) fn heeded(self, path: impl Into<PathBuf>) -> Error {
        Error::Io { op: FLUSH, path: path.into(), source: self.0 }
    }

    /// For an opening, which fails by it. The next one does not believe the page cache either, or
    /// finds it as this one did.
    pub(crate) fn ends_opening(self, path: impl Into<PathBuf>) -> Error {
        self.heeded(path)
    }
}

/// Why bytes of the index are still in memory alone: nothing is lost, and they are written once
/// that can be done.
#[derive(Debug, thiserror::Error)]
#[error("{0}; it is kept in memory until it can be written")]
pub(crate) struct Unwritten(pub(crate) io::Error);

impl Error {
    pub(crate) fn io(op: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        if let Some(LaterVersion { found, supported }) =
            source.get_ref().and_then(|inner| inner.downcast_ref())
        {
            return Error::UnsupportedFormat {
                path: path.into(),
                found: *found,
                supported: *supported,
            };
        }
        Error::Io { op, path: path.into(), source }
    }

    /// There is no message of that number: the queue holds those.
    #[cold]
    pub(crate) fn no_message(path: &Path, seq: u64, held: Range<u64>) -> Self {
        Error::NotFound {
            path: path.to_owned(),
            what: "message",
            name: seq.to_string(),
            held: Some(held),
        }
    }

    /// There is no consumer of that name.
    #[cold]
    pub(crate) fn no_consumer(path: &Path, name: &str) -> Self {
        Error::NotFound {
            path: path.to_owned(),
            what: "consumer",
            name: name.to_owned(),
            held: None,
        }
    }

    /// There is no queue.
    #[cold]
    pub(crate) fn no_queue(path: &Path) -> Self {
        Error::NotFound {
            path: path.to_owned(),
            what: "queue",
            name: path.display().to_string(),
            held: None,
        }
    }

    /// A call on the queue in `path` with an argument that cannot be.
    #[cold]
    pub(crate) fn invalid_argument(
        path: &Path,
        what: &'static str,
        reason: impl Into<String>,
    ) -> Self {
        Error::InvalidArgument { path: Some(path.to_owned()), what, reason: reason.into() }
    }

    /// A call on the queue in `path`, which is closed.
    #[cold]
    pub(crate) fn closed(path: &Path) -> Self {
        refused_by(path);
        Error::Closed
    }

    /// A call on the queue in `path`, which this process has inherited by a fork.
    #[cold]
    pub(crate) fn forked(path: &Path) -> Self {
        refused_by(path);
        Error::Forked
    }

    /// What cannot be on the queue in `path`, unless mmq has a bug.
    #[cold]
    pub(crate) fn internal(path: &Path, what: &'static str) -> Self {
        Error::Internal { path: path.to_owned(), what }
    }

    /// True for a refusal that space would cure: [`Error::Full`], or an [`Error::Io`] whose source
    /// is a full disk or an exceeded quota. A flush that failed for want of space is none: what it
    /// was to make durable may be lost.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Error::Full { .. } => true,
            Error::Io { op: FLUSH, .. } => false,
            Error::Io { source, .. } => no_space(source),
            _ => false,
        }
    }

    /// The queue's own limit is reached, whatever the disk has left.
    pub(crate) fn is_of_max_bytes(&self) -> bool {
        matches!(self, Error::Full { option: "max_bytes", .. })
    }

    /// What failed in a flush that a call did besides: no refusal, for what the call was asked for
    /// is done.
    pub(crate) fn of_flush(self) -> Self {
        match self {
            Error::Io { path, source, .. } => Error::Io { op: FLUSH, path, source },
            other => other,
        }
    }

    /// Part of the index could not be written, and is kept: no failure of what was written before.
    #[cfg(test)]
    pub(crate) fn is_unwritten(&self) -> bool {
        match self {
            Error::Io { source, .. } => {
                source.get_ref().is_some_and(|inner| inner.is::<Unwritten>())
            }
            _ => false,
        }
    }
}

/// ENOSPC and EDQUOT: both are cured by space and by nothing else.
fn no_space(source: &io::Error) -> bool {
    matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Io { source, .. } => source.kind(),
            Error::Full { .. } => io::ErrorKind::StorageFull,
            Error::Gap(_) => io::ErrorKind::InvalidData,
            Error::MessageTooLarge { .. }
            | Error::InvalidOption { .. }
            | Error::InvalidArgument { .. } => io::ErrorKind::InvalidInput,
            Error::Locked { .. } => io::ErrorKind::ResourceBusy,
            Error::NotFound { .. } => io::ErrorKind::NotFound,
            Error::NotAQueue { .. } => io::ErrorKind::InvalidData,
            Error::UnsupportedFormat { .. } => io::ErrorKind::Unsupported,
            Error::Closed => io::ErrorKind::BrokenPipe,
            Error::Poisoned { .. } | Error::Forked | Error::Internal { .. } => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
