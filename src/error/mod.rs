//! Everything that can go wrong, with the numbers and paths involved.

mod gap;
mod held_by;
#[cfg(feature = "capi")]
mod in_full;
mod refused;
mod text;

#[cfg(doc)]
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub use gap::{Gap, GapCause, past_gaps};
pub use held_by::HeldBy;
#[cfg(feature = "capi")]
pub(crate) use in_full::InFull;
use refused::refused_by;
use text::{Absent, Holder, Longest, Of, Passed, Since};

/// The result of every call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, with the values and paths involved.
///
/// Empty is never an error: a read from an empty queue returns `Ok(None)`.
///
/// After any error but [`Error::Poisoned`] and [`Error::Closed`] the queue goes on working. A
/// failed call has changed nothing, except where its `# Errors` section says otherwise of a failed
/// flush. An [`Error::Gap`] is behind the reader already: the next read goes on (see [`past_gaps`]
/// for loops).
///
/// The text of an error (its [`Display`](fmt::Display)) is complete: it has the cause and the
/// queue's path. Only [`Gap`](Error::Gap), [`Closed`](Error::Closed), [`Forked`](Error::Forked),
/// [`Interrupted`](Error::Interrupted) and [`Expired`](Error::Expired) have no field for a path.
/// [`source`](std::error::Error::source) returns `None`, so that no cause is printed twice; the
/// system's own error is the field [`source`](Error::Io::source) of [`Error::Io`].
///
/// Match with `..`: variants may get more fields.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a call. A full disk is one reason (`source.kind()` is
    /// [`io::ErrorKind::StorageFull`]): nothing was changed, and the call works again when there is
    /// space. With `op` `"flush"` the messages of the call are in the queue, but could not be made
    /// durable. With `op` `"sync"` nothing was changed: a sync failed that had to come first.
    #[error("cannot {op} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: `"open"`, `"create"`, `"allocate"`, `"sync"`,
        /// `"flush"`.
        op: &'static str,
        /// The file or directory it was tried on.
        path: PathBuf,
        /// The system's error. (`r#` keeps it from being the error's `source()`: the text above has
        /// it.)
        r#source: io::Error,
    },
    /// Messages are missing here and will never come. One read reports it, and the next one goes on
    /// behind them: see [`past_gaps`].
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
        /// The value of [`max_bytes`](crate::Options::max_bytes) when that is the limit; `None`
        /// when no queue takes longer messages.
        max_bytes: Option<u64>,
    },
    /// The queue is as large as `max_bytes` or `min_free_bytes` allow and its policy is to refuse.
    #[error("queue {} is full: {needed} more bytes of disk would {}", path.display(), Passed { option, used: *used, limit: *limit, free: *free, held_by: held_by.as_deref() })]
    Full {
        /// The queue's directory.
        path: PathBuf,
        /// The option that sets the limit: `"max_bytes"` or `"min_free_bytes"`.
        option: &'static str,
        /// Bytes of disk the queue takes now, every file counted.
        used: u64,
        /// The option's value in bytes.
        limit: u64,
        /// Bytes of disk the call would have needed on top.
        needed: u64,
        /// For `min_free_bytes`: bytes that are free on the file system.
        free: Option<u64>,
        /// Who keeps the oldest segment in the queue. `None` when no consumer does: there is none,
        /// or all have read everything.
        held_by: Option<Box<HeldBy>>,
    },
    /// An option has an invalid value.
    #[error("queue {}: option {name}: {reason}", path.display())]
    InvalidOption {
        /// The directory of the queue that was to be opened.
        path: PathBuf,
        /// The option's name: that of its setter.
        name: &'static str,
        /// What is wrong with its value.
        reason: String,
    },
    /// An argument has an invalid value, or the call is not allowed here.
    #[error("{}{what}: {reason}", Of(path.as_deref()))]
    InvalidArgument {
        /// The directory of the queue, where it is known.
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
        /// Whether the holder is this very process. (In a container another process may have the
        /// same id.)
        here: bool,
        /// When the holder opened the queue; a process that was started later merely got the same
        /// id. `None` when it could not be read.
        since: Option<SystemTime>,
    },
    /// There is no queue, consumer or message of that name or number.
    #[error("{}", Absent { path, what, name, held: held.as_ref() })]
    NotFound {
        /// The queue's directory.
        path: PathBuf,
        /// What was looked for: `"queue"`, `"consumer"`, `"message"`; in a salvage `"path"` and
        /// `"segment file"`.
        what: &'static str,
        /// Its path, name or number.
        name: String,
        /// For a message: the numbers that the queue held at that moment.
        held: Option<Range<u64>>,
    },
    /// The directory holds files, but none of a queue. It was left as it is: a queue needs a
    /// directory of its own.
    #[error("{} is not a queue: it holds {file:?}, which is not mmq's; nothing was changed", path.display())]
    NotAQueue {
        /// The directory.
        path: PathBuf,
        /// The name of a file in it.
        file: String,
    },
    /// A later version of mmq wrote the files. They were not touched.
    #[error("{}: format version {found} is not supported (up to {supported} is)", path.display())]
    UnsupportedFormat {
        /// The file with the later version.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version this library reads.
        supported: u32,
    },
    /// An earlier flush failed, so new messages could not be promised to last. Reading goes on;
    /// open the queue again to write.
    #[error("writing is refused since a flush failed ({reason}); open the queue again")]
    Poisoned {
        /// The failure that poisoned the queue, with the path of the file.
        reason: String,
    },
    /// The queue was closed, before the call or while it waited. The remaining handles can only be
    /// dropped.
    #[error("the queue is closed; open it again to go on")]
    Closed,
    /// A wait was ended by [`Queue::interrupt`](crate::Queue::interrupt). The call has changed
    /// nothing, and may be made again.
    #[error("the wait was interrupted; nothing was changed, and the call may be made again")]
    Interrupted,
    /// The [lease](crate::Redelivery::lease) of the delivery had ended: its message has gone back
    /// to the queue, and comes, or came, to another worker. The call has changed nothing.
    #[error(
        "the lease of the delivery has ended, and its message comes again; nothing was changed (work that takes longer needs a longer lease, or Delivery::extend)"
    )]
    Expired,
    /// The queue was opened before a fork, and this is the child. It must open a queue for itself.
    #[error(
        "the queue was opened before a fork; a child process cannot use its parent's queue: open it where it is used"
    )]
    Forked,
    /// A bug in mmq: one of its invariants does not hold. The queue can still be used; please
    /// report this text.
    #[error("queue {}: a bug in mmq: {what}; please report this text", path.display())]
    Internal {
        /// The queue's directory.
        path: PathBuf,
        /// The invariant that does not hold.
        what: &'static str,
    },
}

/// The source of an [`io::Error`] for a file of a later version, from code that can only return an
/// [`io::Error`]. [`Error::io`] turns it into [`Error::UnsupportedFormat`].
#[derive(Debug, thiserror::Error)]
#[error("format version {found} is not supported")]
pub(crate) struct LaterVersion {
    pub(crate) found: u32,
    pub(crate) supported: u32,
}

/// `op` of an [`Error::Io`] from a failed sync, or from a flush at the end of a call that has done
/// its work.
const FLUSH: &str = "flush";
/// `op` of an [`Error::Io`] from a sync that failed before the call had done anything.
const SYNC: &str = "sync";

/// The error of a failed sync. The bytes that it was to make durable may be lost, whatever a later
/// sync says (rule R6), so a caller cannot use it as an [`Error`] before the queue is poisoned:
/// [`Index::heed`](crate::index::Index::heed) poisons an open queue and converts it,
/// [`ends_opening`](Self::ends_opening) converts it during an opening.
#[derive(Debug)]
#[must_use]
pub(crate) struct SyncFailed(pub(crate) io::Error);

impl SyncFailed {
    /// Converts it. The caller has made sure that nothing more is written.
    pub(crate) fn heeded(self, path: impl Into<PathBuf>) -> Error {
        Error::Io { op: FLUSH, path: path.into(), source: self.0 }
    }

    /// Converts it for an opening, which fails with it. That needs no poison: the next opening does
    /// not trust the page cache either, or finds it as this one did.
    pub(crate) fn ends_opening(self, path: impl Into<PathBuf>) -> Error {
        self.heeded(path)
    }
}

/// The source of an error that says that bytes of the index could not be written. They wait in
/// memory; nothing is lost.
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

    /// The queue holds the messages `held`, and `seq` is none of them.
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

    /// A call on the queue in `path` with an invalid argument.
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

    /// A call that waited on the queue in `path` was interrupted.
    #[cold]
    pub(crate) fn interrupted(path: &Path) -> Self {
        refused_by(path);
        Error::Interrupted
    }

    /// A call on the queue in `path`, which this process has inherited by a fork.
    #[cold]
    pub(crate) fn forked(path: &Path) -> Self {
        refused_by(path);
        Error::Forked
    }

    /// A bug in mmq that showed in the queue in `path`.
    #[cold]
    pub(crate) fn internal(path: &Path, what: &'static str) -> Self {
        Error::Internal { path: path.to_owned(), what }
    }

    /// Whether the call was refused for want of space: [`Error::Full`], or an [`Error::Io`] from a
    /// full disk or an exceeded quota. `false` for a flush that failed for want of space: the bytes
    /// that it was to make durable may be lost.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Error::Full { .. } => true,
            Error::Io { op: FLUSH | SYNC, .. } => false,
            Error::Io { source, .. } => no_space(source),
            _ => false,
        }
    }

    /// Whether the limit `max_bytes` is reached, whatever the disk has left.
    pub(crate) fn is_of_max_bytes(&self) -> bool {
        matches!(self, Error::Full { option: "max_bytes", .. })
    }

    /// Marks an error as that of a flush at the end of a call that has done its work: it is no
    /// refusal, also where the flush of another thread has failed.
    pub(crate) fn of_flush(self, directory: &Path) -> Self {
        match self {
            Error::Io { path, source, .. } => Error::Io { op: FLUSH, path, source },
            refused => {
                let source = io::Error::other(refused.to_string());
                Error::Io { op: FLUSH, path: directory.to_owned(), source }
            }
        }
    }

    /// Marks an error as that of a call that has done nothing, though a sync may have failed.
    pub(crate) fn of_refusal(self) -> Self {
        match self {
            Error::Io { op: FLUSH, path, source } => Error::Io { op: SYNC, path, source },
            other => other,
        }
    }

    /// The system's number of the error; 0: it has none.
    pub(crate) fn system_number(&self) -> i32 {
        match self {
            Error::Io { source, .. } => source.raw_os_error().unwrap_or(0),
            _ => 0,
        }
    }

    /// Whether bytes of the index could not be written and wait in memory. Nothing written before
    /// has failed.
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
            Error::Interrupted => io::ErrorKind::Interrupted,
            Error::Expired => io::ErrorKind::TimedOut,
            Error::Poisoned { .. } | Error::Forked | Error::Internal { .. } => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
