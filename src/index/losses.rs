//! Why messages were evicted: dropped to make room, or expired.
//!
//! A queue evicts messages from the oldest on, so their numbers form runs of one cause each. A mark
//! keeps the end of the latest run of each cause. A number's cause is that of the lowest mark above
//! it. So reads report the last two runs with their own causes, and all earlier runs with the cause
//! of the last but one. Reads report every missing number in any case.

use crate::error::GapCause;
use crate::format::Checkpoint;

/// The end of the latest run of each cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Evicted {
    /// The first number after the latest run of dropped messages.
    pub(crate) dropped: u64,
    pub(crate) expired: u64,
}

impl Evicted {
    /// The marks of a checkpoint.
    pub(crate) fn of(checkpoint: &Checkpoint) -> Evicted {
        Evicted { dropped: checkpoint.dropped_seq, expired: checkpoint.expired_seq }
    }

    /// Writes the marks into a checkpoint.
    pub(crate) fn write_to(&self, checkpoint: &mut Checkpoint) {
        (checkpoint.dropped_seq, checkpoint.expired_seq) = (self.dropped, self.expired);
    }

    /// The first number that was not evicted: the queue retains no message below it.
    pub(crate) fn end(&self) -> u64 {
        self.dropped.max(self.expired)
    }

    /// Notes that all messages below `end` are evicted. Those that were not evicted before have
    /// this `cause`.
    pub(crate) fn note(&mut self, cause: GapCause, end: u64) {
        if end <= self.end() {
            return;
        }
        if cause == GapCause::Expired {
            self.expired = end;
        } else {
            self.dropped = end;
        }
        holds!(self.end() == end, "all below {end} was evicted, by {self:?}");
    }

    /// Why `seq` was evicted, and the first number after it that was not, or has another cause.
    /// `None` when `seq` was not evicted.
    pub(crate) fn cause_of(&self, seq: u64) -> Option<(GapCause, u64)> {
        let marks = [(self.dropped, GapCause::Dropped), (self.expired, GapCause::Expired)];
        let (end, cause) =
            marks.into_iter().filter(|(mark, _)| seq < *mark).min_by_key(|(mark, _)| *mark)?;
        holds!(seq < end && end <= self.end(), "message {seq} lies before {end}, in {self:?}");
        Some((cause, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_runs_are_reported_as_they_were_and_those_before_with_the_first_of_them() {
        let mut evicted = Evicted::default();
        assert_eq!(evicted.cause_of(0), None);
        for run in 1..20 {
            let causes = [GapCause::Dropped, GapCause::Expired];
            let (before, cause) = (causes[(run as usize + 1) % 2], causes[run as usize % 2]);
            evicted.note(cause, 10 * run);
            // An evicted message is not evicted again.
            evicted.note(before, 10 * run);
            assert_eq!((evicted.end(), evicted.cause_of(10 * run)), (10 * run, None));
            assert_eq!(evicted.cause_of(10 * run - 1), Some((cause, 10 * run)));
            for seq in 0..10 * (run - 1) {
                assert_eq!(
                    evicted.cause_of(seq),
                    Some((before, 10 * (run - 1))),
                    "{seq} of {run} runs"
                );
            }
        }
    }
}
