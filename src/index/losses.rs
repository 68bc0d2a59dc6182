//! Why messages that are held no longer were given up: to make room, or because they were too old.
//!
//! Messages are given up from the oldest on, so the numbers that are gone fall into runs of one cause each. The end of the
//! latest run of either cause is kept by itself; the ends of those before are kept while there is room for them
//! ([`OLDER_MARKS`]), so that a consumer that was away is told the right cause of each number. With more changes of cause
//! than that between its place and what is held, the oldest runs are told with the cause of the one behind them.
//!
//! A number's cause is that of the lowest mark above it, in whichever order the marks stand.

use crate::error::GapCause;
use crate::format::{Checkpoint, OLDER_MARKS};

/// The ends of the runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GivenUp {
    /// Where the latest run that was dropped ends: the first number behind it.
    pub(crate) dropped: u64,
    pub(crate) expired: u64,
    /// Ends of earlier runs: twice the number, plus one for one that had expired. Zero: none.
    pub(crate) older: [u64; OLDER_MARKS],
}

impl GivenUp {
    /// What a checkpoint says.
    pub(crate) fn of(checkpoint: &Checkpoint) -> GivenUp {
        GivenUp { dropped: checkpoint.dropped_seq, expired: checkpoint.expired_seq, older: checkpoint.older }
    }

    /// Has a checkpoint say it.
    pub(crate) fn state_in(&self, checkpoint: &mut Checkpoint) {
        (checkpoint.dropped_seq, checkpoint.expired_seq, checkpoint.older) = (self.dropped, self.expired, self.older);
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
        let expired = cause == GapCause::Expired;
        let (mark, other) = if expired { (self.expired, self.dropped) } else { (self.dropped, self.expired) };
        if mark != 0 && mark < other {
            // The other cause came between: the run before is another one.
            let kept = mark << 1 | u64::from(expired);
            if let Some(lowest) = self.older.iter_mut().min_by_key(|mark| **mark) {
                *lowest = kept;
            }
        }
        if expired {
            self.expired = end;
        } else {
            self.dropped = end;
        }
    }

    /// Why `seq` was given up, and the first number that was not, or for another cause. `None` when it was not.
    pub(crate) fn cause_of(&self, seq: u64) -> Option<(GapCause, u64)> {
        let end = self.end();
        let older = self.older.iter().map(|mark| (mark >> 1, mark & 1 == 1));
        let latest = [(self.dropped, false), (self.expired, true)];
        let above = || older.clone().chain(latest).filter(|(mark, _)| (seq + 1..=end).contains(mark));
        let (_, expired) = above().min()?;
        let other = above().filter(|(_, other)| *other != expired).map(|(mark, _)| mark).min();
        let until = above().filter(|(mark, _)| other.is_none_or(|other| *mark < other)).map(|(mark, _)| mark).max()?;
        Some((if expired { GapCause::Expired } else { GapCause::Dropped }, until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_the_cause_it_was_given_up_for() {
        let mut state = 5u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for _ in 0..500 {
            let (mut given_up, mut causes) = (GivenUp::default(), Vec::new());
            let mut runs = 0;
            // As many runs as there are marks.
            while runs < OLDER_MARKS + 2 {
                let cause = if random(2) == 0 { GapCause::Dropped } else { GapCause::Expired };
                runs += usize::from(causes.last() != Some(&cause));
                if runs > OLDER_MARKS + 2 {
                    break;
                }
                let end = causes.len() as u64 + 1 + random(4);
                given_up.note(cause, end);
                causes.resize(end as usize, cause);
                // What is given up already is not given up again.
                given_up.note(GapCause::Dropped, random(end + 1));
                for (seq, cause) in causes.iter().enumerate() {
                    let until =
                        causes[seq..].iter().position(|other| other != cause).unwrap_or(causes.len() - seq) + seq;
                    assert_eq!(given_up.cause_of(seq as u64), Some((*cause, until as u64)), "{seq} of {causes:?}");
                }
                assert_eq!((given_up.end(), given_up.cause_of(end)), (end, None));
            }
        }
    }

    #[test]
    fn with_more_runs_than_marks_the_oldest_are_told_with_the_next() {
        let mut given_up = GivenUp::default();
        for run in 0..20 {
            given_up.note(if run % 2 == 0 { GapCause::Dropped } else { GapCause::Expired }, 10 * (run + 1));
        }
        assert_eq!(given_up.cause_of(199), Some((GapCause::Expired, 200)));
        assert_eq!(given_up.cause_of(145), Some((GapCause::Dropped, 150)));
        assert_eq!(given_up.cause_of(0), Some((GapCause::Dropped, 150)), "one gap, up to the oldest mark that is kept");
        assert_eq!(given_up.cause_of(150), Some((GapCause::Expired, 160)));
    }

    #[test]
    fn bytes_of_a_damaged_index_make_no_number_given_up_that_is_held() {
        let given_up = GivenUp { dropped: 7, expired: 3, older: [u64::MAX, 40, 9, 1] };
        assert_eq!(given_up.cause_of(7), None);
        assert_eq!(given_up.cause_of(5), Some((GapCause::Dropped, 7)));
        assert_eq!(given_up.cause_of(u64::MAX >> 1), None);
    }
}
