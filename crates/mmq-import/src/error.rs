//! Why a source cannot be read.

use std::fmt::Display;
use std::io;

/// The result of everything that can fail.
pub(crate) type Result<T, E = ImportError> = std::result::Result<T, E>;

/// Why a source cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ImportError {
    kind: ImportErrorKind,
    message: String,
}

/// What kind of reason it is, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImportErrorKind {
    /// The names in the directory are those of two formats.
    Ambiguous,
    /// The source changed while it was read.
    Changed,
    /// What the source says of itself is so wrong that nothing of it can be found.
    Damaged,
    /// A call of the system failed.
    Io,
    /// A later version wrote the source.
    LaterFormat,
    /// There is no memory for a message.
    Memory,
    /// The path names no directory.
    NoDirectory,
    /// The directory holds no queue that can be imported.
    NotAQueue,
    /// A message is longer than any that a queue of mmq takes.
    TooLarge,
}

impl ImportError {
    pub(crate) fn new(kind: ImportErrorKind, message: impl Into<String>) -> ImportError {
        ImportError { kind, message: message.into() }
    }

    /// A call of the system that failed on a file.
    pub(crate) fn io(what: impl Display, error: &io::Error) -> ImportError {
        ImportError::new(ImportErrorKind::Io, format!("{what}: {error}"))
    }

    /// What kind of reason it is, for programs.
    pub fn kind(&self) -> ImportErrorKind {
        self.kind
    }
}
