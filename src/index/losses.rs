//! Why messages that are held no longer were given up: to make room, or because they were too old.
//!
//! Messages are given up from the oldest on, so the numbers that are gone fall into runs of one
//! cause each. The end of the latest run of either cause is kept. A number's cause is that of the
//! lowest mark above it, in whichever order the marks stand: so the last two runs are told as they
//! were, and where causes changed more often, numbers of earlier runs are told with the cause of
//! the one before the last. That each of them is gone is told in any case.

use crate::error::GapCause;
use crate::format::Checkpoint;

/// The ends of the runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GivenUp {
    /// Where the latest run that was dropped ends: the first number behind it.
    pub(crate) dropped: u64,
    pub(crate) expired: u64,
}

impl GivenUp {
    /// What a checkpoint says.
    pub(crate) fn of(checkpoint: &Checkpoint) -> GivenUp {
        GivenUp { dropped: checkpoint.dropped_seq, expired: checkpoint.expired_seq }
    }

    /// Has a checkpoint say it.
    pub(crate) fn write_to(&self, checkpoint: &mut Checkpoint) {
        (checkpoint.dropped_seq, checkpoint.expired_seq) = (self.dropped, self.expired);
    }

    /// The first number that was not given up.
    pub(crate) fn end(&self) -> u64 {
        self.dropped.max(self.expired)
    }

    /// Everything below `end` is given up; what was not before, for that cause.
    pub(crate) fn note(&mut self, cause: GapCause, end: u64) {
        if end <= self.end() {
            return;
        }
        if cause == GapCause::Expired {
            self.expired = end;
        } else {
            self.dropped = end;
        }
    }

    /// Why `seq` was given up, and the first number that was not, or for another cause. `None` when
    /// it was not.
    pub(crate) fn cause_of(&self, seq: u64) -> Option<(GapCause, u64)> {
        let marks = [(self.dropped, GapCause::Dropped), (self.expired, GapCause::Expired)];
        let (end, cause) =
            marks.into_iter().filter(|(mark, _)| seq < *mark).min_by_key(|(mark, _)| *mark)?;
        Some((cause, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_runs_are_told_as_they_were_and_those_before_with_the_first_of_them() {
        let mut given_up = GivenUp::default();
        assert_eq!(given_up.cause_of(0), None);
        for run in 1..20 {
            let causes = [GapCause::Dropped, GapCause::Expired];
            let (before, cause) = (causes[(run as usize + 1) % 2], causes[run as usize % 2]);
            given_up.note(cause, 10 * run);
            // What is given up already is not given up again.
            given_up.note(before, 10 * run);
            assert_eq!((given_up.end(), given_up.cause_of(10 * run)), (10 * run, None));
            assert_eq!(given_up.cause_of(10 * run - 1), Some((cause, 10 * run)));
            for seq in 0..10 * (run - 1) {
                assert_eq!(
                    given_up.cause_of(seq),
                    Some((before, 10 * (run - 1))),
                    "{seq} of {run} runs"
                );
            }
        }
    }
}
