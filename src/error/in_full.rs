//! The text of an error for C.

use std::fmt;
use std::path::PathBuf;

use super::Error;
use super::refused::take_refused_by;
use super::text::Of;

/// The text for C, with the queue's path, of an error that a call of this thread has just returned.
pub(crate) struct InFull<'a> {
    error: &'a Error,
    path: Option<PathBuf>,
}

impl InFull<'_> {
    pub(crate) fn of(error: &Error) -> InFull<'_> {
        let is_without = matches!(error, Error::Closed | Error::Forked | Error::Interrupted);
        let path = if is_without { take_refused_by() } else { None };
        InFull { error, path }
    }
}

impl fmt::Display for InFull<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Of(self.path.as_deref()), self.error)
    }
}
