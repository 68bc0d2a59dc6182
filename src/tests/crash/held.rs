//! What the model knows of one consumer: its place, what it holds, what it has done.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::attempts::Attempts;
use crate::consume::step::DeliveryToken;

/// Whether a consumer would be there after a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    No,
    Perhaps,
    Yes,
}

#[derive(Debug, Clone)]
pub(super) struct ConsumerModel {
    /// Every place it had, as the number of the next message, the present one last.
    pub(super) had: Vec<u64>,
    /// Which of them was flushed last; nothing before counts any more.
    pub(super) flushed: usize,
    pub(super) exists: bool,
    pub(super) durable: Presence,
    /// Where it reads on; its place when nothing is handed out.
    pub(super) cursor: u64,
    /// DeliveryToken out and not acknowledged.
    pub(super) open: BTreeMap<u64, DeliveryToken>,
    /// Those of them that were given back.
    pub(super) returned: BTreeSet<u64>,
    /// It had messages handed out, so its done numbers beyond its place are stored.
    pub(super) delivers: bool,
    /// Its done numbers: taken, acknowledged, or reported in a gap.
    pub(super) finished: Finished,
    /// What was finished when places were last flushed.
    pub(super) kept: Finished,
    pub(super) attempts: Attempts,
}

/// A consumer's done numbers: ranges apart from each other, by their beginnings.
#[derive(Debug, Clone, Default)]
pub(super) struct Finished(BTreeMap<u64, u64>);

impl Finished {
    pub(super) fn has(&self, seq: u64) -> bool {
        self.next_open(seq) > seq
    }

    pub(super) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((from, to)) = self.0.range(..=end).next_back().map(|(from, to)| (*from, *to))
            && to >= start
        {
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    pub(super) fn remove(&mut self, range: Range<u64>) {
        let cut = |from: u64, to: u64| [from..to.min(range.start), from.max(range.end)..to];
        let ranges = std::mem::take(&mut self.0).into_iter();
        self.0 = ranges
            .flat_map(|(from, to)| cut(from, to))
            .filter(|r| !r.is_empty())
            .map(|r| (r.start, r.end))
            .collect();
    }

    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(from, to)| *from..*to)
    }

    pub(super) fn and(mut self, other: &Finished) -> Finished {
        other.ranges().for_each(|range| self.add(range));
        self
    }

    pub(super) fn without(mut self, other: &Finished) -> Finished {
        other.ranges().for_each(|range| self.remove(range));
        self
    }

    /// What is in both.
    pub(super) fn common(&self, other: &Finished) -> Finished {
        self.clone().without(&self.clone().without(other))
    }

    /// The first number from `seq` on that is not among them.
    pub(super) fn next_open(&self, seq: u64) -> u64 {
        self.0.range(..=seq).next_back().map_or(seq, |(_, to)| seq.max(*to))
    }
}

impl ConsumerModel {
    pub(super) fn place(&self) -> u64 {
        self.had.last().copied().unwrap_or(0)
    }

    /// What is to be reported to it next.
    pub(super) fn expected(&self) -> u64 {
        let first = self.attempts.unreported.first().or_else(|| self.returned.first());
        first.copied().unwrap_or_else(|| self.finished.next_open(self.cursor))
    }

    /// Whether the next one is reported as rejected.
    pub(super) fn reports_rejected(&self) -> bool {
        !self.attempts.unreported.is_empty()
            || self.returned.is_empty() && self.attempts.is_spent(self.expected())
    }

    /// The messages that are with workers.
    pub(super) fn out(&self) -> Vec<u64> {
        let attempts = &self.attempts;
        let is_out = |seq: &u64| {
            !self.returned.contains(seq)
                && !attempts.delayed.contains(seq)
                && !attempts.unreported.contains(seq)
        };
        self.open.keys().copied().filter(is_out).collect()
    }

    /// A message is handed out, once more or for the first time.
    pub(super) fn hand_out(&mut self, seq: u64, handed: DeliveryToken) {
        self.attempts.hand_out(seq);
        if !self.returned.remove(&seq) {
            self.cursor = seq + 1;
        }
        self.open.insert(seq, handed);
        self.delivers = true;
    }

    /// It reads on at its place, with nothing in flight.
    pub(super) fn start_at(&mut self, place: u64, finished: Finished) {
        self.cursor = place;
        self.open.clear();
        self.returned.clear();
        self.attempts.begin_run();
        self.finished = finished;
    }

    /// It has dealt with a message, or with the numbers of a gap.
    pub(super) fn finish(&mut self, numbers: Range<u64>) {
        if !self.returned.contains(&numbers.start) && !self.open.contains_key(&numbers.start) {
            self.cursor = self.cursor.max(numbers.end);
        }
        self.open.retain(|seq, _| !numbers.contains(seq));
        self.returned.retain(|seq| !numbers.contains(seq));
        self.attempts.finish(&numbers);
        self.finished.add(numbers);
    }
}
