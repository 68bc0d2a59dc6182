//! Remembers for C which queue an error without a path field is about.

use std::path::Path;
#[cfg(feature = "capi")]
use std::path::PathBuf;

#[cfg(feature = "capi")]
thread_local! {
    /// Which queue this thread's latest `Error::Closed`, `Error::Forked` or `Error::Interrupted` is
    /// about. These have no path field, since programs match on them without fields.
    static REFUSED_BY: std::cell::Cell<Option<PathBuf>> = const { std::cell::Cell::new(None) };
}

pub(super) fn refused_by(path: &Path) {
    #[cfg(feature = "capi")]
    // A thread whose locals are already destroyed skips this.
    let _ = REFUSED_BY.try_with(|refused| refused.set(Some(path.to_owned())));
    let _ = path;
}

/// Takes the path of the queue that this thread's latest such error is about.
#[cfg(feature = "capi")]
pub(super) fn take_refused_by() -> Option<PathBuf> {
    REFUSED_BY.try_with(std::cell::Cell::take).ok().flatten()
}
