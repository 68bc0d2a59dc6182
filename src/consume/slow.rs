//! Reads on the slow path: for a consumer with deliveries or with a descriptor.
//!
//! The next message is the oldest returned one, or else the oldest skipped one, or else the next
//! one at the cursor that is not done. Taking a message receives and acknowledges it at once.
//!
//! The read that meets a gap reports it. When it cannot report all of it (an earlier read reported
//! a part, or messages of a batch come before the gap), the cursor and the stored place stay in
//! front of the gap. The next read meets it again, also after a close or a kill.

use std::time::Instant;

use crate::commit::Core;
use crate::consume::consumer_state::{ConsumerState, LockedState, reported};
use crate::consume::lane_search::{FoundAt, find_in_lane};
use crate::consume::step::{BeginsDefault, Deliver, DeliveryToken, Existence, Lane, Read, Step};
use crate::error::{Error, Gap, GapCause, Result};
use crate::events;
use crate::read::{Cursor, Record};
use crate::storage::Storage;
use crate::threads::MutexGuard;

/// What a call has done, for the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Nothing,
    /// The consumer took or acknowledged so many messages.
    Messages(usize),
    /// The read reported a gap.
    Gap(Gap),
}

impl Done {
    /// What a read that took so many messages has done.
    pub(super) fn of<R>(outcome: &Result<Option<R>, Box<Error>>, taken: usize) -> Done {
        match reported(outcome) {
            Some(gap) => Done::Gap(gap),
            None if taken != 0 => Done::Messages(taken),
            None => Done::Nothing,
        }
    }
}

/// What a read on the slow path remembers from its beginning.
pub(super) struct BegunSlow {
    /// The time, if a lease, a delay or a rate needs it.
    pub(super) clock: Option<Instant>,
    /// The end of the segment in which the lowest open message began.
    before: Option<u64>,
}

impl<S: Storage> ConsumerState<S> {
    /// Stores the place after the cursor moved over a gap, and counts the gap.
    #[cold]
    #[inline(never)]
    pub(super) fn pass_over<R>(
        &self,
        locked: &mut LockedState<S>,
        core: &Core<S>,
        outcome: &Result<Option<R>, Box<Error>>,
    ) {
        locked.store(&self.cell, locked.cursor.spot());
        self.cell.count_change();
        if let Some(gap) = reported(outcome) {
            core.count_gap(&gap);
        }
    }

    /// Finds and delivers the next message on the slow path; the caller passes the consumer's lock.
    #[cold]
    #[inline(never)]
    pub(crate) fn step_slowly<D: Deliver<S>>(
        &self,
        locked: MutexGuard<'_, LockedState<S>>,
        core: &Core<S>,
        what: Read,
        delivery: D,
        if_gone: Option<&dyn BeginsDefault>,
    ) -> Step<D::Delivered> {
        match self.existing(locked, if_gone) {
            Ok(mut locked) => self.step_slow(&mut locked, core, what, delivery).0,
            Err(error) => Step::of(Err(error.into())),
        }
    }

    /// Returns the consumer's lock. `if_gone` creates the default consumer first if it does not
    /// exist.
    pub(super) fn existing<'a>(
        &'a self,
        mut locked: MutexGuard<'a, LockedState<S>>,
        if_gone: Option<&dyn BeginsDefault>,
    ) -> Result<MutexGuard<'a, LockedState<S>>> {
        while locked.existence == Existence::NotYet
            && let Some(engine) = if_gone
        {
            drop(locked);
            engine.begin_default()?;
            locked = self.locked.lock();
        }
        Ok(locked)
    }

    /// Finds and delivers the next message on the slow path, while the caller holds the consumer's
    /// lock. A message that `delivery` did not take stays at the cursor.
    #[cold]
    #[inline(never)]
    pub(crate) fn step_slow<D: Deliver<S>>(
        &self,
        locked: &mut LockedState<S>,
        core: &Core<S>,
        what: Read,
        delivery: D,
    ) -> (Step<D::Delivered>, DeliveryToken) {
        self.step_in_lane(locked, core, what, Lane::Oldest, delivery)
    }

    /// Finds and delivers the next message of one lane, while the caller holds the consumer's lock.
    pub(super) fn step_in_lane<D: Deliver<S>>(
        &self,
        locked: &mut LockedState<S>,
        core: &Core<S>,
        what: Read,
        lane: Lane,
        mut delivery: D,
    ) -> (Step<D::Delivered>, DeliveryToken) {
        let begun = match locked.begin_slow(core, self) {
            Ok(begun) => begun,
            Err(error) => return (Step::of(Err(error.into())), DeliveryToken::default()),
        };
        let mut handed = DeliveryToken::default();
        let outcome =
            locked.deliver_next(core, what, lane, &mut delivery, begun.clock, &mut handed);
        let takes = !what.receives() && what != Read::Look;
        let taken = usize::from(takes && matches!(&outcome, Ok(Some(it)) if D::took(it)));
        let crossed = self.end_slow(locked, core, begun, Done::of(&outcome, taken));
        (Step { outcome, crossed, moved: taken != 0 }, handed)
    }

    /// Stores what the reads since [`begin_slow`](LockedState::begin_slow) have done. Returns
    /// whether the engine must act (see [`Step::crossed`]).
    #[inline(always)]
    pub(super) fn end_slow(
        &self,
        locked: &mut LockedState<S>,
        core: &Core<S>,
        begun: BegunSlow,
        done: Done,
    ) -> bool {
        let crossed = self.store_progress(locked, core, begun.before, done);
        // The reads may have met messages that an earlier run rejected: the caller wakes the
        // delivery worker for them.
        crossed || locked.ledger.as_ref().is_some_and(|ledger| ledger.pending_dead_letters() > 0)
    }

    /// Stores the place and the done ranges if they changed, and counts `done`. `before` is the end
    /// of the segment in which the lowest open message began. Returns whether the cursor or the
    /// place left a segment.
    pub(super) fn store_progress(
        &self,
        locked: &mut LockedState<S>,
        core: &Core<S>,
        before: Option<u64>,
        done: Done,
    ) -> bool {
        let cursor = locked.cursor.spot();
        let spot = match &locked.ledger {
            // A message that an earlier run delivered may be open at the cursor or beyond it.
            Some(ledger) => ledger.lowest().map_or(cursor, |lowest| lowest.min(cursor)),
            _ => cursor,
        };
        let place = self.cell.spot();
        let moves = spot != place;
        let mut changed = false;
        if let Some(ledger) = &mut locked.ledger {
            changed = ledger.forget_before(spot);
        }
        if moves || changed || done != Done::Nothing {
            if moves {
                locked.store(&self.cell, spot);
            }
            if changed && let Some(ledger) = &mut locked.ledger {
                reached!("before acknowledgements are stored");
                ledger.store(spot, || core.acks_row(self.row, self.name()));
            }
            self.cell.count_change();
            match done {
                Done::Messages(count) => self.cell.count_taken(count as u64),
                Done::Gap(gap) => core.count_gap(&gap),
                Done::Nothing => {}
            }
        }
        self.note_change(locked, core);
        check!(locked.check_place(core, &self.cell));
        // `|`, not `||`: the cursors' flags must be taken in any case.
        locked.take_crossed() | before.is_some_and(|end| spot.position >= end)
    }

    /// Delivers the next message, to be acknowledged later.
    pub(crate) fn receive<D: Deliver<S>>(
        &self,
        core: &Core<S>,
        delivery: D,
        if_gone: Option<&dyn BeginsDefault>,
    ) -> (Step<D::Delivered>, DeliveryToken) {
        let existing =
            core.check_readable().and_then(|()| self.existing(self.locked.lock(), if_gone));
        let mut locked = match existing {
            Ok(locked) => locked,
            Err(error) => return (Step::of(Err(error.into())), DeliveryToken::default()),
        };
        self.ledger(&mut locked);
        self.step_slow(&mut locked, core, Read::Receive, delivery)
    }

    /// Updates counters and descriptor after messages were returned or rejected, or a lease has
    /// ended.
    pub(super) fn note_change(&self, locked: &mut LockedState<S>, core: &Core<S>) {
        if let Some(redelivery) = locked.ledger.as_mut().and_then(|it| it.redelivery.as_mut()) {
            while let Some(seq) = redelivery.take_rejection() {
                core.count_rejected(&Gap { first: seq, last: seq, cause: GapCause::Rejected });
            }
            redelivery.store_changed();
            if redelivery.take_report_full() {
                events::counts_do_not_fit(core.storage.path(), self.name());
            }
        }
        self.count_in_flight(locked);
        locked.note_ready(core);
    }
}

impl<S: Storage> LockedState<S> {
    /// Begins a call on the slow path, which ends with [`end_slow`](ConsumerState::end_slow).
    #[inline(always)]
    pub(super) fn begin_slow(
        &mut self,
        core: &Core<S>,
        consumer: &ConsumerState<S>,
    ) -> Result<BegunSlow> {
        // Checked before anything is stored: the index row of a removed consumer may belong to
        // another consumer by now.
        self.check(core, consumer)?;
        let clock = self.ledger.as_mut().and_then(|ledger| ledger.tick_if_needed());
        let before = self.ledger.as_ref().and_then(|ledger| ledger.lowest_segment_end());
        Ok(BegunSlow { clock, before })
    }

    /// Finds and delivers the next message of one lane, and steps over it. Stores nothing.
    #[inline(always)]
    pub(super) fn deliver_next<D: Deliver<S>>(
        &mut self,
        core: &Core<S>,
        what: Read,
        lane: Lane,
        delivery: &mut D,
        clock: Option<Instant>,
        handed: &mut DeliveryToken,
    ) -> Result<Option<D::Delivered>, Box<Error>> {
        loop {
            let (at, record) = match find_in_lane(self, core, what, lane) {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let Some(delivered) = delivery.deliver(self.cursor_at(at), record) else {
                // `delivery` wants a verified payload: the next round finds the record again.
                continue;
            };
            if what != Read::Look && D::took(&delivered) {
                *handed = self.take(at, record, what, clock);
            }
            if at == FoundAt::Again {
                self.cursor_at(at).release();
            }
            return Ok(Some(delivered));
        }
    }

    fn cursor_at(&mut self, at: FoundAt) -> &mut Cursor<S::File> {
        match (at, &mut self.lanes, &mut self.ledger) {
            (FoundAt::Behind(_), Some(lanes), _) => &mut lanes.cursor,
            (FoundAt::Again, _, Some(ledger)) => &mut ledger.again,
            _ => &mut self.cursor,
        }
    }

    /// Whether a cursor left a segment, or needs a window or a descriptor.
    fn take_crossed(&mut self) -> bool {
        let behind = self.lanes.as_mut().is_some_and(|lanes| lanes.cursor.take_crossed());
        self.cursor.take_crossed() | behind
    }

    /// Steps over the found message, and delivers it or makes it done.
    fn take(
        &mut self,
        at: FoundAt,
        record: Record,
        what: Read,
        clock: Option<Instant>,
    ) -> DeliveryToken {
        let cursor = self.cursor_at(at);
        let (position, segment_end) = (cursor.spot().position, cursor.segment_end());
        if at != FoundAt::Again {
            cursor.advance();
        }
        let (spot, end) = (cursor.spot(), cursor.segment_end());
        let Some(ledger) = &mut self.ledger else {
            return DeliveryToken::default();
        };
        if let FoundAt::Behind(index) = at {
            ledger.stretches.advance(index, spot, end);
        }
        match (at, what.receives()) {
            (FoundAt::Again, true) => return ledger.hand_out_again(record.seq, clock),
            (_, true) => {
                return ledger.hand_out(record.seq, position, segment_end, clock);
            }
            (FoundAt::Again, _) => {
                ledger.finish(record.seq);
            }
            _ => ledger.note_done(record.seq, record.seq),
        }
        DeliveryToken::default()
    }
}
