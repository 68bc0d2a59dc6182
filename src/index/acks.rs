//! What consumers have acknowledged out of order.

use std::sync::Arc;

use crate::error::Result;
use crate::format::{ACKS_ROW_LEN, ACKS_ROWS, ACKS_SLOT_LEN, Acks, ExtentKind, Place};
use crate::index::Index;
use crate::index::extents::{row_of, rows_of};
use crate::index::image::AcksOwner;
use crate::index::syncs::Syncs;
use crate::storage::sheet::Sheet;
use crate::storage::{Storage, StorageFile};

/// Where one consumer's acknowledged ranges are stored. Owned by that consumer, under its lock.
///
/// The place lies in another sector, and a power cut may leave one that is older than the ranges,
/// back to the one of the last sync. So the slot states everything that is done from that one on:
/// what a flush made durable is never left out of it.
#[derive(Debug)]
pub(crate) struct AcksRow<F> {
    sheet: Sheet<F>,
    offset: usize,
    seed: u32,
    owner: u32,
    number: u64,
    syncs: Arc<Syncs>,
    /// From that number on everything done is stated; the place on the disk is not before it.
    /// `None` when nothing is stated.
    from: Option<u64>,
    /// A later place, and the [mark](Syncs::mark) behind which it is on the disk.
    next_from: Option<(u64, u64)>,
}

impl<F: StorageFile> AcksRow<F> {
    /// Stores the ranges, all of them behind the `place` that is stored, beside those before, which
    /// stay whole until these are.
    pub(crate) fn store(&mut self, place: u64, ranges: impl Iterator<Item = (u64, u64)>) {
        let mut from = self.from.map_or(place, |from| from.min(place));
        match self.next_from {
            Some((next, mark)) if self.syncs.is_past(mark) => {
                from = next;
                self.next_from = None;
            }
            _ => {}
        }
        self.from = Some(from);
        if self.next_from.is_none() {
            self.next_from = Some((place, self.syncs.ticket()));
        }
        // No longer than a range can be told.
        let passed = (from < place)
            .then(|| (from.max(place.saturating_sub(u64::from(u32::MAX))), place - 1));
        self.number = self.number.wrapping_add(1);
        let mut bytes = [0; ACKS_SLOT_LEN];
        let ranges = passed.into_iter().chain(ranges);
        let len = Acks::encode(self.number, self.owner, ranges, self.seed, &mut bytes);
        let slot = self.offset + (self.number & 1) as usize * ACKS_SLOT_LEN;
        self.sheet.copy_in(slot, &bytes[..len]);
    }

    /// Both slots were cleared, durably.
    pub(crate) fn cleared(&mut self) {
        (self.from, self.next_from) = (None, None);
    }
}

/// What becomes of a row of acknowledgements that is cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcksRowIs {
    /// It stays the consumer's.
    Kept,
    /// The consumer is removed: the row is for whoever needs one.
    Free,
}

impl<S: Storage> Index<S> {
    /// The row in which the consumer's acknowledgements are remembered: its own, or a free one.
    /// `None` when there is no room for one.
    pub(crate) fn acks_row(&self, row: u32, name: &str, room: u64) -> Option<AcksRow<S::File>> {
        let mut extents = self.extents.lock();
        let rows = rows_of(&extents.sheets, ExtentKind::Acks) as usize;
        extents.acks_rows.resize(rows, None);
        let own = extents
            .acks_rows
            .iter()
            .position(|owner| owner.is_some_and(|owner| owner.consumer == row));
        let at = match own.or_else(|| extents.acks_rows.iter().position(Option::is_none)) {
            Some(at) => at,
            None => {
                self.add_extent(&mut extents, ExtentKind::Acks, ACKS_ROWS as u32, room).ok()?;
                rows
            }
        };
        let rows = rows_of(&extents.sheets, ExtentKind::Acks) as usize;
        extents.acks_rows.resize(rows, None);
        let owner =
            extents.acks_rows[at].unwrap_or(AcksOwner { consumer: row, number: 0, from: None });
        let (sheet, offset) = row_of(&extents.sheets, ExtentKind::Acks, at as u32)?;
        let seed = Place::seed(&self.queue_id, name.as_bytes());
        if own.is_none() {
            sheet.zero(offset, ACKS_ROW_LEN);
        }
        let slot = AcksRow {
            sheet: sheet.share(),
            offset,
            seed,
            owner: row,
            number: owner.number,
            syncs: Arc::clone(&self.syncs),
            from: owner.from,
            next_from: None,
        };
        extents.acks_rows[at] = Some(owner);
        Some(slot)
    }

    /// Makes it durable that nothing is remembered for the consumer: what it is told from now on
    /// must not be taken for what was acknowledged before.
    pub(crate) fn clear_acks(&self, row: u32, then: AcksRowIs) -> Result<()> {
        {
            let mut extents = self.extents.lock();
            let own = extents
                .acks_rows
                .iter()
                .position(|owner| owner.is_some_and(|owner| owner.consumer == row));
            let Some(at) = own else {
                return Ok(());
            };
            if then == AcksRowIs::Kept {
                // What cannot be made durable is not begun.
                self.poison.check()?;
            }
            if let Some((sheet, offset)) = row_of(&extents.sheets, ExtentKind::Acks, at as u32) {
                sheet.zero(offset, ACKS_ROW_LEN);
            }
            match &mut extents.acks_rows[at] {
                Some(owner) if then == AcksRowIs::Kept => owner.from = None,
                owner => *owner = None,
            }
        }
        if planted!(SeekNotSynced) { Ok(()) } else { self.sync() }
    }
}
