//! What one consumer has dealt with, by the model.

use std::collections::BTreeSet;

#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    /// Everything below.
    pub(super) seq: u64,
    /// At or behind it.
    pub(super) done: BTreeSet<u64>,
    pub(super) handed_out: BTreeSet<u64>,
    pub(super) given_back: BTreeSet<u64>,
    /// Dealt with before the last flush.
    pub(super) durable: BTreeSet<u64>,
    /// It was put elsewhere since the last flush.
    pub(super) has_moved: bool,
}

impl Place {
    pub(super) fn at(seq: u64) -> Place {
        Place { seq, has_moved: true, ..Place::default() }
    }

    /// The next one that was never handed out.
    pub(super) fn fresh(&self) -> u64 {
        let taken = |seq: &u64| {
            self.done.contains(seq)
                || self.handed_out.contains(seq)
                || self.given_back.contains(seq)
        };
        (self.seq..).find(|seq| !taken(seq)).unwrap_or(u64::MAX)
    }

    /// What came is what was to come: the next one, or one that was given back.
    pub(super) fn comes(&mut self, seq: u64) {
        let is_next = seq == self.fresh();
        assert!(self.given_back.remove(&seq) || is_next, "{seq} comes to {self:?}");
    }

    /// Nothing came.
    pub(super) fn is_at_end(&self, next: u64) {
        assert!(self.given_back.is_empty() && self.fresh() == next, "{next} and {self:?}");
    }

    pub(super) fn finish(&mut self, seq: u64) {
        self.handed_out.remove(&seq);
        assert!(self.done.insert(seq), "{seq} twice");
        while self.done.remove(&self.seq) {
            self.seq += 1;
        }
    }
}
