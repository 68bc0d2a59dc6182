//! When messages were written, for consumers that are read in lanes by age. Kept in memory alone:
//! of what an earlier run wrote nothing is known but that it is not fresh.

use std::collections::VecDeque;
use std::ops::Range;

/// So many marks at most. When there are more, older ones are merged, so that they reach back far
/// enough for the longest age, and are dense enough for the shortest.
const MOST: usize = 64;

/// The messages from `first` on, up to the next mark.
#[derive(Debug, Clone, Copy)]
struct Stamp {
    first: u64,
    /// They were written at this time or later, and before `until`. In milliseconds since 1970.
    begun: u64,
    until: u64,
}

#[derive(Debug, Default)]
pub(crate) struct WriteTimes(VecDeque<Stamp>);

impl WriteTimes {
    /// The messages from `first` on are written from `begun` on, and before `until` those that are
    /// written before the next call.
    pub(crate) fn mark(&mut self, first: u64, begun: u64, until: u64) {
        // No message was written since, or those that were have been taken back.
        while self.0.back().is_some_and(|last| last.first >= first) {
            self.0.pop_back();
        }
        self.0.push_back(Stamp { first, begun, until });
        if self.0.len() > MOST {
            self.merge();
        }
    }

    /// Merges the two neighbours of which that costs the least exactness for their age.
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

    /// A time before which the message was written, and the numbers below `visible` of which that
    /// is true. `None` when nothing is known.
    pub(crate) fn written_before(&self, seq: u64, visible: u64) -> Option<(Range<u64>, u64)> {
        let at = self.0.partition_point(|mark| mark.first <= seq);
        // Where the clock was set back later marks have earlier times.
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
