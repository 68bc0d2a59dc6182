//! When messages were written, for consumers read in lanes by age. Kept only in memory: of an
//! earlier run's messages the queue only knows that they are not fresh.

use std::collections::VecDeque;
use std::ops::Range;

/// The most marks kept. When there are more, older ones are merged, so that marks reach back far
/// enough for the longest age and are dense enough for the shortest.
const MOST: usize = 64;

/// The messages from `first` on, up to the next mark.
#[derive(Debug, Clone, Copy)]
struct Stamp {
    first: u64,
    /// The messages were written at this time or later, and before `until`. In milliseconds since
    /// 1970.
    begun: u64,
    until: u64,
}

#[derive(Debug, Default)]
pub(crate) struct WriteTimes(VecDeque<Stamp>);

impl WriteTimes {
    /// Notes that messages from `first` on are written at `begun` or later, and those written
    /// before the next call before `until`.
    pub(crate) fn mark(&mut self, first: u64, begun: u64, until: u64) {
        // Since that mark no message was written, or those that were have been rolled back.
        while self.0.back().is_some_and(|last| last.first >= first) {
            self.0.pop_back();
        }
        self.0.push_back(Stamp { first, begun, until });
        if self.0.len() > MOST {
            self.merge();
        }
        check!(self.check());
    }

    /// The marks are few, and in the order of their numbers.
    #[cfg(any(test, fuzzing, mmq_holds))]
    fn check(&self) {
        let count = self.0.len();
        holds!(count <= MOST, "{count} marks are kept, and at most {MOST} are to be");
        holds!(
            self.0.iter().zip(self.0.iter().skip(1)).all(|(mark, next)| mark.first < next.first),
            "marks of write times lie in the order of their numbers: {:?}",
            self.0
        );
        holds!(
            self.0.iter().all(|mark| mark.begun <= mark.until),
            "each mark ends after it began: {:?}",
            self.0
        );
    }

    /// Merges the two neighbours whose merging loses the least precision relative to their age.
    fn merge(&mut self) {
        let now = self.0.back().map_or(0, |newest| newest.until);
        let cost = |at: &usize| {
            let (older, newer) = (self.0[*at], self.0[at + 1]);
            let span = newer.until.saturating_sub(older.begun);
            // In thousandths of the age.
            span.saturating_mul(1000) / now.saturating_sub(older.begun).max(1)
        };
        let neighbours = 0..self.0.len().saturating_sub(2);
        if let Some(at) = neighbours.min_by_key(cost)
            && let Some(newer) = self.0.remove(at + 1)
        {
            self.0[at].until = self.0[at].until.max(newer.until);
        }
    }

    /// Returns a time before which the message was written, and the sequence numbers below
    /// `visible` for which the same time holds; `None` when no mark covers it.
    pub(crate) fn written_before(&self, seq: u64, visible: u64) -> Option<(Range<u64>, u64)> {
        let at = self.0.partition_point(|mark| mark.first <= seq);
        // After the clock was set back, later marks have earlier times.
        let behind = self.0.range(at..).map(|mark| mark.begun).min();
        let own = at.checked_sub(1).and_then(|own| self.0.get(own));
        let before = own.map(|mark| mark.until).into_iter().chain(behind).min()?;
        let from = own.map_or(0, |mark| mark.first);
        let end = self.0.get(at).map_or(visible, |next| next.first);
        Some((from..end, before))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
