//! Extents: the ranges of the file with rows of segments, consumers and acknowledgements.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::{
    Attempts, ConsumerAt, Extent, ExtentKind, NAME_ROW_LEN, PLACE_PAIR_LEN, index_at,
};
use crate::index::image::{AcksOwner, IndexImage};
use crate::storage::StorageFile;
use crate::storage::sheet::Sheet;

/// The extents of one index file, and the owners of their rows.
#[derive(Debug)]
pub(super) struct Extents<F> {
    pub(super) sheets: Vec<(Extent, Sheet<F>)>,
    pub(super) file_len: u64,
    /// Rows of consumers that exist.
    pub(super) consumers: BTreeSet<u32>,
    /// Rows of removed consumers, each with the ticket of the removal
    /// ([`Syncs::ticket`](crate::index::syncs::Syncs::ticket)).
    pub(super) removed: BTreeMap<u32, u64>,
    /// The owner of each row of acknowledgements.
    pub(super) acks_rows: Vec<Option<AcksOwner>>,
    /// The rows of attempts as the opening read them, each with its owner.
    pub(super) attempts_rows: Vec<Option<Attempts>>,
    /// The consumer's row of the owner of each forwarder's row.
    pub(super) forward_rows: Vec<Option<u32>>,
}

impl<F> Extents<F> {
    /// Extents lie in the file and apart, and each row has one owner.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) fn check(&self) {
        let file_len = self.file_len;
        let mut extents: Vec<Extent> = self.sheets.iter().map(|(extent, _)| *extent).collect();
        extents.sort_unstable_by_key(|extent| extent.offset);
        for extent in &extents {
            let end = extent.end();
            holds!(end <= file_len, "an extent ends in the file, of {file_len} bytes: {extent:?}");
            holds!(extent.rows > 0, "an extent has rows: {extent:?}");
        }
        for (extent, next) in extents.iter().zip(extents.iter().skip(1)) {
            let (end, begin) = (extent.end(), u64::from(next.offset));
            holds!(end <= begin, "an extent ends at {end}, before {begin}, where another begins");
        }
        let rows = rows_of(&self.sheets, ExtentKind::Consumers);
        let last = self.consumers.last().copied();
        holds!(last.is_none_or(|last| last < rows), "consumers have rows, {last:?} of {rows}");
        let mut owners: Vec<u32> =
            self.acks_rows.iter().flatten().map(|owner| owner.consumer).collect();
        owners.sort_unstable();
        holds!(owners.is_sorted_by(|a, b| a < b), "a consumer has one row of acks: {owners:?}");
        let rows = rows_of(&self.sheets, ExtentKind::Acks) as usize;
        let owned = self.acks_rows.iter().rposition(Option::is_some);
        holds!(owned.is_none_or(|row| row < rows), "owned rows of acks are there: {owned:?}");
        let mut owners: Vec<u32> =
            self.attempts_rows.iter().flatten().map(|stored| stored.owner).collect();
        owners.sort_unstable();
        holds!(owners.is_sorted_by(|a, b| a < b), "a consumer has one row of counts: {owners:?}");
        let mut owners: Vec<u32> = self.forward_rows.iter().flatten().copied().collect();
        owners.sort_unstable();
        holds!(owners.is_sorted_by(|a, b| a < b), "a consumer has one forwarder's row: {owners:?}");
    }

    pub(super) fn of(
        image: &IndexImage,
        sheets: Vec<(Extent, Sheet<F>)>,
        file_len: u64,
    ) -> Extents<F> {
        // (Collecting would sort first, which takes 7 KB of code.)
        let mut consumers = BTreeSet::new();
        consumers.extend(image.consumers.iter().map(|consumer| consumer.row));
        Extents {
            sheets,
            file_len,
            consumers,
            removed: BTreeMap::new(),
            acks_rows: image.acks_rows.clone(),
            attempts_rows: image.attempts_rows.clone(),
            forward_rows: image.forward_rows.iter().map(|row| row.map(|it| it.owner)).collect(),
        }
    }
}

/// The number of rows of `kind` in all extents.
pub(super) fn rows_of<F>(sheets: &[(Extent, Sheet<F>)], kind: ExtentKind) -> u32 {
    sheets.iter().filter(|(extent, _)| extent.kind == kind).map(|(extent, _)| extent.rows).sum()
}

/// The sheet that holds row `row` of `kind`, the row's extent, the extent's offset in the sheet,
/// and the row's number in the extent.
pub(super) fn extent_of<F>(
    sheets: &[(Extent, Sheet<F>)],
    kind: ExtentKind,
    row: u32,
) -> Option<(&Sheet<F>, &Extent, usize, u32)> {
    let (at, row) = find_row(sheets.iter().map(|(extent, _)| extent), kind, row)?;
    let (extent, sheet) = sheets.get(at)?;
    // The first extents lie in the sheet at the file's beginning. Every later extent has its own.
    let offset = extent.offset as usize;
    Some((sheet, extent, if offset < index_at::END { offset } else { 0 }, row))
}

/// The index of the extent that has row `row` of `kind`, and the row's number in it.
pub(super) fn find_row<'a>(
    extents: impl Iterator<Item = &'a Extent>,
    kind: ExtentKind,
    mut row: u32,
) -> Option<(usize, u32)> {
    for (at, extent) in extents.enumerate().filter(|(_, extent)| extent.kind == kind) {
        if row < extent.rows {
            return Some((at, row));
        }
        row -= extent.rows;
    }
    None
}

/// The sheet that holds row `row` of `kind`, and the row's offset in it.
pub(super) fn row_of<F>(
    sheets: &[(Extent, Sheet<F>)],
    kind: ExtentKind,
    row: u32,
) -> Option<(&Sheet<F>, usize)> {
    let (sheet, extent, offset, row) = extent_of(sheets, kind, row)?;
    Some((sheet, offset + row as usize * extent.row_len()))
}

/// The sheet that holds a consumer's row, and the offsets of its parts in it.
pub(super) fn consumer_of<F>(
    sheets: &[(Extent, Sheet<F>)],
    row: u32,
) -> Option<(&Sheet<F>, ConsumerAt)> {
    let (sheet, extent, offset, row) = extent_of(sheets, ExtentKind::Consumers, row)?;
    let at = ConsumerAt::new(row, extent.rows);
    Some((
        sheet,
        ConsumerAt { name: offset + at.name, pair: offset + at.pair, copy: offset + at.copy },
    ))
}

/// Clears a consumer's name and places.
pub(super) fn clear_consumer<F: StorageFile>(sheets: &[(Extent, Sheet<F>)], row: u32) {
    if let Some((sheet, at)) = consumer_of(sheets, row) {
        sheet.copy_in(at.name, &[0; NAME_ROW_LEN]);
        for offset in [at.pair, at.copy] {
            sheet.copy_in(offset, &[0; PLACE_PAIR_LEN]);
        }
    }
}
