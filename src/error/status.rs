//! The number of an error, in C and between processes; and the error of the standard library.

use std::io;

use super::Error;

impl Error {
    /// Returns the number that stands for this kind of error in C (`mmq_status`) and between a
    /// client and the owner of a queue.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Error::Gap(_) => 4,
            Error::InvalidArgument { .. } => 16,
            Error::InvalidOption { .. } => 17,
            Error::MessageTooLarge { .. } => 18,
            Error::Full { .. } => 19,
            Error::Io { .. } if self.is_full() => 19,
            Error::Locked { .. } => 20,
            Error::NotFound { .. } => 21,
            Error::UnsupportedFormat { .. } => 22,
            Error::Io { .. } => 23,
            Error::Poisoned { .. } => 24,
            Error::Closed => 25,
            Error::Forked => 26,
            Error::Expired => 27,
            Error::Interrupted => 28,
            Error::NotAQueue { .. } => 29,
            Error::Internal { .. } => 31,
            Error::NotShared { .. } => 32,
            Error::Disconnected { .. } => 33,
        }
    }
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
            Error::NotShared { .. } => io::ErrorKind::ConnectionRefused,
            Error::Disconnected { .. } => io::ErrorKind::ConnectionReset,
            Error::Closed => io::ErrorKind::BrokenPipe,
            Error::Interrupted => io::ErrorKind::Interrupted,
            Error::Expired => io::ErrorKind::TimedOut,
            Error::Poisoned { .. } | Error::Forked | Error::Internal { .. } => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
