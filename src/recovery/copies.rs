//! Handles two files of one segment: somebody copied one of them, or restored an older copy.

use crate::error::{Error, Result};
use crate::format::{Spot, segment_name};
use crate::recovery::rows::Rows;
use crate::recovery::walk::{WalkRules, walk};
use crate::segment::{Row, quarantine};
use crate::storage::Storage;

/// Of several files of one segment, keeps the one whose records reach furthest, and quarantines the
/// others: if the writer stored to one and a reader read another, the reader would miss records.
pub(super) fn leave_one_file_of_each<S: Storage>(storage: &S, rows: &mut Rows) -> Result<()> {
    rows.sort();
    let mut kept: Vec<Row> = Vec::with_capacity(rows.live.len());
    for row in rows.live.drain(..) {
        let is_copy = |last: &&mut Row| {
            (last.header.life, last.header.base) == (row.header.life, row.header.base)
        };
        let Some(last) = kept.last_mut().filter(is_copy) else {
            kept.push(row);
            continue;
        };
        let is_further = reach(storage, &row)? > reach(storage, last)?;
        let other = if is_further { std::mem::replace(last, row) } else { row };
        let _ = quarantine(storage, &segment_name(other.slot));
        rows.foreign_slots.push(other.slot);
    }
    rows.live = kept;
    Ok(())
}

/// The position up to which the segment's records validate.
fn reach<S: Storage>(storage: &S, row: &Row) -> Result<u64> {
    let start = Spot { position: row.header.base, seq: row.header.first_seq };
    let rules = WalkRules { search: true, whole_before: true, published: u64::MAX };
    let walked = walk(storage, std::slice::from_ref(row), &[], start, rules);
    let failed = |(name, error): (String, _)| Error::io("read", storage.path().join(name), error);
    Ok(walked.map_err(failed)?.tail.position)
}
