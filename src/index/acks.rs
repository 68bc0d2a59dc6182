//! The rows with the numbers that consumers acknowledged out of order.

use std::sync::Arc;

use crate::error::Result;
use crate::format::{ACKS_ROW_LEN, ACKS_ROWS, ACKS_SLOT_LEN, Acks, ExtentKind, NumberRange, Place};
use crate::index::Index;
use crate::index::image::AcksOwner;
use crate::index::index_extents::{row_of, rows_of};
use crate::index::syncs::Syncs;
use crate::storage::sheet::Sheet;
use crate::storage::{Storage, StorageFile};

/// The row of one consumer's acknowledged ranges. The consumer owns it, under its lock.
///
/// The consumer's place lies in another sector, so after a power cut the place may be older than
/// the ranges, back to the place of the last sync. Therefore the row states every number that is
/// done from that place on, and so keeps every acknowledgement that a flush made durable.
#[derive(Debug)]
pub(crate) struct AcksRow<F> {
    sheet: Sheet<F>,
    offset: usize,
    seed: u32,
    owner: u32,
    number: u64,
    syncs: Arc<Syncs>,
    /// The row states every number that is done from this one on; the place on the disk is not
    /// before it. `None` when the row states no number.
    from: Option<u64>,
    /// A later place, and the [ticket](Syncs::ticket) of its store: it replaces `from` once a sync
    /// has passed the ticket.
    next_from: Option<(u64, u64)>,
}

impl<F: StorageFile> AcksRow<F> {
    /// Stores the done ranges, all of them beyond the stored `place`, in the older slot: the newer
    /// one stays whole until this one is.
    pub(crate) fn store(&mut self, place: u64, ranges: impl Iterator<Item = NumberRange>) {
        let mut from = self.from.map_or(place, |from| from.min(place));
        if planted!(PassedAcksLeftOut) {
            from = place;
        }
        match self.next_from {
            Some((next, ticket)) if self.syncs.is_past(ticket) => {
                from = next;
                self.next_from = None;
            }
            _ => {}
        }
        holds!(from <= place, "acknowledgements are stored from {from}, not behind {place}");
        self.from = Some(from);
        if self.next_from.is_none() {
            self.next_from = Some((place, self.syncs.ticket()));
        }
        // The format has no range longer than `u32::MAX`.
        let passed = (from < place).then(|| NumberRange {
            first: from.max(place.saturating_sub(u64::from(u32::MAX))),
            last: place - 1,
        });
        self.number = self.number.wrapping_add(1);
        let mut bytes = [0; ACKS_SLOT_LEN];
        let ranges = passed.into_iter().chain(ranges);
        let len = Acks::encode(self.number, self.owner, ranges, self.seed, &mut bytes);
        let slot = self.number & 1;
        let slot = self.offset + slot as usize * ACKS_SLOT_LEN;
        self.sheet.copy_in(slot, &bytes[..len]);
    }

    /// Notes that the caller has cleared both slots durably.
    pub(crate) fn cleared(&mut self) {
        (self.from, self.next_from) = (None, None);
    }
}

/// Who owns the ack row after it is cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcksRowIs {
    /// The consumer keeps it.
    Kept,
    /// The consumer was removed: any other consumer may get the row.
    Free,
}

impl<S: Storage> Index<S> {
    /// Returns the row for the consumer's acknowledgements: its own, or a free one. `None` when no
    /// row is free and another extent does not fit.
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
        let acks_row = AcksRow {
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
        check!(extents.check());
        Some(acks_row)
    }

    /// Clears the consumer's rows of acknowledgements and of attempts, durably: no number that it
    /// gets from now on may count as acknowledged or delivered before. A removed consumer's row of
    /// a forwarder goes, too.
    pub(crate) fn clear_acks(&self, row: u32, then: AcksRowIs) -> Result<()> {
        let mut extents = self.extents.lock();
        let own = extents
            .acks_rows
            .iter()
            .position(|owner| owner.is_some_and(|owner| owner.consumer == row));
        let attempts = extents.attempts_row_of(row);
        let forward = then == AcksRowIs::Free && self.clear_forward(&mut extents, row);
        if own.is_none() && attempts.is_none() && !forward {
            return Ok(());
        }
        if then == AcksRowIs::Kept {
            // After a failed sync the cleared row could never be made durable, so it is not
            // cleared.
            self.poison.check()?;
        }
        if let Some(at) = own {
            if let Some((sheet, offset)) = row_of(&extents.sheets, ExtentKind::Acks, at as u32) {
                sheet.zero(offset, ACKS_ROW_LEN);
            }
            match &mut extents.acks_rows[at] {
                Some(owner) if then == AcksRowIs::Kept => owner.from = None,
                owner => *owner = None,
            }
        }
        if let Some(at) = attempts {
            self.clear_attempts(&mut extents, at, then);
        }
        check!(extents.check());
        drop(extents);
        if planted!(SeekNotSynced) { Ok(()) } else { self.sync() }
    }
}
