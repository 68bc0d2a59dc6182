//! What can go wrong, with the numbers and places in it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// The result of every call that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong, with what and where.
///
/// Empty is never an error: a read from an empty queue answers `Ok(None)`.
///
/// After any error but [`Error::Poisoned`] and [`Error::Closed`] the queue goes on working: a call that failed changed
/// nothing, and [`Error::Gap`] has already been stepped over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a call. A full disk comes this way too (`source.kind()` is
    /// [`io::ErrorKind::StorageFull`]); nothing was changed, and the call works again when there is space.
    #[error("cannot {op} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: `"open"`, `"allocate"`, `"flush"`.
        op: &'static str,
        /// The file or directory it was tried on.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Messages that will never come. Told once; the next read goes on behind them.
    #[error("{0}")]
    Gap(Gap),
    /// The message is longer than any queue, or this one, can hold.
    #[error("message of {len} bytes is too large: at most {max} bytes fit")]
    MessageTooLarge {
        /// Length of the refused message in bytes.
        len: u64,
        /// The longest message in bytes that this queue takes.
        max: u64,
    },
    /// The queue is as large as `max_bytes` or `min_free_bytes` allow and its policy is to refuse.
    #[error("queue is full: {needed} more bytes of disk would pass the limit ({used} of {limit} bytes used)")]
    Full {
        /// Bytes of disk the queue takes now, every file counted.
        used: u64,
        /// The limit in bytes that would be passed.
        limit: u64,
        /// Bytes of disk the call would have needed on top.
        needed: u64,
    },
    /// An option has a value that cannot be.
    #[error("option {name}: {reason}")]
    InvalidOption {
        /// The option's name, as its setter is called.
        name: &'static str,
        /// What is wrong with its value.
        reason: String,
    },
    /// An argument has a value that cannot be.
    #[error("{what}: {reason}")]
    InvalidArgument {
        /// The argument.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Somebody else has the queue open.
    #[error("queue {} is open in process {pid}{}", path.display(), Since(*since))]
    Locked {
        /// The queue's directory.
        path: PathBuf,
        /// The holder's process id; 0 when it could not be read.
        pid: u32,
        /// When the holder opened it: a process that began later only has its number. `None` when it could not be read.
        since: Option<SystemTime>,
    },
    /// There is nothing of that name.
    #[error("{what} {name:?} does not exist")]
    NotFound {
        /// What was looked for: `"queue"`, `"consumer"`, `"message"`.
        what: &'static str,
        /// Its path, name or number.
        name: String,
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
    /// An earlier flush failed, so nothing can be promised for what is written now. Reading goes on; open the queue
    /// again to write.
    #[error("writing is refused since a flush failed ({reason}); open the queue again")]
    Poisoned {
        /// The failure that poisoned the queue.
        reason: String,
    },
    /// The queue was closed while the call waited.
    #[error("the queue is closed")]
    Closed,
    /// The queue was opened in another process: this one is a fork of it and must open the queue for itself.
    #[error("the queue was opened before a fork; a child process cannot use its parent's queue")]
    Forked,
}

/// What a file of a later version is refused with, where no more is known of it than that it could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("format version {found} is not supported")]
pub(crate) struct LaterVersion {
    pub(crate) found: u32,
    pub(crate) supported: u32,
}

/// The end of the sentence on who holds a queue. The number is one that `date -d @` takes.
struct Since(Option<SystemTime>);

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.and_then(|since| since.duration_since(UNIX_EPOCH).ok()) {
            Some(since) => write!(f, " since Unix time {}", since.as_secs()),
            None => Ok(()),
        }
    }
}

impl Error {
    pub(crate) fn io(op: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        if let Some(LaterVersion { found, supported }) = source.get_ref().and_then(|inner| inner.downcast_ref()) {
            return Error::UnsupportedFormat { path: path.into(), found: *found, supported: *supported };
        }
        Error::Io { op, path: path.into(), source }
    }

    /// True for a refusal that space would cure: [`Error::Full`], or an [`Error::Io`] whose source is a full disk or an
    /// exceeded quota.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Error::Full { .. } => true,
            Error::Io { source, .. } => no_space(source),
            _ => false,
        }
    }
}

/// ENOSPC and EDQUOT: both are cured by space and by nothing else.
pub(crate) fn no_space(source: &io::Error) -> bool {
    matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Io { source, .. } => source.kind(),
            Error::Full { .. } => io::ErrorKind::StorageFull,
            Error::Gap(_) => io::ErrorKind::InvalidData,
            Error::MessageTooLarge { .. } | Error::InvalidOption { .. } | Error::InvalidArgument { .. } => {
                io::ErrorKind::InvalidInput
            }
            Error::Locked { .. } => io::ErrorKind::ResourceBusy,
            Error::NotFound { .. } => io::ErrorKind::NotFound,
            Error::UnsupportedFormat { .. } => io::ErrorKind::Unsupported,
            Error::Closed => io::ErrorKind::BrokenPipe,
            Error::Poisoned { .. } | Error::Forked => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// A range of sequence numbers that will never come, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gap {
    /// The first missing sequence number.
    pub first: u64,
    /// The last missing sequence number.
    pub last: u64,
    /// Why they are missing.
    pub cause: GapCause,
}

impl Gap {
    /// How many messages are missing.
    ///
    /// For [`GapCause::Unflushed`] this is an upper bound: sequence numbers are reserved ahead so that none is ever
    /// used twice, and how many of them had been given out before the power cut cannot be known.
    #[must_use]
    pub fn count(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "message {} will never come: {}", self.first, self.cause)
        } else {
            write!(f, "messages {} to {} will never come: {}", self.first, self.last, self.cause)
        }
    }
}

/// Why messages are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum GapCause {
    /// The bytes that held them are not what was written: a damaged, replaced or missing file.
    Damaged,
    /// They had not been flushed when the machine lost power.
    Unflushed,
    /// They were given up to make room ([`OnFull::DropOldest`](crate::OnFull::DropOldest)).
    Dropped,
    /// They were older than [`Options::max_age`](crate::Options::max_age).
    Expired,
}

impl GapCause {
    /// Every cause, in the order of the numbers the files and the C header give them.
    pub(crate) const ALL: [GapCause; 4] =
        [GapCause::Damaged, GapCause::Unflushed, GapCause::Dropped, GapCause::Expired];

    pub(crate) fn number(self) -> u8 {
        match self {
            GapCause::Damaged => 1,
            GapCause::Unflushed => 2,
            GapCause::Dropped => 3,
            GapCause::Expired => 4,
        }
    }

    /// An unknown number is damage: a later version's causes do not exist in this format version.
    pub(crate) fn from_number(number: u8) -> GapCause {
        GapCause::ALL.into_iter().find(|cause| cause.number() == number).unwrap_or(GapCause::Damaged)
    }
}

impl fmt::Display for GapCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GapCause::Damaged => "damaged",
            GapCause::Unflushed => "not flushed before a power cut",
            GapCause::Dropped => "dropped to make room",
            GapCause::Expired => "older than the maximum age",
        })
    }
}
