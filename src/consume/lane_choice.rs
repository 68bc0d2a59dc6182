//! Two lanes over one consumer: what is fresh, as it comes, and beside it the backlog.
//!
//! The consumer's cursor reads the fresh lane. When its next message is no longer fresh it jumps to
//! the end of the queue, and what waited is left behind as a stretch (`stretches`). The backlog is
//! the stretches, which have a cursor of their own, and what was handed out before the last jump
//! and comes again.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::commit::Core;
use crate::consume::consumer_state::{ConsumerState, LockedState};
use crate::consume::ledger::Ledger;
use crate::consume::step::{Deliver, DeliveryToken, Lane, Read, Step};
use crate::consume::stretches::LeftBehind;
use crate::consume::two_lanes::{LaneRules, TwoLanes};
use crate::error::{Error, Result};
use crate::format::{NumberRange, Spot};
use crate::read::Cursor;
use crate::storage::{Storage, StorageFile};
use crate::threads::now;

/// What a read in lanes came to beside its message.
#[derive(Debug, Default)]
pub(crate) struct LaneLook {
    /// When the backlog's rate allows the message that it holds back.
    pub(crate) again: Option<Instant>,
    /// The fresh lane has left messages behind, for who waits for the backlog.
    pub(crate) has_jumped: bool,
}

impl<S: Storage> ConsumerState<S> {
    /// The consumer is read in lanes from now on, by `rules`.
    pub(crate) fn set_lanes(&self, core: &Core<S>, rules: LaneRules) -> Result<()> {
        core.check_readable()?;
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        locked.check(core, self)?;
        let counted = self.ledger(locked).counted();
        // Before anything changes.
        let counted = spots_of_counted(core, counted.into_iter())?;
        let begun = (core.visible.seq.load(Ordering::Acquire), core.storage.now());
        match &mut locked.lanes {
            Some(lanes) => {
                if !lanes.rules.has_age() {
                    lanes.begun = begun;
                }
                (lanes.rules, lanes.turn, lanes.backlog_at) = (rules, 0, None);
            }
            None => {
                locked.take_up_stretches(core)?;
                locked.lanes = Some(Box::new(TwoLanes::new(rules, begun)));
            }
        }
        locked.take_back(core, counted);
        locked.note_ready(core);
        Ok(())
    }

    /// Hands out the next message of the lanes: of one, or of both as they share.
    pub(crate) fn receive_in_lanes<D: Deliver<S> + Copy>(
        &self,
        core: &Core<S>,
        delivery: D,
        only: Option<Lane>,
        look: &mut LaneLook,
    ) -> (Step<D::Delivered>, DeliveryToken) {
        let step = |outcome| (Step::of(outcome), DeliveryToken::default());
        if let Err(error) = core.check_readable() {
            return step(Err(error.into()));
        }
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        if let Err(error) = locked.check(core, self) {
            return step(Err(error.into()));
        }
        if only != Some(Lane::Backlog) {
            look.has_jumped = locked.jump_if_behind(core);
        }
        let shared = locked.lanes.as_ref().map_or([Lane::Oldest; 2], |lanes| lanes.order());
        let only = only.map(|lane| [lane]);
        let mut crossed = false;
        for lane in only.as_ref().map_or(&shared[..], |only| &only[..]) {
            let lane = *lane;
            if lane == Lane::Backlog
                && let Some(due) = locked.backlog_due()
            {
                look.again = Some(due);
                continue;
            }
            let (step, handed) = self.step_in_lane(locked, core, Read::Receive, lane, delivery);
            crossed |= step.crossed;
            if matches!(step.outcome, Ok(None)) {
                continue;
            }
            if let (Ok(_), Some(lanes)) = (&step.outcome, &mut locked.lanes) {
                lanes.count_turn(lane);
                if lane == Lane::Backlog {
                    lanes.count_rate();
                }
            }
            return (Step { crossed, ..step }, handed);
        }
        (Step { crossed, ..Step::of(Ok(None)) }, DeliveryToken::default())
    }

    /// Leaves what waits behind, and returns its numbers.
    pub(crate) fn jump(&self, core: &Core<S>) -> Result<Range<u64>> {
        core.check_readable()?;
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        locked.check(core, self)?;
        let left = locked.jump(core);
        locked.note_ready(core);
        Ok(left)
    }

    /// The numbers of what was left behind and has yet to be handed out, the oldest first.
    pub(crate) fn backlog(&self, core: &Core<S>) -> Vec<Range<u64>> {
        if core.check_readable().is_err() {
            return Vec::new();
        }
        self.with_locked(|locked| {
            let ledger = locked.ledger.as_deref();
            let stretches = ledger.into_iter().flat_map(|ledger| ledger.stretches.iter());
            stretches.map(|left| left.spot.seq..left.end).collect()
        })
    }
}

impl<S: Storage> LockedState<S> {
    /// When the rate allows the next message of the backlog, if not now and there is one.
    fn backlog_due(&self) -> Option<Instant> {
        let ledger = self.ledger.as_ref()?;
        let waits = ledger.first_returned(Lane::Backlog).is_some();
        let at = self.lanes.as_ref().filter(|_| waits || !ledger.stretches.is_empty())?.due()?;
        (at > now()).then_some(at)
    }

    /// True when something is the backlog's that was not before.
    fn jump_if_behind(&mut self, core: &Core<S>) -> bool {
        let (Some(lanes), Some(ledger)) = (&mut self.lanes, &mut self.ledger) else {
            return false;
        };
        let mut is_more = false;
        // What was given back is fresh for no longer than the rest.
        while let Some((seq, open)) = ledger.first_returned(Lane::Fresh)
            && lanes.is_behind(core, Spot { position: open.position, seq })
        {
            ledger.stretches.raise_fresh_from(seq + 1);
            is_more = true;
        }
        if lanes.is_behind(core, self.cursor.spot()) {
            is_more |= !self.jump(core).is_empty();
        }
        is_more
    }

    /// Whether a lane has a message that may be handed out, although the oldest one may not.
    pub(super) fn has_allowed(&self, core: &Core<S>, ledger: &Ledger<S::File>) -> bool {
        let Some(lanes) = &self.lanes else {
            return false;
        };
        let ahead = self.cursor.spot();
        let is_ahead = ahead.position < core.visible.position.load(Ordering::Acquire)
            || ledger.first_returned(Lane::Fresh).is_some();
        let left = next_stretch(ledger, Lane::Backlog, Some(lanes));
        is_ahead && ledger.may_hand_out(Lane::Fresh, ahead.seq)
            || left.is_some_and(|(_, left)| ledger.may_hand_out(Lane::Backlog, left.spot.seq))
    }

    /// Moves the cursor to the end of what is visible, and leaves what lies before it behind.
    fn jump(&mut self, core: &Core<S>) -> Range<u64> {
        let (spot, end) = (self.cursor.spot(), core.visible_end());
        // The default consumer has no lanes when it was removed and has begun again. Nothing would
        // read what is left behind.
        let (Some(_), Some(ledger)) = (&self.lanes, &mut self.ledger) else {
            return spot.seq..spot.seq;
        };
        let left = LeftBehind { spot, segment_end: segment_end(core, spot), end: end.seq };
        if left.spot.seq < left.end {
            ledger.stretches.leave(left);
            self.cursor.move_to(end);
        }
        left.spot.seq..left.end.max(spot.seq)
    }

    /// What an earlier run left behind: the numbers from the cursor to the highest one that is done
    /// which are not. The cursor goes on behind that one.
    fn take_up_stretches(&mut self, core: &Core<S>) -> Result<()> {
        let at = self.cursor.spot();
        let Some(ledger) = self.ledger.as_deref_mut() else {
            return Ok(());
        };
        let Some(last) = ledger.done.last().filter(|last| *last >= at.seq) else {
            ledger.stretches.set(Vec::new(), at.seq);
            return Ok(());
        };
        // Messages may have been evicted since: the cursor meets that gap, and what is done in it.
        let Some(behind) = spot_of(core, last + 1)? else {
            ledger.stretches.set(Vec::new(), at.seq);
            return Ok(());
        };
        let mut left: Vec<LeftBehind> = Vec::new();
        let mut add = |spot: Option<Spot>, end| match (spot, left.last_mut()) {
            (None, Some(before)) => before.end = end,
            (spot, _) => {
                let spot = spot.unwrap_or(at);
                left.push(LeftBehind { spot, segment_end: segment_end(core, spot), end });
            }
        };
        for NumberRange { first, last } in ledger.done.not_in(at.seq, last) {
            // One that lies in a gap: the stretch before it leads there.
            let found = if first == at.seq { Some(at) } else { spot_of(core, first)? };
            add(found.filter(|spot| spot.seq == first), last + 1);
        }
        if behind.seq > last + 1 {
            add(None, behind.seq);
        }
        ledger.stretches.set(left, behind.seq);
        self.cursor.move_to(behind);
        Ok(())
    }

    /// What an earlier run counted comes again first, as what is given back does. While the row of
    /// counts is full nothing else may be handed out, so it must not lie behind something else.
    pub(super) fn take_back(&mut self, core: &Core<S>, counted: Vec<(u64, Option<Spot>)>) {
        let (Some(ledger), Some(_)) = (&mut self.ledger, &self.lanes) else {
            return;
        };
        for (seq, spot) in counted {
            match spot {
                Some(spot) => ledger.take_back(spot, segment_end(core, spot)),
                // It is lost: the read that meets the gap reports it.
                None => ledger.forget_count(seq),
            }
        }
    }
}

/// Where the messages begin that an earlier run `counted`; `None` for one that is lost.
pub(super) fn spots_of_counted<S: Storage>(
    core: &Core<S>,
    counted: impl Iterator<Item = u64>,
) -> Result<Vec<(u64, Option<Spot>)>> {
    let spot = |seq| Ok((seq, spot_of(core, seq)?.filter(|spot| spot.seq == seq)));
    counted.map(spot).collect()
}

/// Where the message begins; `None` for one that is no longer held. The consumer's place keeps the
/// segments: the caller holds its lock.
fn spot_of<S: Storage>(core: &Core<S>, seq: u64) -> Result<Option<Spot>> {
    match Cursor::spot_of(core, seq, core.visible_end()) {
        Ok(spot) => Ok(Some(spot)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The end of the segment that the spot lies in; the spot's position when it is in none.
fn segment_end<S: Storage>(core: &Core<S>, spot: Spot) -> u64 {
    let list = core.segments.list();
    let at = list.live.partition_point(|row| row.header.end() <= spot.position);
    list.live.get(at).map_or(spot.position, |row| row.header.end())
}

/// The stretch that a read looks into first, if it looks into any.
pub(super) fn next_stretch<F: StorageFile>(
    ledger: &Ledger<F>,
    lane: Lane,
    lanes: Option<&TwoLanes<F>>,
) -> Option<(usize, LeftBehind)> {
    let count = ledger.stretches.len();
    let at = match lane {
        _ if count == 0 => return None,
        Lane::Fresh => return None,
        Lane::Oldest => 0,
        Lane::Backlog => lanes.map_or(0, |lanes| lanes.current(count)),
    };
    ledger.stretches.get(at).map(|stretch| (at, stretch))
}
