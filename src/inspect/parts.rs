//! Reports missing parts of the index.

use crate::format::index_at;
use crate::index::image::IndexImage;

/// The missing part of the index of a queue that has segments, and its offset. No other check
/// reports blank parts.
pub(super) fn missing(bytes: &[u8], image: &IndexImage) -> Option<(usize, String)> {
    if bytes.len() < index_at::END {
        let what = format!(
            "it has {} bytes, but had at least {}; what followed is lost, such as the places of consumers",
            bytes.len(),
            index_at::END
        );
        return Some((bytes.len(), what));
    }
    let is_blank = image.checkpoint.is_none() && image.live.run.is_none();
    let what =
        "it has neither a checkpoint nor a run record; the next opening searches the segments";
    is_blank.then(|| (index_at::CHECKPOINT_A, what.to_owned()))
}
