//! Stretches: ranges of messages that a consumer's cursor skipped without a delivery.
//!
//! A jump moves the cursor to the end of the queue and makes a stretch of the messages that it
//! skips. Stretches are kept in memory only. An opening restores them as the numbers between the
//! place and the highest done number that are not done.

use std::collections::VecDeque;

use crate::format::Spot;

/// A range of skipped messages. None of them is open, except those that an earlier run delivered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeftBehind {
    /// The next message to deliver, or a gap before it.
    pub(crate) spot: Spot,
    /// The end of the segment that contains the spot; the spot's position if that is not known.
    pub(crate) segment_end: u64,
    /// The number after the last one.
    pub(crate) end: u64,
}

/// The stretches in the order of their numbers. No two overlap. A read takes the first or the last.
#[derive(Debug, Default)]
pub(crate) struct Stretches {
    list: VecDeque<LeftBehind>,
    /// Messages from this number on are fresh; lower ones belong to the backlog.
    fresh_from: u64,
}

impl Stretches {
    /// The stretches are sorted, do not overlap, and are the backlog's.
    #[cfg(any(test, fuzzing, mmq_holds))]
    fn check(&self) {
        for left in &self.list {
            let (first, end, fresh_from) = (left.spot.seq, left.end, self.fresh_from);
            holds!(first < end, "something waits in the stretch from {first} to {end}");
            holds!(end <= fresh_from, "the stretch to {end} lies before {fresh_from}, the fresh");
            holds!(
                left.spot.position <= left.segment_end,
                "the spot of a stretch, {:?}, lies before the end of its segment, {}",
                left.spot,
                left.segment_end
            );
        }
        for (left, next) in self.list.iter().zip(self.list.iter().skip(1)) {
            let (end, first) = (left.end, next.spot.seq);
            holds!(end <= first, "a stretch ends at {end}, before the next begins at {first}");
            holds!(
                left.spot.position < next.spot.position,
                "stretches lie in the order of their positions: {left:?} and {next:?}"
            );
        }
    }

    pub(super) fn first(&self) -> Option<&LeftBehind> {
        self.list.front()
    }

    /// The number behind the last message that was left.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) fn last_end(&self) -> u64 {
        self.list.back().map_or(0, |left| left.end)
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn get(&self, at: usize) -> Option<LeftBehind> {
        self.list.get(at).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LeftBehind> {
        self.list.iter()
    }

    /// Whether the message belongs to the backlog.
    pub(super) fn is_backlog(&self, seq: u64) -> bool {
        seq < self.fresh_from
    }

    pub(super) fn fresh_from(&self) -> u64 {
        self.fresh_from
    }

    /// Moves messages below the number to the backlog.
    pub(super) fn raise_fresh_from(&mut self, seq: u64) {
        self.fresh_from = self.fresh_from.max(seq);
    }

    /// Adds `stretch`, which is not empty; the caller moves the cursor to its end.
    pub(super) fn leave(&mut self, stretch: LeftBehind) {
        self.fresh_from = stretch.end;
        match self.list.back_mut() {
            // No message was delivered between the two stretches.
            Some(last) if last.end == stretch.spot.seq => last.end = stretch.end,
            _ => self.list.push_back(stretch),
        }
        check!(self.check());
    }

    /// Moves the start of a stretch to `spot`, after the messages before it were delivered or
    /// reported. Removes a stretch that is empty then, and returns true.
    pub(super) fn advance(&mut self, at: usize, spot: Spot, segment_end: u64) -> bool {
        let Some(stretch) = self.list.get_mut(at) else {
            return true;
        };
        holds!(
            spot.seq >= stretch.spot.seq && spot.position >= stretch.spot.position,
            "a stretch advances from {:?} to {spot:?}",
            stretch.spot
        );
        (stretch.spot, stretch.segment_end) = (spot, segment_end);
        let is_over = spot.seq >= stretch.end;
        if is_over {
            self.list.remove(at);
        }
        check!(self.check());
        is_over
    }

    /// Replaces the stretches; the caller moves the cursor to `fresh_from`.
    pub(super) fn set(&mut self, list: Vec<LeftBehind>, fresh_from: u64) {
        *self = Stretches { list: list.into(), fresh_from };
        check!(self.check());
    }
}
