//! The rows with each consumer's delivered messages and their counts of failed attempts.

use std::ops::Range;

use crate::format::{
    ATTEMPTS_ROW_LEN, ATTEMPTS_ROWS, ATTEMPTS_SLOT_LEN, Attempts, Place, index_at,
};
use crate::index::image::IndexImage;
use crate::index::index_extents::Extents;
use crate::index::{AcksRowIs, Index};
use crate::storage::sheet::Sheet;
use crate::storage::{Storage, StorageFile};

/// The row of one consumer's attempts. The consumer owns it, under its lock.
#[derive(Debug)]
pub(crate) struct AttemptsRow<F> {
    sheet: Sheet<F>,
    offset: usize,
    seed: u32,
    owner: u32,
    number: u64,
}

impl<F: StorageFile> AttemptsRow<F> {
    /// Stores the attempts in the older slot: the newer one stays whole until this one is. Returns
    /// whether all counts fit.
    pub(crate) fn store(&mut self, below: u64, counts: impl Iterator<Item = (u64, u32)>) -> bool {
        self.number += 1;
        let (number, owner) = (self.number, self.owner);
        let attempts = Attempts { number, owner, below, counts: Vec::new() };
        let mut bytes = [0; ATTEMPTS_SLOT_LEN];
        let (len, all_fit) = attempts.encode(counts, self.seed, &mut bytes);
        let slot = self.offset + (number & 1) as usize * ATTEMPTS_SLOT_LEN;
        self.sheet.copy_in(slot, &bytes[..len]);
        all_fit
    }
}

/// Offset of a row of attempts in the file.
fn row_at(row: usize) -> usize {
    index_at::ATTEMPTS + row * ATTEMPTS_ROW_LEN
}

impl<F> Extents<F> {
    /// The row of attempts that the consumer owns.
    pub(super) fn attempts_row_of(&self, row: u32) -> Option<usize> {
        let is_own = |stored: &Option<Attempts>| stored.as_ref().is_some_and(|it| it.owner == row);
        self.attempts_rows.iter().position(is_own)
    }
}

impl<S: Storage> Index<S> {
    /// Returns the row for the consumer's attempts and its content: its own row, or a free one.
    /// `None` when other consumers have all rows.
    pub(crate) fn attempts_row(
        &self,
        row: u32,
        name: &str,
    ) -> Option<(AttemptsRow<S::File>, Attempts)> {
        let mut extents = self.extents.lock();
        let own = extents.attempts_row_of(row);
        let rows = &mut extents.attempts_rows;
        rows.resize(ATTEMPTS_ROWS, None);
        let at = own.or_else(|| rows.iter().position(Option::is_none))?;
        if own.is_none() {
            self.sheet.zero(row_at(at), ATTEMPTS_ROW_LEN);
        }
        let stored =
            rows.get_mut(at)?.get_or_insert_with(|| Attempts { owner: row, ..Attempts::default() });
        let attempts_row = AttemptsRow {
            sheet: self.sheet.share(),
            offset: row_at(at),
            seed: Place::seed(&self.queue_id, name.as_bytes()),
            owner: row,
            number: stored.number,
        };
        holds!(stored.owner == row, "the row of counts at {at} is that of consumer {row}");
        let stored = stored.clone();
        check!(extents.check());
        Some((attempts_row, stored))
    }

    /// Ends the run before for the consumer's attempts: [`Attempts::end_run`].
    pub(crate) fn end_attempts(
        &self,
        row: u32,
        name: &str,
        died_with: Option<impl Iterator<Item = Range<u64>>>,
    ) {
        if self.extents.lock().attempts_row_of(row).is_none() {
            return;
        }
        let Some((mut attempts_row, mut stored)) = self.attempts_row(row, name) else {
            return;
        };
        stored.end_run(died_with);
        // Counts that do not fit are those of the highest numbers, which may be lost.
        attempts_row.store(stored.below, stored.counts.iter().copied());
        stored.number = attempts_row.number;
        let mut extents = self.extents.lock();
        if let Some(at) = extents.attempts_row_of(row) {
            extents.attempts_rows[at] = Some(stored);
        }
    }

    /// Clears the row of attempts `at`. The caller syncs the index.
    pub(super) fn clear_attempts(
        &self,
        extents: &mut Extents<S::File>,
        at: usize,
        then: AcksRowIs,
    ) {
        if let Some(stored) = extents.attempts_rows.get_mut(at) {
            match stored {
                Some(Attempts { below, counts, .. }) if then == AcksRowIs::Kept => {
                    *below = 0;
                    counts.clear();
                }
                stored => *stored = None,
            }
            self.sheet.zero(row_at(at), ATTEMPTS_ROW_LEN);
        }
    }

    /// Clears the attempts of an earlier consumer that had this row and this `seed`. Returns false
    /// if there were none.
    pub(super) fn clear_former_attempts(
        &self,
        owned: &[Option<Attempts>],
        row: u32,
        seed: u32,
    ) -> bool {
        let mut has_cleared = false;
        for at in (0..ATTEMPTS_ROWS).filter(|at| !matches!(owned.get(*at), Some(Some(_)))) {
            let mut bytes = [0; ATTEMPTS_ROW_LEN];
            self.sheet.copy_out(row_at(at), &mut bytes);
            let mut slots = bytes.chunks(ATTEMPTS_SLOT_LEN);
            if slots.any(|slot| Attempts::decode(slot, row, seed).is_some()) {
                self.sheet.zero(row_at(at), ATTEMPTS_ROW_LEN);
                has_cleared = true;
            }
        }
        has_cleared
    }
}

impl IndexImage {
    /// Reads the rows of attempts; needs the consumers.
    pub(super) fn read_attempts(&mut self, bytes: &[u8], queue_id: &[u8; 16]) {
        for row in 0..ATTEMPTS_ROWS {
            let slots = [row_at(row), row_at(row) + ATTEMPTS_SLOT_LEN];
            let found = self.consumers.iter().flat_map(|consumer| {
                let seed = Place::seed(queue_id, consumer.name.as_bytes());
                slots.into_iter().filter_map(move |slot| {
                    Attempts::decode(bytes.get(slot..)?, consumer.row, seed)
                })
            });
            self.attempts_rows.push(found.max_by_key(|slot| slot.number));
        }
    }

    /// Encodes the rows of attempts into an index file.
    pub(super) fn encode_attempts(&self, queue_id: &[u8; 16], mut put: impl FnMut(usize, &[u8])) {
        for (row, stored) in self.attempts_rows.iter().enumerate() {
            let Some((stored, consumer)) =
                stored.as_ref().and_then(|stored| Some((stored, self.owner(stored.owner)?)))
            else {
                continue;
            };
            let seed = Place::seed(queue_id, consumer.name.as_bytes());
            let mut slot = [0; ATTEMPTS_SLOT_LEN];
            stored.encode(stored.counts.iter().copied(), seed, &mut slot);
            put(row_at(row) + (stored.number & 1) as usize * ATTEMPTS_SLOT_LEN, &slot);
        }
    }
}
