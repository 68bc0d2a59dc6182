//! What is told to `tracing` (feature `tracing`; target `mmq`). Without the feature every function here is empty.

use std::path::Path;

use crate::error::{Error, Gap};

/// A queue was opened: with what, and what its recovery found.
#[inline]
pub(crate) fn opened(path: &Path, next_seq: u64, oldest_seq: u64, segments: usize, clean: bool, missing: usize) {
    #[cfg(feature = "tracing")]
    {
        tracing::info!(target: "mmq", path = %path.display(), next_seq, oldest_seq, segments, "queue opened");
        if !clean {
            tracing::info!(target: "mmq", path = %path.display(), gaps = missing, "recovered: it was not closed");
        }
    }
    let _ = (path, next_seq, oldest_seq, segments, clean, missing);
}

/// A file that is not what it should be was renamed.
#[inline]
pub(crate) fn set_aside(name: &str, aside: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "mmq", name, aside, "damaged or foreign file set aside");
    let _ = (name, aside);
}

/// Messages go on in another segment.
#[inline]
pub(crate) fn segment_begun(slot: u32, first_seq: u64, reused: bool) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "mmq", slot, first_seq, reused, "segment begun");
    let _ = (slot, first_seq, reused);
}

/// A reader is told of a gap.
#[inline]
pub(crate) fn gap(gap: &Gap) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "mmq", first = gap.first, last = gap.last, cause = %gap.cause, "messages are missing");
    let _ = gap;
}

/// A flush failed: writing is refused from now on.
#[inline]
pub(crate) fn flush_failed(error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "mmq", %error, "flush failed; writing is refused");
    let _ = error;
}

/// There was no room for a message.
#[inline]
pub(crate) fn full(error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "mmq", %error, "queue is full");
    let _ = error;
}
