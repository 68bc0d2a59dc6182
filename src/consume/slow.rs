//! Reads on the slow path: for a consumer with deliveries or with a descriptor.
//!
//! The next message is the oldest returned one, or else the oldest skipped one, or else the next
//! one at the cursor that is not done. Taking a message receives and acknowledges it at once.
//!
//! The read that meets a gap reports it. When it cannot report all of it (an earlier read reported
//! a part, or messages of a batch come before the gap), the cursor and the stored place stay in
//! front of the gap. The next read meets it again, also after a close or a kill.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::commit::Core;
use crate::consume::consumer_state::{ConsumerState, LockedState, reported};
use crate::consume::find_next::{FoundAt, find_in_lane};
use crate::consume::ledger::Ledger;
use crate::consume::step::{BeginsDefault, Deliver, DeliveryToken, Existence, Lane, Read, Step};
use crate::error::{Error, Gap, Result};
use crate::format::{NumberRange, Spot};
use crate::read::{Cursor, Record};
use crate::storage::Storage;
use crate::threads::MutexGuard;
use crate::threads::ready::Ready;

/// A snapshot of a consumer.
#[derive(Debug, Default)]
pub(crate) struct Stand {
    pub(crate) place: Spot,
    /// The numbers that are done beyond the place, and perhaps some before it.
    pub(crate) done: Vec<NumberRange>,
    pub(crate) in_flight: u64,
}

/// What a call has done, for the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Nothing,
    /// The consumer took or acknowledged a message.
    Message,
    /// The read reported a gap.
    Gap(Gap),
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
        self.store_move(locked);
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
    fn existing<'a>(
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
        // Checked before anything is stored: the index row of a removed consumer may belong to
        // another consumer by now.
        if let Err(error) = locked.check(core, self) {
            return (Step::of(Err(error.into())), DeliveryToken::default());
        }
        let clock = locked.ledger.as_mut().and_then(|ledger| ledger.tick_if_needed());
        let before = locked.ledger.as_ref().and_then(|ledger| ledger.lowest_segment_end());
        let mut handed = DeliveryToken::default();
        let mut moved = false;
        let outcome = loop {
            let (at, record) = match find_in_lane(locked, core, what, lane) {
                Ok(Some(found)) => found,
                Ok(None) => break Ok(None),
                Err(error) => break Err(error.into()),
            };
            let Some(delivered) = delivery.deliver(locked.cursor_at(at), record) else {
                // `delivery` wants a verified payload: the next round finds the record again.
                continue;
            };
            if what != Read::Look && D::took(&delivered) {
                moved = what != Read::Receive;
                handed = locked.take(at, record, what, clock);
            }
            if at == FoundAt::Again {
                locked.cursor_at(at).release();
            }
            break Ok(Some(delivered));
        };
        let reported = reported(&outcome);
        let done = reported.map_or(if moved { Done::Message } else { Done::Nothing }, Done::Gap);
        let crossed = self.store_progress(locked, core, before, done);
        // The read may have met messages that an earlier run rejected: the caller wakes the
        // delivery worker for them.
        let has_dead_letters =
            locked.ledger.as_ref().is_some_and(|ledger| ledger.pending_dead_letters() > 0);
        (Step { outcome, crossed: crossed || has_dead_letters, moved }, handed)
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
        let moves = spot != locked.stored;
        let mut changed = false;
        if let Some(ledger) = &mut locked.ledger {
            changed = ledger.forget_before(spot);
        }
        if moves || changed || done != Done::Nothing {
            if moves {
                locked.store(&self.cell, spot);
            }
            if changed && let Some(ledger) = &mut locked.ledger {
                ledger.store(locked.stored, || core.acks_row(self.row, self.name()));
            }
            self.cell.count_move();
            match done {
                Done::Message => self.cell.count_taken(),
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

    /// Returns the ledger; the first call creates it.
    pub(super) fn ledger<'a>(&self, locked: &'a mut LockedState<S>) -> &'a mut Ledger<S::File> {
        locked.special = true;
        self.has_ledger.store(true, Ordering::Release);
        locked.ledger.get_or_insert_with(|| Box::new(Ledger::new(&[], None)))
    }

    /// The number of messages in flight, read without the lock.
    pub(crate) fn in_flight(&self, core: &Core<S>) -> u64 {
        if core.forked() { 0 } else { self.cell.in_flight.load(Ordering::Relaxed) }
    }

    /// Publishes the number of messages in flight.
    pub(crate) fn count_in_flight(&self, locked: &LockedState<S>) {
        let in_flight = locked.ledger.as_ref().map_or(0, |ledger| ledger.in_flight() as u64);
        self.cell.in_flight.store(in_flight, Ordering::Relaxed);
    }

    /// The number of visible messages from the place on, without those that are done or known to be
    /// missing.
    pub(crate) fn len(&self, core: &Core<S>) -> u64 {
        if core.forked() {
            return 0;
        }
        let counted = self.glance(|locked| {
            let done = locked.ledger.iter().flat_map(|ledger| ledger.done());
            core.len_from(locked.stored.seq, done)
        });
        counted.unwrap_or_else(|| core.len_from(self.seq(), std::iter::empty()))
    }

    /// Takes a snapshot of the consumer.
    pub(crate) fn stand(&self, core: &Core<S>) -> Stand {
        let stand = self.glance(|locked| Stand {
            place: locked.stored,
            done: locked.ledger.iter().flat_map(|ledger| ledger.done()).collect(),
            in_flight: locked.ledger.as_ref().map_or(0, |ledger| ledger.in_flight() as u64),
        });
        stand.unwrap_or_else(|| Stand {
            place: self.cell.spot(),
            done: Vec::new(),
            in_flight: self.in_flight(core),
        })
    }

    /// Runs `look` under the lock if there is a ledger: the number of messages does not follow from
    /// the place alone then.
    fn glance<R>(&self, look: impl FnOnce(&LockedState<S>) -> R) -> Option<R> {
        self.has_ledger.load(Ordering::Acquire).then(|| look(&self.locked.lock()))
    }

    /// Stores the descriptor, which reads and producers keep up to date from now on.
    pub(crate) fn set_ready(&self, core: &Core<S>, ready: Arc<Ready>) {
        let _ = self.ready.set(Arc::clone(&ready));
        let mut locked = self.locked.lock();
        locked.ready = Some(ready);
        locked.special = true;
        locked.note_ready(core);
    }
}

impl<S: Storage> LockedState<S> {
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
        match (at, what) {
            (FoundAt::Again, Read::Receive) => return ledger.hand_out_again(record.seq, clock),
            (_, Read::Receive) => {
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
