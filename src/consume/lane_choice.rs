//! Reads a consumer in two lanes: fresh messages as they come, and beside them the backlog.
//!
//! The consumer's cursor reads the fresh lane. When its next message is no longer fresh, the cursor
//! jumps to the end of the queue, and the messages that it skips become a stretch (`stretches`).
//! The backlog consists of the stretches, which have a cursor of their own, and of the returned
//! messages that were delivered before the last jump.

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

/// What a read in lanes reports beside its message.
#[derive(Debug, Default)]
pub(crate) struct LaneLook {
    /// When the backlog's rate allows its next message.
    pub(crate) again: Option<Instant>,
    /// The fresh lane has skipped messages: a reader that waits for the backlog must wake.
    pub(crate) has_jumped: bool,
}

impl<S: Storage> ConsumerState<S> {
    /// Sets lane `rules`: from now on the consumer is read in lanes.
    pub(crate) fn set_lanes(&self, core: &Core<S>, rules: LaneRules) -> Result<()> {
        core.check_readable()?;
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        locked.check(core, self)?;
        self.ledger(locked);
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
        locked.note_ready(core);
        Ok(())
    }

    /// Delivers the next message of one lane, or of both by their share.
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

    /// Skips all visible messages at the cursor, and returns their numbers.
    pub(crate) fn jump(&self, core: &Core<S>) -> Result<Range<u64>> {
        core.check_readable()?;
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        locked.check(core, self)?;
        let left = locked.jump(core);
        locked.note_ready(core);
        Ok(left)
    }

    /// The numbers of the skipped messages that are yet to be delivered, oldest first.
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
    /// When the rate allows the next message of the backlog, if it has one and must wait.
    fn backlog_due(&self) -> Option<Instant> {
        let ledger = self.ledger.as_ref()?;
        let waits = ledger.first_returned(Lane::Backlog).is_some();
        let at = self.lanes.as_ref().filter(|_| waits || !ledger.stretches.is_empty())?.due()?;
        (at > now()).then_some(at)
    }

    /// Moves messages that are no longer fresh to the backlog. Returns whether there were any.
    fn jump_if_behind(&mut self, core: &Core<S>) -> bool {
        let (Some(lanes), Some(ledger)) = (&mut self.lanes, &mut self.ledger) else {
            return false;
        };
        let mut is_more = false;
        // Returned messages stop being fresh at the same age as the others.
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

    /// Moves the cursor to the end of the visible messages, and makes a stretch of what it skips.
    fn jump(&mut self, core: &Core<S>) -> Range<u64> {
        let (spot, end) = (self.cursor.spot(), core.visible_end());
        // A default consumer that was removed and created again has no lanes. Nothing would read
        // the skipped messages.
        let (Some(_), Some(ledger)) = (&self.lanes, &mut self.ledger) else {
            return spot.seq..spot.seq;
        };
        let left = LeftBehind { spot, segment_end: segment_end(core, spot), end: end.seq };
        if left.spot.seq < left.end {
            ledger.stretches.leave(left);
            self.cursor.move_to(end);
            holds!(
                spot.position < end.position,
                "a jump from {spot:?} moves the cursor ahead, to {end:?}"
            );
        }
        left.spot.seq..left.end.max(spot.seq)
    }

    /// Restores the stretches of an earlier run: the numbers from the cursor to the highest done
    /// number that are not done. The cursor moves past that number.
    fn take_up_stretches(&mut self, core: &Core<S>) -> Result<()> {
        let at = self.cursor.spot();
        let Some(ledger) = self.ledger.as_deref_mut() else {
            return Ok(());
        };
        let Some(last) = ledger.done.last().filter(|last| *last >= at.seq) else {
            ledger.stretches.set(Vec::new(), at.seq);
            return Ok(());
        };
        // The messages may have been evicted since: the cursor meets that gap, and the done numbers
        // in it.
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
            // A part that begins in a gap: the stretch before it leads there.
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
}

/// The spot of the message; `None` if the queue no longer retains it. The caller holds the
/// consumer's lock, so the consumer's place keeps the segments.
fn spot_of<S: Storage>(core: &Core<S>, seq: u64) -> Result<Option<Spot>> {
    match Cursor::spot_of(core, seq, core.visible_end()) {
        Ok(spot) => Ok(Some(spot)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The end of the segment that contains the spot; the spot's position if no segment does.
fn segment_end<S: Storage>(core: &Core<S>, spot: Spot) -> u64 {
    let list = core.segments.list();
    let at = list.live.partition_point(|row| row.header.end() <= spot.position);
    list.live.get(at).map_or(spot.position, |row| row.header.end())
}

/// The stretch that a read of the lane searches first, if any.
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
