//! Compares the far side's messages with the queue's, and decides where to continue.

use crate::forward::destination::{Held, MissingCause, MissingNumbers};
use crate::forward::rules::IfForgotten;

/// The state of the queue when the far side is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Here {
    /// The first unacknowledged sequence number.
    pub(super) place: u64,
    /// The number that the next message gets.
    pub(super) next: u64,
    /// Below this number the far side never acknowledged anything.
    pub(super) began: u64,
    /// The oldest number from which on the queue has everything.
    pub(super) oldest: u64,
    /// The queue's checksum of the far side's last message, if the queue has that message.
    pub(super) sum: Option<u32>,
}

/// The result of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Continue at this number.
    GoOn {
        at: u64,
        /// The far side has lost these, and the queue no longer has them.
        lost: Option<MissingNumbers>,
    },
    /// The queue is an older copy; `next` is its next number, when the far side is ahead of it.
    OlderCopy { seq: u64, next: Option<u64> },
    /// The far side has forgotten the queue, and the user has not chosen what to do then.
    Forgotten,
}

pub(super) fn compare(held: Held, here: &Here, if_forgotten: Option<IfForgotten>) -> Verdict {
    let what_if = match held {
        Held::Until { seq, sum } => return behind(seq, sum, here),
        // The far side never acknowledged anything, so it has forgotten nothing.
        _ if here.place <= here.began => IfForgotten::Continue,
        Held::Nothing => if_forgotten.unwrap_or(IfForgotten::Stop),
        Held::Removed { .. } | Held::SetBack { .. } => {
            if_forgotten.unwrap_or(IfForgotten::Continue)
        }
    };
    match what_if {
        IfForgotten::Stop => Verdict::Forgotten,
        IfForgotten::Continue => go_on(here.place),
        IfForgotten::Resend => again_from(here.began, here),
    }
}

/// Decides when the far side holds everything up to `seq`.
fn behind(seq: u64, sum: Option<u32>, here: &Here) -> Verdict {
    if seq >= here.next {
        return Verdict::OlderCopy { seq, next: Some(here.next) };
    }
    let differ = sum.zip(here.sum).is_some_and(|(there, here)| there != here);
    if differ {
        return Verdict::OlderCopy { seq, next: None };
    }
    let at = seq + 1;
    if at >= here.place {
        // This also corrects a position that a power cut moved back.
        return go_on(at);
    }
    if planted!(ForwardLossNotSeen) {
        return go_on(here.place);
    }
    again_from(at, here)
}

fn go_on(at: u64) -> Verdict {
    Verdict::GoOn { at, lost: None }
}

/// Decides when the far side has lost acknowledged messages from `lost` on: continue there, or, if
/// the queue no longer has that message, at its oldest one. (Reading reports messages that the
/// queue dropped behind the position.)
fn again_from(lost: u64, here: &Here) -> Verdict {
    let oldest = here.oldest.min(here.place);
    if planted!(ForwardSentFromOldest) {
        return go_on(oldest);
    }
    if lost >= oldest {
        return go_on(lost);
    }
    let reported = MissingNumbers { first: lost, last: oldest - 1, cause: MissingCause::LostThere };
    Verdict::GoOn { at: oldest, lost: Some(reported) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Here = Here { place: 40, next: 50, began: 0, oldest: 30, sum: Some(7) };

    const REMOVED: Held = Held::Removed { stored: None };

    fn until(seq: u64) -> Held {
        Held::Until { seq, sum: Some(7) }
    }

    #[test]
    fn the_far_sides_last_number_says_where_to_go_on() {
        assert_eq!(compare(until(39), &HERE, None), go_on(40));
        assert_eq!(compare(until(45), &HERE, None), go_on(46), "a power cut took the place back");
        assert_eq!(compare(until(49), &HERE, None), go_on(50));
        assert_eq!(compare(until(34), &HERE, None), go_on(35), "kept, and sent again");
        assert_eq!(compare(until(29), &HERE, None), go_on(30));
        let Verdict::GoOn { at: 30, lost: Some(lost) } = compare(until(9), &HERE, None) else {
            panic!("the far side has lost more than is kept");
        };
        assert_eq!((lost.first, lost.last, lost.cause), (10, 29, MissingCause::LostThere));
    }

    #[test]
    fn an_older_copy_is_found_by_the_number_and_by_the_checksum() {
        let next = Verdict::OlderCopy { seq: 50, next: Some(50) };
        assert_eq!(compare(until(50), &HERE, Some(IfForgotten::Resend)), next);
        let other = Held::Until { seq: 45, sum: Some(8) };
        assert_eq!(compare(other, &HERE, None), Verdict::OlderCopy { seq: 45, next: None });
        // Nothing to compare with.
        assert_eq!(compare(Held::Until { seq: 45, sum: None }, &HERE, None), go_on(46));
        assert_eq!(compare(other, &Here { sum: None, ..HERE }, None), go_on(46));
    }

    #[test]
    fn a_far_side_that_holds_nothing_is_new_or_has_forgotten() {
        let new = Here { place: 12, began: 12, oldest: 12, ..HERE };
        for held in [Held::Nothing, REMOVED] {
            assert_eq!(compare(held, &new, Some(IfForgotten::Stop)), go_on(12));
        }
        assert_eq!(compare(Held::Nothing, &HERE, None), Verdict::Forgotten);
        assert_eq!(compare(REMOVED, &HERE, None), go_on(40));
        assert_eq!(compare(REMOVED, &HERE, Some(IfForgotten::Stop)), Verdict::Forgotten);
        assert_eq!(compare(Held::Nothing, &HERE, Some(IfForgotten::Continue)), go_on(40));
        let all = Here { oldest: 0, ..HERE };
        assert_eq!(compare(Held::Nothing, &all, Some(IfForgotten::Resend)), go_on(0));
        let Verdict::GoOn { at: 30, lost: Some(lost) } =
            compare(REMOVED, &HERE, Some(IfForgotten::Resend))
        else {
            panic!("what is kept is sent again");
        };
        assert_eq!((lost.first, lost.last), (0, 29));
    }

    #[test]
    fn what_was_dropped_behind_the_place_is_not_lost_there() {
        let here = Here { oldest: 45, ..HERE };
        let Verdict::GoOn { at: 40, lost: Some(lost) } = compare(until(9), &here, None) else {
            panic!("the reading reports what was dropped");
        };
        assert_eq!((lost.first, lost.last), (10, 39));
    }
}
