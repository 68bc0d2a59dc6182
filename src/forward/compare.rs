//! Compares the far side's messages with the queue's, and decides where to continue.

use crate::error;
use crate::forward::destination::{MissingCause, MissingNumbers, Trouble};
use crate::forward::far_side::Held;
use crate::forward::halt::{Halt, Over};
use crate::forward::local::{Acknowledged, Local};
use crate::forward::rules::IfForgotten;

/// What a person should know of a far side that has stored more than it was handed.
pub(super) const OTHERS_WROTE: &str = "the far side has stored and removed messages that \
    this queue did not send: nobody else may write there; what was on its way may be there twice";

/// The state of the queue when the far side is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Here {
    pub(super) acknowledged: Acknowledged,
    /// The number that the next message gets.
    pub(super) next: u64,
    /// Below this number the far side never acknowledged anything.
    pub(super) began: u64,
    /// The oldest number from which on the queue has everything.
    pub(super) oldest: u64,
}

impl Here {
    pub(super) fn of(local: &dyn Local) -> Here {
        Here {
            acknowledged: local.acknowledged(),
            next: local.next_number(),
            began: local.began(),
            oldest: local.oldest(),
        }
    }

    fn place(&self) -> u64 {
        self.acknowledged.there
    }

    fn chain(&self) -> Option<u32> {
        self.acknowledged.chain
    }
}

/// The result of the comparison: continue at the number `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GoOn {
    pub(super) at: u64,
    /// The sum of the chain before that message, which the far side has, too; `None` when a new
    /// chain begins there.
    pub(super) chain: Option<u32>,
    /// The far side has lost these, and the queue no longer has them.
    pub(super) lost: Option<MissingNumbers>,
}

/// Decides where to continue, or why not. `chain_over` is
/// [`Local::chain_over`](super::local::Local).
pub(super) fn compare(
    held: Held,
    here: &Here,
    if_forgotten: Option<IfForgotten>,
    mut chain_over: impl FnMut(u64, u32, u64) -> error::Result<Option<u32>>,
) -> Result<GoOn, Over> {
    let place = here.place();
    let began = if planted!(ForwardBeganForgotten) { 0 } else { here.began };
    Ok(match held {
        Held::Until { seq, sum } => return behind(seq, sum, here, chain_over),
        Held::Removed { .. } if planted!(ForwardRemovedIsLost) => {
            go_on(here.oldest.min(place), None)
        }
        Held::Removed { stored } => {
            let counts = !here.acknowledged.counts_differ && !planted!(ForwardStoredNotCounted);
            let counts = counts && !others_wrote(held, &here.acknowledged);
            let stored = stored.filter(|_| counts).unwrap_or_default();
            let until = place.saturating_add(stored);
            // Of what was in flight, so many were stored. If the queue has lost one of these since,
            // nobody knows which ones: sending them again loses none.
            match chain_over(place, here.chain().unwrap_or_default(), until)? {
                Some(chain) => go_on(until, here.chain().map(|_| chain)),
                None => go_on(place, here.chain()),
            }
        }
        _ if planted!(ForwardSetBackIsRemoved) => go_on(place, here.chain()),
        Held::SetBack { lost } => {
            let Some(lost) = lost.filter(|_| !here.acknowledged.counts_differ) else {
                return Ok(go_on(here.oldest.min(place), None));
            };
            // (Somebody else may have written there before the forwarder began.)
            let from = place.saturating_sub(lost).max(here.began);
            match chain_over(from, 0, place)? {
                None if from >= here.oldest => go_on(here.oldest.min(place), None),
                _ => again_from(from, None, here),
            }
        }
        // The far side never acknowledged anything, so it has forgotten nothing.
        Held::Nothing if place <= began => go_on(place, here.chain()),
        Held::Nothing => match if_forgotten.unwrap_or(IfForgotten::Stop) {
            IfForgotten::Stop => return Err(Over::Halt(Halt::Forgotten { place })),
            IfForgotten::Continue => go_on(place, here.chain()),
            IfForgotten::Resend => again_from(here.began, None, here),
        },
    })
}

/// Returns whether the far side stored more behind the mark than it was handed: somebody else wrote
/// there, and nobody knows which of its positions are the queue's. (A power cut takes the row back,
/// so after one it may be the queue's own messages.)
pub(super) fn others_wrote(held: Held, acknowledged: &Acknowledged) -> bool {
    let handed = acknowledged.handed - acknowledged.there;
    let Held::Removed { stored: Some(stored) } = held else { return false };
    stored > handed && !acknowledged.counts_differ && !planted!(ForwardOthersCounted)
}

/// Decides when the far side holds everything up to `seq`, whose sum there is `sum`.
fn behind(
    seq: u64,
    sum: Option<u32>,
    here: &Here,
    mut chain_over: impl FnMut(u64, u32, u64) -> error::Result<Option<u32>>,
) -> Result<GoOn, Over> {
    if seq >= here.next {
        return Err(Over::Halt(Halt::OlderCopy { seq, next: Some(here.next) }));
    }
    let (at, place) = (seq + 1, here.place());
    // (Where positions are known, the message itself says whose it is.)
    let is_bare = sum.is_none() && here.acknowledged.position.is_none();
    if is_bare && seq >= here.acknowledged.handed {
        let why = format!(
            "it counts to message {seq}, and this queue has sent it none from {} on: somebody else \
             wrote there and removed that, or set the number; set it back to the queue's newest \
             message there (Redis: XSETID, to {place}-0 where none is left); or this directory is \
             an older copy of the queue",
            here.acknowledged.handed
        );
        return Err(Over::Trouble(Trouble::Lost(why.into())));
    }
    if at >= place {
        // The messages from the place on lead from the sum that is known here to that of the far
        // side, unless the far side has other messages.
        let known = here.chain().filter(|_| !planted!(ForwardCopyNotSeen));
        let reached = known.map_or(Ok(None), |known| chain_over(place, known, at))?;
        if reached.zip(sum).is_some_and(|(reached, sum)| reached != sum) {
            return Err(Over::Halt(Halt::OlderCopy { seq, next: None }));
        }
        // This also corrects a place that a power cut moved back.
        return Ok(go_on(at, sum.or(reached)));
    }
    if planted!(ForwardLossNotSeen) {
        return Ok(go_on(place, here.chain()));
    }
    Ok(again_from(at, sum, here))
}

fn go_on(at: u64, chain: Option<u32>) -> GoOn {
    GoOn { at, chain, lost: None }
}

/// Decides when the far side has lost acknowledged messages from `lost` on, before which the chain
/// has the sum `chain`: continue there, or, if the queue no longer has that message, at its oldest
/// one. (Reading reports messages that the queue dropped behind the place.)
fn again_from(lost: u64, chain: Option<u32>, here: &Here) -> GoOn {
    let oldest = here.oldest.min(here.place());
    if planted!(ForwardSentFromOldest) {
        return go_on(oldest, chain);
    }
    if lost >= oldest {
        return go_on(lost, chain);
    }
    let reported = MissingNumbers { first: lost, last: oldest - 1, cause: MissingCause::LostThere };
    GoOn { at: oldest, chain, lost: Some(reported) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Here = Here {
        acknowledged: Acknowledged {
            until: 40,
            there: 40,
            position: None,
            chain: Some(40),
            counts_differ: false,
            handed: 50,
        },
        next: 50,
        began: 0,
        oldest: 30,
    };

    /// What a far side holds that has every message up to `seq`. In these tests the sum of a chain
    /// is the number of its messages.
    fn until(seq: u64) -> Held {
        Held::Until { seq, sum: Some(seq as u32 + 1) }
    }

    type Verdict = Result<GoOn, String>;

    fn text(compared: Result<GoOn, Over>) -> Verdict {
        compared.map_err(|over| format!("{over:?}"))
    }

    /// The verdict for a queue that has every message from its oldest one on.
    fn verdict(held: Held, here: &Here, if_forgotten: Option<IfForgotten>) -> Verdict {
        let chain_over = |from: u64, sum: u32, to: u64| {
            let is_there = from == to || from >= here.oldest && to <= here.next;
            Ok(is_there.then(|| sum + (to - from) as u32))
        };
        text(compare(held, here, if_forgotten, chain_over))
    }

    /// It goes on there.
    fn to(at: u64, chain: Option<u32>) -> Verdict {
        Ok(go_on(at, chain))
    }

    fn at(at: u64) -> Verdict {
        to(at, Some(at as u32))
    }

    fn older_copy(seq: u64, next: Option<u64>) -> Verdict {
        text(Err(Over::Halt(Halt::OlderCopy { seq, next })))
    }

    fn lost(first: u64, last: u64) -> Option<MissingNumbers> {
        Some(MissingNumbers { first, last, cause: MissingCause::LostThere })
    }

    #[test]
    fn the_far_sides_last_number_says_where_to_go_on() {
        assert_eq!(verdict(until(39), &HERE, None), at(40));
        assert_eq!(verdict(until(45), &HERE, None), at(46), "a power cut took the place back");
        assert_eq!(verdict(until(49), &HERE, None), at(50));
        assert_eq!(verdict(until(34), &HERE, None), at(35), "kept, and sent again");
        assert_eq!(verdict(until(29), &HERE, None), at(30));
        let again = Ok(GoOn { at: 30, chain: Some(10), lost: lost(10, 29) });
        assert_eq!(verdict(until(9), &HERE, None), again, "more than is kept");
    }

    #[test]
    fn an_older_copy_is_found_by_the_number_and_by_the_chain() {
        let next = older_copy(50, Some(50));
        assert_eq!(verdict(until(50), &HERE, Some(IfForgotten::Resend)), next);
        // The last message may be the same in both: the chain has all before it.
        let other = Held::Until { seq: 45, sum: Some(7) };
        assert_eq!(verdict(other, &HERE, None), older_copy(45, None));
        // Nothing to compare with: no sum there, none here, a message that is missing here.
        assert_eq!(verdict(Held::Until { seq: 45, sum: None }, &HERE, None), at(46));
        let unknown =
            Here { acknowledged: Acknowledged { chain: None, ..HERE.acknowledged }, ..HERE };
        assert_eq!(verdict(other, &unknown, None), to(46, Some(7)));
        assert_eq!(text(compare(other, &HERE, None, |_, _, _| Ok(None))), to(46, Some(7)));
    }

    #[test]
    fn what_the_far_side_removed_is_not_sent_again() {
        for if_forgotten in [None, Some(IfForgotten::Resend), Some(IfForgotten::Stop)] {
            let removed = |stored| verdict(Held::Removed { stored }, &HERE, if_forgotten);
            assert_eq!(removed(Some(0)), at(40));
            assert_eq!(removed(None), at(40));
            assert_eq!(removed(Some(7)), at(47), "so many were in flight and arrived");
            assert_eq!(removed(Some(11)), at(40), "more than there are");
        }
        // Somebody else wrote there: nobody knows what of it is the queue's.
        let handed =
            |handed| Here { acknowledged: Acknowledged { handed, ..HERE.acknowledged }, ..HERE };
        let removed = |here, stored| verdict(Held::Removed { stored: Some(stored) }, &here, None);
        assert_eq!(removed(handed(42), 2), at(42));
        assert_eq!(removed(handed(42), 3), at(40));
        assert_eq!(removed(handed(40), 1), at(40));
        // What was in flight is missing here: nobody knows what arrived.
        let held = Held::Removed { stored: Some(3) };
        assert_eq!(text(compare(held, &HERE, None, |_, _, _| Ok(None))), at(40));
    }

    #[test]
    fn what_a_set_back_far_side_lost_is_sent_again() {
        let set_back = |lost| verdict(Held::SetBack { lost }, &HERE, Some(IfForgotten::Continue));
        assert_eq!(set_back(Some(5)), to(35, None));
        assert_eq!(set_back(None), to(30, None), "all that is kept");
        assert_eq!(set_back(Some(20)), Ok(GoOn { at: 30, chain: None, lost: lost(20, 29) }));
        let held = Held::SetBack { lost: Some(5) };
        assert_eq!(text(compare(held, &HERE, None, |_, _, _| Ok(None))), to(30, None));
        let began = Here { began: 35, ..HERE };
        assert_eq!(verdict(Held::SetBack { lost: Some(20) }, &began, None), to(35, None));
    }

    /// A position may stand for more than one message, or for none.
    #[test]
    fn positions_that_do_not_count_messages_are_not_counted() {
        let acknowledged = Acknowledged { counts_differ: true, ..HERE.acknowledged };
        let here = Here { acknowledged, ..HERE };
        assert_eq!(verdict(Held::Removed { stored: Some(7) }, &here, None), at(40));
        for lost in [5, 20] {
            let set_back = Held::SetBack { lost: Some(lost) };
            assert_eq!(verdict(set_back, &here, None), to(30, None));
        }
        assert_eq!(verdict(until(45), &here, None), at(46));
    }

    #[test]
    fn a_far_side_that_holds_nothing_is_new_or_has_forgotten() {
        let acknowledged =
            Acknowledged { until: 12, there: 12, chain: Some(12), ..HERE.acknowledged };
        let new = Here { acknowledged, began: 12, oldest: 12, ..HERE };
        assert_eq!(verdict(Held::Nothing, &new, Some(IfForgotten::Stop)), at(12));
        assert_eq!(
            verdict(Held::Nothing, &HERE, None),
            text(Err(Over::Halt(Halt::Forgotten { place: 40 })))
        );
        assert_eq!(verdict(Held::Nothing, &HERE, Some(IfForgotten::Continue)), at(40));
        let all = Here { oldest: 0, ..HERE };
        assert_eq!(verdict(Held::Nothing, &all, Some(IfForgotten::Resend)), to(0, None));
        let again = Ok(GoOn { at: 30, chain: None, lost: lost(0, 29) });
        assert_eq!(verdict(Held::Nothing, &HERE, Some(IfForgotten::Resend)), again);
    }

    #[test]
    fn what_was_dropped_behind_the_place_is_not_lost_there() {
        // The reading reports what was dropped.
        let here = Here { oldest: 45, ..HERE };
        let again = Ok(GoOn { at: 40, chain: Some(10), lost: lost(10, 39) });
        assert_eq!(verdict(until(9), &here, None), again);
    }

    /// A number outlives its message, and somebody else may have set it.
    #[test]
    fn a_number_that_nobody_handed_over_is_not_taken_for_stored() {
        let handed =
            |handed| Here { acknowledged: Acknowledged { handed, ..HERE.acknowledged }, ..HERE };
        let number = |seq| Held::Until { seq, sum: None };
        assert_eq!(verdict(number(44), &handed(45), None), at(45));
        for seq in [45, 49] {
            let said = verdict(number(seq), &handed(45), None).unwrap_err();
            assert!(said.contains(&format!("message {seq}")) && said.contains("XSETID"), "{said}");
        }
        // A message that is there is the queue's own: a power cut took the row back.
        assert_eq!(verdict(until(47), &handed(45), None), at(48));
    }

    /// The place has passed 36 to 39, which nobody handed over.
    #[test]
    fn what_was_left_out_behind_the_last_message_is_not_lost_there() {
        let acknowledged = Acknowledged { there: 36, chain: Some(36), ..HERE.acknowledged };
        let here = Here { acknowledged, oldest: 38, ..HERE };
        assert_eq!(verdict(until(35), &here, None), at(36));
        assert_eq!(verdict(Held::Removed { stored: Some(0) }, &here, None), at(36));
        assert_eq!(
            verdict(until(33), &here, None),
            Ok(GoOn { at: 36, chain: Some(34), lost: lost(34, 35) })
        );
        let new = Here { began: 36, ..here };
        assert_eq!(verdict(Held::Nothing, &new, None), at(36));
    }
}
