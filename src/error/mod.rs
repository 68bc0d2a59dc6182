//! Everything that can go wrong, with the numbers and paths involved.
//!
//! | file | what it holds | what it does |
//! |---|---|---|
//! | `mod` | [`Error`], `SyncFailed` | builds errors |
//! | `gap` | [`Gap`], [`GapCause`] | reads past gaps |
//! | `held_by` | [`HeldBy`]: the consumer that keeps the oldest segment | |
//! | `text` | parts of error texts | |
//! | `status` | | the number of an error; an error of the standard library |
//! | `in_full`, `refused` | the text of an error for C | adds the queue's path |

mod gap;
mod held_by;
#[cfg(feature = "capi")]
mod in_full;
mod refused;
mod status;
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
use text::{Absent, Doubt, Holder, Longest, Of, Passed, Since};

/// The result of every call that can fail.
///
/// ```
/// fn log(queue: &mmq::Queue, line: &str) -> mmq::Result<()> {
///     queue.enqueue(line)?;
///     Ok(())
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, with the values and paths involved.
///
/// Empty is never an error: a read from an empty queue returns `Ok(None)`.
///
/// After [`Error::Poisoned`] the queue refuses writes, and reads work. After [`Error::Closed`], and
/// in a child that gets [`Error::Forked`], it refuses all calls. After any other error it works. A
/// failed call has changed nothing, except where its `# Errors` section says otherwise about a
/// failed flush. After an [`Error::Gap`] the next read continues behind it: see [`past_gaps`].
///
/// The text of an error (its [`Display`](fmt::Display)) is complete: it has the cause and the
/// queue's path. Only [`Gap`](Error::Gap), [`Closed`](Error::Closed), [`Forked`](Error::Forked),
/// [`Interrupted`](Error::Interrupted) and [`Expired`](Error::Expired) have no field for a path.
/// [`source`](std::error::Error::source) returns `None`, so that no cause is printed twice; the
/// system's own error is the field [`source`](Error::Io::source) of [`Error::Io`].
///
/// Match with `..`: variants may get more fields.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use mmq::Error;
///
/// match mmq::Queue::open(dir.path()) {
///     Ok(queue) => println!("{} messages wait", queue.len()),
///     Err(Error::Locked { pid, .. }) => eprintln!("process {pid} has the queue"),
///     Err(error) if error.is_full() => eprintln!("make room first: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed. A full disk is one reason (`source.kind()` is
    /// [`io::ErrorKind::StorageFull`]): nothing was changed, and the call works again when there is
    /// space. With `op` `"flush"` the messages of the call are in the queue, but could not be made
    /// durable. With `op` `"sync"` nothing was changed: a sync failed that the call needed first.
    #[error("cannot {op} {}: {source}", path.display())]
    Io {
        /// The failed operation, as a verb: `"open"`, `"create"`, `"lock"`, `"read"`, `"write"`,
        /// `"map"`, `"allocate"`, `"sync"`, `"flush"`, and others for rarer operations.
        op: &'static str,
        /// The file or directory of the failed operation.
        path: PathBuf,
        /// The system's error.
        // (`r#` keeps it from being the error's `source()`: the text above has it.)
        r#source: io::Error,
    },
    /// Messages are missing here and will never be delivered. One read reports it, and the next one
    /// continues behind them: see [`past_gaps`].
    #[error("{0}")]
    Gap(Gap),
    /// The message is longer than any queue, or this one, can hold.
    #[error("queue {}: a message of {len} bytes is too large: {}", path.display(), Longest { max: *max, max_bytes: *max_bytes })]
    MessageTooLarge {
        /// The queue's directory.
        path: PathBuf,
        /// Length of the rejected message in bytes.
        len: u64,
        /// The longest message in bytes that this queue takes.
        max: u64,
        /// The value of [`max_bytes`](crate::Options::max_bytes) when that is the limit; `None`
        /// when no queue takes longer messages.
        max_bytes: Option<u64>,
    },
    /// The queue is as large as `max_bytes` or `min_free_bytes` allow, and its policy rejects the
    /// message.
    #[error("queue {} is full: {needed} more bytes of disk would {}", path.display(), Passed { option, used: *used, limit: *limit, free: *free, held_by: held_by.as_deref() })]
    Full {
        /// The queue's directory.
        path: PathBuf,
        /// The option that sets the limit: `"max_bytes"` or `"min_free_bytes"`.
        option: &'static str,
        /// Disk bytes that all files of the queue take now.
        used: u64,
        /// The option's value in bytes.
        limit: u64,
        /// Additional disk bytes that the call needs.
        needed: u64,
        /// For `min_free_bytes`: bytes that are free on the file system.
        free: Option<u64>,
        /// The consumer that keeps the oldest segment in the queue. `None` when no consumer does:
        /// there is none, or all have read everything.
        held_by: Option<Box<HeldBy>>,
    },
    /// An option has an invalid value.
    #[error("queue {}: option {name}: {reason}", path.display())]
    InvalidOption {
        /// The directory of the queue that the call tried to open.
        path: PathBuf,
        /// The name of the option's setter.
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
    /// The queue is already open, here or in another process.
    #[error("queue {} is open already{}{}", path.display(), Holder { pid: *pid, here: *here }, Since(*since))]
    Locked {
        /// The queue's directory.
        path: PathBuf,
        /// The holder's process id; 0 when it could not be read, or it has none in this namespace.
        pid: u32,
        /// Whether the holder is this very process. (In a container another process may have the
        /// same id.)
        here: bool,
        /// When the holder opened the queue; a process started later than that only has the same
        /// id. `None` when it could not be read.
        since: Option<SystemTime>,
    },
    /// There is no queue, consumer or message with that name or number.
    #[error("{}", Absent { path, what, name, held: held.as_ref() })]
    NotFound {
        /// The queue's directory.
        path: PathBuf,
        /// What is missing: `"queue"`, `"consumer"`, `"message"`; in a salvage `"path"` and
        /// `"segment file"`.
        what: &'static str,
        /// Its path, name or number.
        name: String,
        /// For a message: the sequence numbers in the queue at that moment.
        held: Option<Range<u64>>,
    },
    /// The directory holds files, but none of a queue. The call left it unchanged: a queue needs a
    /// directory of its own.
    #[error("{} is not a queue: it holds {file:?}, which mmq did not make; nothing was changed", path.display())]
    NotAQueue {
        /// The directory.
        path: PathBuf,
        /// The name of a file in it.
        file: String,
    },
    /// Another version of mmq wrote the files: a later one, or one from before the first release.
    /// The call left them unchanged.
    #[error("{}: format version {found} is not supported; the newest that this mmq reads is {supported}", path.display())]
    UnsupportedFormat {
        /// The file with that version.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version this library reads.
        supported: u32,
    },
    /// An earlier flush failed, so the queue can no longer promise that new messages last. Reads
    /// still work; open the queue again to write.
    #[error(
        "the queue refuses writes because a flush failed ({reason}); close the queue and open it again"
    )]
    Poisoned {
        /// The failure that poisoned the queue, with the path of the file.
        reason: String,
    },
    /// The queue was closed, before the call or while it waited. The program can only drop the
    /// remaining handles.
    #[error("the queue is closed; open it again to continue")]
    Closed,
    /// [`Queue::interrupt`](crate::Queue::interrupt) ended the call's wait. The call has changed
    /// nothing, and the program may repeat it.
    #[error("the wait was interrupted; nothing was changed, and the call can be repeated")]
    Interrupted,
    /// The [lease](crate::Redelivery::lease) of the delivery had ended: the queue took the message
    /// back, and another worker gets, or got, it. The call has changed nothing.
    #[error(
        "the lease of the delivery has ended, and its message comes again; nothing was changed (work that takes longer needs a longer lease, or Delivery::extend)"
    )]
    Expired,
    /// The queue was opened before a fork, and this is the child. The child must open a queue
    /// itself.
    #[error(
        "the queue was opened before a fork; a child process cannot use its parent's queue and has to open the queue itself"
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
    /// No owner of the queue answers this process: [`Client::connect`](crate::Client::connect).
    #[error("queue {}: no owner to ask: {reason}", path.display())]
    NotShared {
        /// The queue's directory.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// The connection to the queue's owner has ended: its process died, or closed the queue.
    #[error("queue {}: the connection to its owner has ended; {}", path.display(), Doubt(*in_doubt))]
    Disconnected {
        /// The queue's directory.
        path: PathBuf,
        /// Whether the owner may have done what the call asked; otherwise it has not.
        in_doubt: bool,
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

/// The `op` of an [`Error::Io`] from a failed sync, or from a flush at the end of a call that has
/// done its work.
const FLUSH: &str = "flush";
/// The `op` of an [`Error::Io`] from a sync that failed before the call had done anything.
const SYNC: &str = "sync";

/// The error of a failed sync. The bytes that it should have made durable may be lost, whatever a
/// later sync returns (rule R6), so a caller cannot use it as an [`Error`] before the queue is
/// poisoned: [`Index::heed`](crate::index::Index::heed) poisons an open queue and converts it,
/// [`ends_opening`](Self::ends_opening) converts it during an opening.
#[derive(Debug)]
#[must_use]
pub(crate) struct SyncFailed(pub(crate) io::Error);

impl SyncFailed {
    /// Converts it to an [`Error`]. The caller has made sure that no thread writes any more.
    pub(crate) fn heeded(self, path: impl Into<PathBuf>) -> Error {
        Error::Io { op: FLUSH, path: path.into(), source: self.0 }
    }

    /// Converts it to an [`Error`] with which an opening fails. That needs no poison: the next
    /// opening does not trust the page cache either, or finds the same state as this one.
    pub(crate) fn ends_opening(self, path: impl Into<PathBuf>) -> Error {
        self.heeded(path)
    }
}

/// The source of an error about index bytes that could not be written. They stay in memory; nothing
/// is lost.
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

    /// Returns the error for a message `seq` that is not among the messages `held` in the queue.
    #[cold]
    pub(crate) fn no_message(path: &Path, seq: u64, held: Range<u64>) -> Self {
        Error::NotFound {
            path: path.to_owned(),
            what: "message",
            name: seq.to_string(),
            held: Some(held),
        }
    }

    /// Returns the error for a missing consumer `name`.
    #[cold]
    pub(crate) fn no_consumer(path: &Path, name: &str) -> Self {
        Error::NotFound {
            path: path.to_owned(),
            what: "consumer",
            name: name.to_owned(),
            held: None,
        }
    }

    /// Returns the error for a missing queue.
    #[cold]
    pub(crate) fn no_queue(path: &Path) -> Self {
        Error::NotFound {
            path: path.to_owned(),
            what: "queue",
            name: path.display().to_string(),
            held: None,
        }
    }

    /// Returns the error for an invalid argument of a call on the queue in `path`.
    #[cold]
    pub(crate) fn invalid_argument(
        path: &Path,
        what: &'static str,
        reason: impl Into<String>,
    ) -> Self {
        Error::InvalidArgument { path: Some(path.to_owned()), what, reason: reason.into() }
    }

    /// Returns the error for a call on the closed queue in `path`.
    #[cold]
    pub(crate) fn closed(path: &Path) -> Self {
        refused_by(path);
        Error::Closed
    }

    /// Returns the error for an interrupted wait on the queue in `path`.
    #[cold]
    pub(crate) fn interrupted(path: &Path) -> Self {
        refused_by(path);
        Error::Interrupted
    }

    /// Returns the error for a call in a forked child on the parent's queue in `path`.
    #[cold]
    pub(crate) fn forked(path: &Path) -> Self {
        refused_by(path);
        Error::Forked
    }

    /// Returns the error for a bug in mmq, found in the queue in `path`.
    #[cold]
    pub(crate) fn internal(path: &Path, what: &'static str) -> Self {
        Error::Internal { path: path.to_owned(), what }
    }

    /// Returns whether the call failed for lack of space: [`Error::Full`], or an [`Error::Io`] from
    /// a full disk or an exceeded quota. `false` for a flush that failed for lack of space: the
    /// bytes that it should have made durable may be lost.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let queue = mmq::Options::new().max_bytes(1 << 20).open(dir.path())?;
    /// let error = (0..1_000).find_map(|_| queue.enqueue([0; 10_000]).err()).expect("it is full");
    /// assert!(error.is_full(), "{error}");
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Error::Full { .. } => true,
            Error::Io { op: FLUSH | SYNC, .. } => false,
            Error::Io { source, .. } => no_space(source),
            _ => false,
        }
    }

    /// Returns whether the limit `max_bytes` is reached, however much space the disk has.
    pub(crate) fn is_of_max_bytes(&self) -> bool {
        matches!(self, Error::Full { option: "max_bytes", .. })
    }

    /// Marks an error as that of a flush at the end of a call that has done its work, even if
    /// another thread's flush failed: the call was not rejected.
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

    /// Returns the system's error number; 0 when it has none.
    pub(crate) fn system_number(&self) -> i32 {
        match self {
            Error::Io { source, .. } => source.raw_os_error().unwrap_or(0),
            _ => 0,
        }
    }

    /// Returns whether index bytes could not be written and stay in memory. No earlier write has
    /// failed.
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

/// Returns whether the error is ENOSPC or EDQUOT, which only more space can cure.
fn no_space(source: &io::Error) -> bool {
    matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
