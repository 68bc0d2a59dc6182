//! What a consumer has handed out and not yet seen acknowledged.
//!
//! Every number from the stored place up to the cursor is in exactly one of three states: *open*
//! (handed out, or given back), *done* (acknowledged, taken, or told as a gap), or neither because
//! it is passed over without being told (padding has no number). The stored place is the lowest
//! open message; with none open it is the cursor's. Numbers that are done beyond the place are kept
//! as ranges, whose count is bounded by the open messages between them. After a reopening ranges
//! may lie beyond the cursor: what it finds there is passed over.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Gap;
use crate::format::Spot;
use crate::index::AcksRow;
use crate::read::Cursor;
use crate::storage::StorageFile;

/// A message that was handed out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) position: u64,
    /// End of the segment its record begins in.
    pub(crate) segment_end: u64,
    pub(crate) attempts: u32,
}

#[derive(Debug)]
pub(crate) struct Ledger<F> {
    /// Deliveries of an earlier epoch were called off by a seek.
    pub(crate) epoch: u64,
    /// How many may be in flight.
    pub(crate) limit: Option<u32>,
    open: BTreeMap<u64, Open>,
    /// Those of `open` that were given back.
    returned: BTreeSet<u64>,
    done: Ranges,
    /// Reads again what was given back.
    pub(crate) again: Cursor<F>,
    slot: Option<AcksRow<F>>,
    /// No row for the acknowledgements could be had; so many changes ago it was last asked for.
    refused: u32,
    /// `done` is not what is stored.
    changed: bool,
}

impl<F: StorageFile> Ledger<F> {
    /// With these ranges done.
    pub(crate) fn new(done: &[(u64, u64)], slot: Option<AcksRow<F>>) -> Ledger<F> {
        let mut ranges = Ranges::default();
        for (first, last) in done {
            ranges.insert(*first, *last);
        }
        Ledger {
            epoch: 0,
            limit: None,
            open: BTreeMap::new(),
            returned: BTreeSet::new(),
            done: ranges,
            again: Cursor::new(Spot::default()),
            slot,
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

    /// The message given back that comes next.
    pub(crate) fn first_returned(&self) -> Option<(u64, Open)> {
        let seq = *self.returned.first()?;
        self.open.get(&seq).map(|open| (seq, *open))
    }

    /// The stored place, when a message before the cursor is open.
    pub(crate) fn lowest(&self) -> Option<Spot> {
        self.open.first_key_value().map(|(seq, open)| Spot { position: open.position, seq: *seq })
    }

    pub(crate) fn lowest_segment_end(&self) -> Option<u64> {
        self.open.first_key_value().map(|(_, open)| open.segment_end)
    }

    /// Hands a new message out.
    pub(crate) fn hand_out(&mut self, seq: u64, position: u64, segment_end: u64) {
        self.open.insert(seq, Open { position, segment_end, attempts: 1 });
    }

    /// Hands one out again; returns how often that was done with it.
    pub(crate) fn hand_out_again(&mut self, seq: u64) -> u32 {
        self.returned.remove(&seq);
        self.open.get_mut(&seq).map_or(1, |open| {
            open.attempts = open.attempts.saturating_add(1);
            open.attempts
        })
    }

    /// Takes a message back; false when it is not in flight.
    pub(crate) fn give_back(&mut self, seq: u64) -> bool {
        self.open.contains_key(&seq) && self.returned.insert(seq)
    }

    /// The message is done. False when it is not open.
    pub(crate) fn finish(&mut self, seq: u64) -> bool {
        if self.open.remove(&seq).is_none() {
            return false;
        }
        self.returned.remove(&seq);
        self.note_done(seq, seq);
        true
    }

    /// These numbers, none of them open, are done.
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

    /// Those of the numbers given back that lie in the gap which begins at the lowest of them: they
    /// will never come. Told as one gap as far as they follow each other.
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

    /// The pieces of a gap that the consumer has not dealt with.
    pub(crate) fn untold_of(&self, gap: Gap) -> Vec<Gap> {
        let pieces = self.done.gaps_within(gap.first, gap.last).into_iter();
        pieces.map(|(first, last)| Gap { first, last, cause: gap.cause }).collect()
    }

    /// A piece of a gap was told, and more of it is left: the place stays before it, and the piece
    /// is remembered.
    pub(crate) fn note_piece_told(&mut self, piece: &Gap) {
        self.done.insert(piece.first, piece.last);
        self.changed = true;
    }

    /// Numbers done within `from .. to`, with `weigh` applied to each range.
    pub(crate) fn done_within(&self, from: u64, to: u64, weigh: impl Fn(u64, u64) -> u64) -> u64 {
        let ranges =
            self.done.0.iter().map(|(first, last)| ((*first).max(from), (last + 1).min(to)));
        ranges.filter(|(first, end)| first < end).map(|(first, end)| weigh(first, end)).sum()
    }

    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        self.done.0.iter().map(|(first, last)| (*first, *last)).collect()
    }

    /// Calls off all deliveries and forgets what is done; what was stored of it is cleared.
    pub(crate) fn clear(&mut self) {
        self.epoch += 1;
        self.open.clear();
        self.returned.clear();
        self.done.0.clear();
        self.again.let_go();
        if let Some(slot) = &mut self.slot {
            slot.cleared();
        }
        self.changed = false;
    }

    /// Forgets what lies before the place. True when the rest is not what is stored.
    pub(crate) fn forget_before(&mut self, place: Spot) -> bool {
        self.done.forget_before(place.seq);
        self.changed
    }

    /// Stores what is done beyond the `place` that is stored. `make_room` is asked for a row when
    /// there is none.
    pub(crate) fn store(&mut self, place: Spot, make_room: impl FnOnce() -> Option<AcksRow<F>>) {
        if self.slot.is_none() && self.refused == 0 {
            self.slot = make_room();
        }
        match &mut self.slot {
            Some(slot) => {
                slot.store(place.seq, self.done.0.iter().map(|(first, last)| (*first, *last)));
                self.changed = false;
            }
            // Remembered in memory alone. Asked again now and then: space may have been given back.
            None => self.refused = (self.refused + 1) % 1024,
        }
    }

    /// What is done was taken over from elsewhere and is not stored yet.
    pub(crate) fn mark_changed(&mut self) {
        self.changed = true;
    }
}

/// Ranges of numbers, apart from each other.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn range_of(&self, seq: u64) -> Option<(u64, u64)> {
        self.0
            .range(..=seq)
            .next_back()
            .map(|(first, last)| (*first, *last))
            .filter(|(_, last)| *last >= seq)
    }

    fn contains(&self, seq: u64) -> bool {
        self.range_of(seq).is_some()
    }

    /// Adds a range; it may overlap others.
    fn insert(&mut self, mut first: u64, mut last: u64) {
        if let Some((before, end)) = self.range_of(first.saturating_sub(1)) {
            first = before;
            last = last.max(end);
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
    fn gaps_within(&self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut from = first;
        let start = self.range_of(first).map_or(first, |(start, _)| start);
        for (begin, end) in self.0.range(start..=last) {
            if *begin > from {
                gaps.push((from, begin - 1));
            }
            from = from.max(end + 1);
        }
        if from <= last {
            gaps.push((from, last));
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_are_the_numbers_that_were_put_in() {
        let mut progress = 1u64;
        let mut random = |bound: u64| {
            progress = progress
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (progress >> 33) % bound
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
                let gaps: BTreeSet<u64> =
                    ranges.gaps_within(20, 70).into_iter().flat_map(|(a, b)| a..=b).collect();
                let wanted: BTreeSet<u64> =
                    (20..=70).filter(|number| !numbers.contains(number)).collect();
                assert_eq!(gaps, wanted);
            }
        }
    }
}
