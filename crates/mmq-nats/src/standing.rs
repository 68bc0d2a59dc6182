//! Where the stream stands, compared with where it stood at the last acknowledgement.

use mmq::forward::Held;

/// What a stream answered of its positions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// Only this queue writes to the stream: each position behind the mark is one of its messages.
    pub(super) is_own: bool,
    /// The last position of the stream, whether its message is there or was removed.
    pub(super) end: u64,
    /// The position of the queue's last message that is there, and what that says.
    pub(super) last: Option<(u64, Held)>,
    /// The position that was acknowledged last, in this very stream.
    pub(super) mark: Option<u64>,
    /// A message of another subject has the mark's position.
    pub(super) is_refilled: bool,
}

impl Standing {
    /// The last message is of the queue before this one. A mark that is not before it tells what
    /// the stream has stored of this queue since, and what it has lost, as if nothing was there; an
    /// earlier one tells nothing, because the other queue has gone on since.
    pub(super) fn pass_predecessor(&mut self) {
        let Some((at, _)) = self.last else { return };
        if self.mark.is_some_and(|mark| mark >= at) {
            self.last = None;
        } else {
            self.mark = None;
        }
    }

    /// Whether the stream no longer has the last message that it stored: what it has says less than
    /// the positions since the mark. (Another writer's positions say nothing.)
    pub(super) fn has_lost_the_mark(&self) -> bool {
        let least = |mark| if self.is_own { self.end } else { mark };
        self.mark.is_some_and(|mark| self.last.is_none_or(|(at, _)| at < least(mark)))
    }

    /// What the stream holds, and the position where it ends behind that. (Without messages of the
    /// queue a stream with other writers has no such position.)
    pub(super) fn held(&self) -> (Held, Option<u64>) {
        let Standing { is_own, end, last, is_refilled, .. } = *self;
        let behind = |at| if is_own { end } else { at };
        let mark = self.mark.filter(|_| self.has_lost_the_mark());
        if let Some(mark) = mark.filter(|mark| end >= *mark && !is_refilled) {
            // Positions only rise, so the message was stored, and was removed.
            let stored = (is_own || end == mark).then(|| end - mark);
            return (Held::Removed { stored }, Some(behind(mark)));
        }
        match (last, mark) {
            (Some((at, held)), mark) if !is_own || mark.is_none() => (held, Some(behind(at))),
            // In a stream of our own each message that was lost had a position behind the end.
            (_, Some(mark)) => {
                let lost = (is_own && mark > end).then(|| mark - end);
                (Held::SetBack { lost }, is_own.then_some(end))
            }
            (_, None) => (Held::Nothing, is_own.then_some(end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: Held = Held::Until { seq: 9, sum: Some(7) };

    fn standing(is_own: bool, end: u64, last: Option<u64>, mark: Option<u64>) -> Standing {
        let last = last.map(|at| (at, LAST));
        Standing { is_own, end, last, mark, is_refilled: false }
    }

    #[test]
    fn behind_another_queue_the_mark_tells_what_is_of_this_one() {
        for (is_own, end, at, mark, held, position) in [
            // The first session, and the second one when nothing was stored in between.
            (true, 50, 50, None, Held::Nothing, Some(50)),
            (false, 60, 50, None, Held::Nothing, Some(50)),
            (true, 50, 50, Some(50), removed(Some(0)), Some(50)),
            (false, 50, 50, Some(50), removed(Some(0)), Some(50)),
            (false, 60, 50, Some(50), removed(None), Some(50)),
            // What this queue stored was removed, or set back.
            (true, 57, 50, Some(55), removed(Some(2)), Some(57)),
            (true, 50, 50, Some(55), set_back(Some(5)), Some(50)),
            (false, 50, 50, Some(55), set_back(None), None),
            // The other queue has gone on behind the mark.
            (true, 60, 60, Some(55), Held::Nothing, Some(60)),
            (false, 60, 58, Some(55), Held::Nothing, Some(58)),
        ] {
            let last = Some((at, Held::Nothing));
            let mut standing = Standing { is_own, end, last, mark, is_refilled: false };
            standing.pass_predecessor();
            assert_eq!(standing.held(), (held, position), "{is_own} {end} {at} {mark:?}");
        }
    }

    fn removed(stored: Option<u64>) -> Held {
        Held::Removed { stored }
    }

    fn set_back(lost: Option<u64>) -> Held {
        Held::SetBack { lost }
    }

    #[test]
    fn a_stream_of_our_own_counts_what_it_stored_and_what_it_lost() {
        for (end, last, mark, held) in [
            (0, None, None, Held::Nothing),
            (50, None, None, Held::Nothing),
            (50, Some(50), None, LAST),
            (50, Some(50), Some(40), LAST),
            (50, Some(50), Some(50), LAST),
            // All removed, or the last ones.
            (50, None, Some(50), removed(Some(0))),
            (57, None, Some(50), removed(Some(7))),
            (57, Some(49), Some(50), removed(Some(7))),
            (57, Some(52), Some(50), removed(Some(7))),
            // Set back.
            (40, None, Some(50), set_back(Some(10))),
            (0, None, Some(50), set_back(Some(50))),
            (40, Some(40), Some(50), LAST),
            (45, Some(40), Some(50), set_back(Some(5))),
        ] {
            let said = standing(true, end, last, mark).held();
            assert_eq!(said, (held, Some(end)), "{end} {last:?} {mark:?}");
        }
    }

    #[test]
    fn a_stream_with_other_writers_says_no_more_than_it_knows() {
        for (end, last, mark, held, position) in [
            (50, None, None, Held::Nothing, None),
            (50, Some(45), None, LAST, Some(45)),
            (50, Some(45), Some(45), LAST, Some(45)),
            (57, None, Some(50), removed(None), Some(50)),
            (50, None, Some(50), removed(Some(0)), Some(50)),
            (57, Some(30), Some(50), removed(None), Some(50)),
            (40, None, Some(50), set_back(None), None),
            (40, Some(30), Some(50), LAST, Some(30)),
        ] {
            let said = standing(false, end, last, mark).held();
            assert_eq!(said, (held, position), "{end} {last:?} {mark:?}");
        }
        let refilled = |last| Standing { is_refilled: true, ..standing(false, 57, last, Some(50)) };
        assert_eq!(refilled(None).held(), (set_back(None), None));
        assert_eq!(refilled(Some(30)).held(), (LAST, Some(30)));
    }
}
