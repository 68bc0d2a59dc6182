//! For C: which queue an error without a field for it is about.

#[cfg(feature = "capi")]
use std::fmt;
use std::path::Path;
#[cfg(feature = "capi")]
use std::path::PathBuf;

#[cfg(feature = "capi")]
use crate::error::Error;
#[cfg(feature = "capi")]
use crate::error::text::Of;

#[cfg(feature = "capi")]
thread_local! {
    /// Which queue this thread's latest [`Error::Closed`], [`Error::Forked`] or
    /// [`Error::Interrupted`] is about. These have no field for it, since programs match on them as
    /// they are.
    static REFUSED_BY: std::cell::Cell<Option<PathBuf>> = const { std::cell::Cell::new(None) };
}

pub(super) fn refused_by(path: &Path) {
    #[cfg(feature = "capi")]
    // A thread whose locals are destroyed already does without.
    let _ = REFUSED_BY.try_with(|refused| refused.set(Some(path.to_owned())));
    let _ = path;
}

/// The text for C of an error that a call of this thread has just returned: with the queue's path.
#[cfg(feature = "capi")]
pub(crate) struct InFull<'a> {
    error: &'a Error,
    path: Option<PathBuf>,
}

#[cfg(feature = "capi")]
impl InFull<'_> {
    pub(crate) fn of(error: &Error) -> InFull<'_> {
        let is_without = matches!(error, Error::Closed | Error::Forked | Error::Interrupted);
        let path = if is_without {
            REFUSED_BY.try_with(std::cell::Cell::take).ok().flatten()
        } else {
            None
        };
        InFull { error, path }
    }
}

#[cfg(feature = "capi")]
impl fmt::Display for InFull<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Of(self.path.as_deref()), self.error)
    }
}
