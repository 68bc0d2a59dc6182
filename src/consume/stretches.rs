//! What a consumer's cursor has left behind: stretches of messages that were not handed out.
//!
//! A jump moves the cursor to the end of the queue and leaves what waited as a stretch. Stretches
//! are kept in memory alone. After an opening they are what lies between the place and the highest
//! number that is done.

use std::collections::VecDeque;

use crate::format::Spot;

/// Messages that wait and were passed by. None of them is open, but what an earlier run was handed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeftBehind {
    /// The next message to hand out, or a gap before it.
    pub(crate) spot: Spot,
    /// The end of the segment that the spot lies in; the spot's position where it is not known.
    pub(crate) segment_end: u64,
    /// The number behind the last one.
    pub(crate) end: u64,
}

/// The stretches in the order of their numbers. No two overlap. They are read from either end.
#[derive(Debug, Default)]
pub(crate) struct Stretches {
    list: VecDeque<LeftBehind>,
    /// Messages from this number on are fresh, the others are the backlog's.
    fresh_from: u64,
}

impl Stretches {
    pub(super) fn first(&self) -> Option<&LeftBehind> {
        self.list.front()
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

    /// Whether the message is the backlog's.
    pub(super) fn is_backlog(&self, seq: u64) -> bool {
        seq < self.fresh_from
    }

    pub(super) fn fresh_from(&self) -> u64 {
        self.fresh_from
    }

    /// Messages below the number are not fresh any more.
    pub(super) fn raise_fresh_from(&mut self, seq: u64) {
        self.fresh_from = self.fresh_from.max(seq);
    }

    /// The cursor moves to the end of `stretch` and leaves it behind. Something waits in it.
    pub(super) fn leave(&mut self, stretch: LeftBehind) {
        self.fresh_from = stretch.end;
        match self.list.back_mut() {
            // Nothing was handed out between the two.
            Some(last) if last.end == stretch.spot.seq => last.end = stretch.end,
            _ => self.list.push_back(stretch),
        }
    }

    /// The messages of the stretch before `spot` were handed out or reported. One in which nothing
    /// waits any more goes: true then.
    pub(super) fn advance(&mut self, at: usize, spot: Spot, segment_end: u64) -> bool {
        let Some(stretch) = self.list.get_mut(at) else {
            return true;
        };
        (stretch.spot, stretch.segment_end) = (spot, segment_end);
        let is_over = spot.seq >= stretch.end;
        if is_over {
            self.list.remove(at);
        }
        is_over
    }

    /// The cursor moves to `fresh_from`, and these are left behind.
    pub(super) fn set(&mut self, list: Vec<LeftBehind>, fresh_from: u64) {
        *self = Stretches { list: list.into(), fresh_from };
    }
}
