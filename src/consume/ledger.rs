//! The messages that a consumer has handed out and that are not acknowledged yet.
//!
//! Every number from the stored place up to the cursor is either *open* (handed out, or given back)
//! or *done* (acknowledged, taken, or told as a gap). The stored place is the lowest open message;
//! with none open it is the cursor's spot. Done numbers beyond the place are kept as ranges, whose
//! count the open messages between them bound. After a reopening, ranges may lie beyond the cursor,
//! which steps over the messages in them.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Gap;
use crate::format::{NumberRange, Spot};
use crate::index::AcksRow;
use crate::read::Cursor;
use crate::storage::StorageFile;

/// A message that was handed out and is not done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) position: u64,
    /// End of the segment that its record begins in.
    pub(crate) segment_end: u64,
    /// How often it was handed out.
    pub(crate) attempts: u32,
}

#[derive(Debug)]
pub(crate) struct Ledger<F> {
    /// Raised by each seek, which calls off the deliveries of earlier epochs.
    pub(crate) epoch: u64,
    /// The most messages in flight; `None`: any number.
    pub(crate) limit: Option<u32>,
    open: BTreeMap<u64, Open>,
    /// The open numbers that were given back.
    returned: BTreeSet<u64>,
    /// The done numbers beyond the place.
    done: Ranges,
    /// Reads the messages that were given back.
    pub(crate) again: Cursor<F>,
    /// Where `done` is stored.
    acks_row: Option<AcksRow<F>>,
    /// Changes since the index refused a row; 0: it may be asked for one.
    refused: u32,
    /// `done` differs from what is stored.
    changed: bool,
}

impl<F: StorageFile> Ledger<F> {
    /// A ledger with the numbers in `done` done.
    pub(crate) fn new(done: &[NumberRange], acks_row: Option<AcksRow<F>>) -> Ledger<F> {
        let mut ranges = Ranges::default();
        for numbers in done {
            ranges.insert(numbers.first, numbers.last);
        }
        Ledger {
            epoch: 0,
            limit: None,
            open: BTreeMap::new(),
            returned: BTreeSet::new(),
            done: ranges,
            again: Cursor::new(Spot::default()),
            acks_row,
            refused: 0,
            changed: false,
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.open.len() - self.returned.len()
    }

    pub(crate) fn may_hand_out(&self) -> bool {
        self.limit.is_none_or(|limit| self.in_flight() < limit as usize)
    }

    /// The oldest message that was given back.
    pub(crate) fn first_returned(&self) -> Option<(u64, Open)> {
        let seq = *self.returned.first()?;
        self.open.get(&seq).map(|open| (seq, *open))
    }

    /// The spot of the lowest open message: the place to store. `None` when none is open.
    pub(crate) fn lowest(&self) -> Option<Spot> {
        self.open.first_key_value().map(|(seq, open)| Spot { position: open.position, seq: *seq })
    }

    /// The end of the segment that the lowest open message begins in.
    pub(crate) fn lowest_segment_end(&self) -> Option<u64> {
        self.open.first_key_value().map(|(_, open)| open.segment_end)
    }

    /// Opens a message that is handed out for the first time.
    pub(crate) fn hand_out(&mut self, seq: u64, position: u64, segment_end: u64) {
        self.open.insert(seq, Open { position, segment_end, attempts: 1 });
    }

    /// Hands a message out again. Returns how often it was handed out.
    pub(crate) fn hand_out_again(&mut self, seq: u64) -> u32 {
        self.returned.remove(&seq);
        self.open.get_mut(&seq).map_or(1, |open| {
            open.attempts = open.attempts.saturating_add(1);
            open.attempts
        })
    }

    /// Gives a message back. False when it is not in flight.
    pub(crate) fn give_back(&mut self, seq: u64) -> bool {
        self.open.contains_key(&seq) && self.returned.insert(seq)
    }

    /// Makes an open message done. False when it is not open.
    pub(crate) fn finish(&mut self, seq: u64) -> bool {
        if self.open.remove(&seq).is_none() {
            return false;
        }
        self.returned.remove(&seq);
        self.note_done(seq, seq);
        true
    }

    /// Makes numbers done of which none is open. Before the lowest open message nothing is kept.
    pub(crate) fn note_done(&mut self, first: u64, last: u64) {
        let stays = self.open.first_key_value().is_some_and(|(lowest, _)| *lowest < first);
        if stays {
            self.done.insert(first, last);
            self.changed = true;
        }
    }

    pub(crate) fn is_done(&self, seq: u64) -> bool {
        self.done.contains(seq)
    }

    /// The messages that were given back are lost in `gap`, which begins at the lowest of them:
    /// makes them done, and returns the gap to tell, as far as their numbers follow each other.
    pub(crate) fn lose_returned(&mut self, gap: &Gap) -> Gap {
        let mut last = gap.first;
        while last < gap.last && self.returned.contains(&(last + 1)) {
            last += 1;
        }
        for seq in gap.first..=last {
            self.finish(seq);
        }
        Gap { last, ..*gap }
    }

    /// The pieces of a gap that are not done, so not told yet.
    pub(crate) fn untold_of(&self, gap: Gap) -> Vec<Gap> {
        let pieces = self.done.not_in(gap.first, gap.last).into_iter();
        pieces.map(|NumberRange { first, last }| Gap { first, last, cause: gap.cause }).collect()
    }

    /// Makes a piece of a gap done that was told, while more of the gap is left: the place stays
    /// before the gap.
    pub(crate) fn note_piece_told(&mut self, piece: &Gap) {
        self.done.insert(piece.first, piece.last);
        self.changed = true;
    }

    /// The done ranges.
    pub(crate) fn done(&self) -> impl Iterator<Item = NumberRange> + '_ {
        self.done.iter()
    }

    /// Calls off all deliveries and forgets what is done. The caller has cleared the stored ranges.
    pub(crate) fn clear(&mut self) {
        self.epoch += 1;
        self.open.clear();
        self.returned.clear();
        self.done.0.clear();
        self.again.let_go();
        if let Some(row) = &mut self.acks_row {
            row.cleared();
        }
        self.changed = false;
    }

    /// Forgets what lies before `place`. True when the rest differs from what is stored.
    pub(crate) fn forget_before(&mut self, place: Spot) -> bool {
        self.done.forget_before(place.seq);
        self.changed
    }

    /// Stores the done ranges beyond `place`, the stored place. Asks `make_row` for a row when
    /// there is none.
    pub(crate) fn store(&mut self, place: Spot, make_row: impl FnOnce() -> Option<AcksRow<F>>) {
        if self.acks_row.is_none() && self.refused == 0 {
            self.acks_row = make_row();
        }
        match &mut self.acks_row {
            Some(row) => {
                row.store(place.seq, self.done.iter());
                self.changed = false;
            }
            // The ranges stay in memory alone. Every 1024th change asks for a row again: space may
            // have been given back.
            None => self.refused = (self.refused + 1) % 1024,
        }
    }

    /// The consumer was removed: its row is given to others, and one that begins again has no
    /// limit. (The epoch stays, by which older deliveries are known.)
    pub(crate) fn let_go(&mut self) {
        self.clear();
        self.acks_row = None;
        self.limit = None;
    }

    /// The done ranges were taken over from another consumer and are not stored yet.
    pub(crate) fn mark_changed(&mut self) {
        self.changed = true;
    }
}

/// Ranges of numbers, first to last. No two overlap or touch.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn iter(&self) -> impl Iterator<Item = NumberRange> + '_ {
        self.0.iter().map(|(first, last)| NumberRange { first: *first, last: *last })
    }

    fn range_of(&self, seq: u64) -> Option<NumberRange> {
        let (first, last) = self.0.range(..=seq).next_back()?;
        (*last >= seq).then_some(NumberRange { first: *first, last: *last })
    }

    fn contains(&self, seq: u64) -> bool {
        self.range_of(seq).is_some()
    }

    /// Adds a range, which may overlap others.
    fn insert(&mut self, mut first: u64, mut last: u64) {
        if let Some(before) = self.range_of(first.saturating_sub(1)) {
            first = before.first;
            last = last.max(before.last);
        }
        while let Some((other, end)) =
            self.0.range(first..=last.saturating_add(1)).next().map(|(a, b)| (*a, *b))
        {
            self.0.remove(&other);
            last = last.max(end);
        }
        self.0.insert(first, last);
    }

    fn forget_before(&mut self, seq: u64) {
        while let Some(entry) = self.0.first_entry() {
            let (first, last) = (*entry.key(), *entry.get());
            if first >= seq {
                break;
            }
            entry.remove();
            if last >= seq {
                self.0.insert(seq, last);
            }
        }
    }

    /// The parts of `first ..= last` that are in no range.
    fn not_in(&self, first: u64, last: u64) -> Vec<NumberRange> {
        let mut parts = Vec::new();
        let mut from = first;
        let start = self.range_of(first).map_or(first, |range| range.first);
        for (begin, end) in self.0.range(start..=last) {
            if *begin > from {
                parts.push(NumberRange { first: from, last: begin - 1 });
            }
            from = from.max(end + 1);
        }
        if from <= last {
            parts.push(NumberRange { first: from, last });
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_are_the_numbers_that_were_put_in() {
        let mut state = 1u64;
        let mut random = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for _ in 0..200 {
            let (mut ranges, mut numbers) = (Ranges::default(), BTreeSet::new());
            for _ in 0..60 {
                let first = random(100);
                let last = first + random(6);
                if random(8) == 0 {
                    ranges.forget_before(first);
                    numbers.retain(|number| *number >= first);
                } else {
                    ranges.insert(first, last);
                    numbers.extend(first..=last);
                }
                let held: BTreeSet<u64> =
                    ranges.0.iter().flat_map(|(first, last)| *first..=*last).collect();
                assert_eq!(held, numbers);
                let apart = ranges
                    .0
                    .iter()
                    .zip(ranges.0.iter().skip(1))
                    .all(|((_, end), (begin, _))| end + 1 < *begin);
                assert!(apart, "{:?}", ranges.0);
                let between: BTreeSet<u64> = ranges
                    .not_in(20, 70)
                    .into_iter()
                    .flat_map(|part| part.first..=part.last)
                    .collect();
                let wanted: BTreeSet<u64> =
                    (20..=70).filter(|number| !numbers.contains(number)).collect();
                assert_eq!(between, wanted);
            }
        }
    }
}
