//! Reads the files of a queue while its holder uses it: writes nothing, and believes nothing that
//! the holder may be about to change.

use crate::error::{Gap, Result};
use crate::format::{FLAG_CHANGING, FLAG_UNSYNCED_FILES, SegmentState, Spot};
use crate::index::image::IndexImage;
use crate::index::losses::Evicted;
use crate::recovery::belief::{Belief, evicted};
use crate::recovery::place_tail::begins_behind;
use crate::recovery::publish::missing_numbers;
use crate::recovery::rows::{
    Rows, all_before_was_given_back, follow_each_other, rows_are_complete,
};
use crate::segment::Row;
use crate::storage::Storage;

/// The segments and marks of a queue in use.
#[derive(Debug)]
pub(crate) struct InUse {
    /// Sorted by position.
    pub(crate) live: Vec<Row>,
    pub(crate) spares: usize,
    pub(crate) tail: Spot,
    pub(crate) durable: Spot,
    pub(crate) known_gaps: Vec<Gap>,
    pub(crate) evicted: Evicted,
}

/// Returns the queue by the rows of its index. `image` was read while the holder stored to it.
/// `None` when its parts do not fit together: the caller reads them again.
pub(crate) fn by_rows(image: &IndexImage) -> Option<InUse> {
    let changing = image.live.run?.flags & FLAG_CHANGING != 0;
    let is_complete = || {
        let mut live = image.segments.iter().filter(|(_, row)| row.state == SegmentState::Live);
        live.next().is_none() || rows_are_complete(image, Belief::Cache)
    };
    if changing || image.segments_damaged || !is_complete() {
        return None;
    }
    let mut rows = Rows::default();
    image.segments.iter().for_each(|(slot, header)| rows.add(*slot, *header));
    rows.sort();
    in_use(image, rows)
}

/// Returns the queue by the headers of its segment files, when the index has no complete rows.
/// `storage` keeps changes in memory. `None` when the parts do not fit together: the caller reads
/// them again.
pub(crate) fn by_headers<S: Storage>(
    storage: &S,
    image: &IndexImage,
    queue_id: [u8; 16],
) -> Result<Option<InUse>> {
    let mut rows = Rows::default();
    rows.gather(storage, Some(queue_id), &image.segments, u64::MAX)?;
    rows.drop_outlived();
    let Some(found) = in_use(image, rows) else {
        return Ok(None);
    };
    let reaches = match found.live.last() {
        Some(last) => found.tail.position <= last.header.end() + crate::format::ALIGN,
        None => true,
    };
    let whole = reaches && follow_each_other(found.live.iter().map(|row| &row.header));
    Ok(Some(found).filter(|_| whole))
}

fn in_use(image: &IndexImage, mut rows: Rows) -> Option<InUse> {
    let (tail, run) = (image.live.tail?, image.live.run?);
    // A segment after the tail was begun for a record that is not committed yet.
    rows.live.retain(|row| !begins_behind(row, tail));
    if !rows.live.is_empty() && !all_before_was_given_back(image, Belief::Cache, &rows) {
        return None;
    }
    let by_checkpoint = image.checkpoint.map(|checkpoint| checkpoint.spot());
    let mut durable = image.live.synced.into_iter().chain(by_checkpoint).max().unwrap_or_default();
    if run.flags & FLAG_UNSYNCED_FILES != 0 {
        durable = rows.live.first().map_or(durable, |row| row.header.beginning());
    }
    let next = run.next.filter(|next| rows.live.iter().all(|row| row.header.base < next.base));
    Some(InUse {
        known_gaps: missing_numbers(&rows.live, next),
        live: rows.live,
        spares: rows.spares.len() + rows.stale.len(),
        tail,
        durable: durable.min(tail),
        evicted: evicted(image, Belief::Cache),
    })
}
