//! Creates and removes a consumer, and closes what it keeps open between reads.
//!
//! The default consumer has a state as long as the queue is open: a program may look at its
//! messages, and ask for its descriptor, before it reads anything. The first call that reads gives
//! it a place in the index; from then until its removal it keeps messages in the queue.

use std::sync::atomic::Ordering;

use crate::commit::Core;
use crate::consume::consumer_state::{ConsumerState, LockedState};
use crate::consume::ledger::Ledger;
use crate::consume::redelivery_state::Rules;
use crate::consume::step::Existence;
use crate::error::Result;
use crate::format::Spot;
use crate::index::{AcksRowIs, PlaceRow};
use crate::read::Cursor;
use crate::storage::Storage;

impl<S: Storage> ConsumerState<S> {
    /// Whether the consumer has a place in the index.
    #[inline]
    pub(crate) fn exists(&self) -> bool {
        self.exists.load(Ordering::Acquire)
    }

    /// How often the consumer was removed. A waiting call notes the count when it begins, and ends
    /// when the count has changed. A removal raises the count before it wakes the waiters.
    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::SeqCst)
    }

    /// Sets where the index stores the default consumer's place, before that consumer begins.
    pub(crate) fn set_row(&self, place_row: PlaceRow<S::File>) {
        self.locked.lock().place_row = place_row;
    }

    /// Makes the consumer exist at `spot`, which the index has. `moves` is 1 when the index did not
    /// have that place before.
    pub(crate) fn begin(&self, spot: Spot, moves: u64, ledger: Option<Ledger<S::File>>) {
        let mut locked = self.locked.lock();
        self.cell.begin(spot, moves);
        locked.cursor.move_to(spot);
        locked.existence = Existence::Exists;
        if let Some(ledger) = ledger {
            self.has_ledger.store(true, Ordering::Release);
            locked.ledger = Some(Box::new(ledger));
        }
        locked.special = locked.ledger.is_some() || locked.ready.is_some();
        check!(let place = self.cell.spot());
        holds!(place == spot, "a consumer begins at {spot:?}, and others see it at {place:?}");
        self.exists.store(true, Ordering::Release);
    }

    /// Removes the consumer from the queue: its place keeps no segment any more, even after an
    /// error. Returns its rules too, which may hold another queue: the caller drops them without
    /// holding a lock, for that may close the other queue.
    pub(crate) fn remove(&self, core: &Core<S>) -> (Result<()>, Option<Rules>) {
        let rules = {
            let mut locked = self.locked.lock();
            self.exists.store(false, Ordering::Release);
            self.removals.fetch_add(1, Ordering::SeqCst);
            locked.existence =
                if self.is_default() { Existence::NotYet } else { Existence::Removed };
            locked.special = true;
            locked.release();
            locked.lanes = None;
            let redelivery = locked.ledger.as_mut().and_then(|ledger| ledger.release());
            self.count_in_flight(&locked);
            locked.note_ready(core);
            redelivery.map(|redelivery| redelivery.rules)
        };
        let cleared = core.index.clear_acks(self.row, AcksRowIs::Free);
        core.index.remove_consumer(self.row, self.name());
        core.places.remove(&self.cell);
        (cleared, rules)
    }

    /// Releases segment and view if the segment is no longer part of the queue. Skips a consumer
    /// whose lock is taken.
    pub(crate) fn release_if_drained(&self, core: &Core<S>) {
        if let Some(mut locked) = self.locked.try_lock() {
            locked.release_if_drained(core);
        }
    }

    /// Releases segment and view if the segment is no longer part of the queue. Waits for the lock.
    pub(crate) fn wait_and_release_if_drained(&self, core: &Core<S>) {
        self.locked.lock().release_if_drained(core);
    }

    /// Releases segment and view if the consumer has not moved since the last call. Skips a
    /// consumer whose lock is taken.
    pub(crate) fn release_if_idle(&self) {
        let moves = self.cell.moves();
        if self.moves_seen.swap(moves, Ordering::AcqRel) == moves
            && let Some(mut locked) = self.locked.try_lock()
        {
            locked.release();
        }
    }

    /// Releases the segments and views of all cursors. Skips a consumer whose lock is taken.
    pub(crate) fn release(&self) {
        if let Some(mut locked) = self.locked.try_lock() {
            locked.release();
            if let Some(ledger) = &mut locked.ledger {
                ledger.again.release();
            }
        }
    }

    /// Has the next read ask for a better window: other consumers may have released one.
    pub(crate) fn reconsider_window(&self) {
        let mut locked = self.locked.lock();
        locked.cursors().for_each(|cursor| cursor.reconsider_window());
    }

    /// Ends the run: releases everything and makes the descriptor readable.
    pub(crate) fn end_run(&self, core: &Core<S>) {
        let mut locked = self.locked.lock();
        // A read that found the queue open and then waited for this lock must check again.
        locked.special = true;
        locked.release();
        let mut rules = None;
        if let Some(ledger) = &mut locked.ledger {
            ledger.again.release();
            // After the close the files may belong to another process: nothing is stored, so
            // deliveries and dead letters that end from here on are not durable.
            ledger.epoch += 1;
            rules = ledger.redelivery.as_mut().map(|redelivery| redelivery.end_run());
        }
        locked.note_ready(core);
        drop(locked);
        // Dropping the rules may close the other queue, so no lock is held.
        drop(rules);
    }
}

impl<S: Storage> LockedState<S> {
    pub(crate) fn exists(&self) -> bool {
        self.existence == Existence::Exists
    }

    /// Fails when the consumer was removed or the queue is closed, for a call that only looks: the
    /// default consumer need not exist.
    pub(crate) fn check_not_removed(
        &self,
        core: &Core<S>,
        consumer: &ConsumerState<S>,
    ) -> Result<()> {
        match self.existence {
            Existence::NotYet => core.check_readable(),
            _ => self.check(core, consumer),
        }
    }

    /// Whether the default consumer would find a message if it began now.
    pub(super) fn would_find(&self, core: &Core<S>) -> bool {
        let end = core.visible.spot();
        core.unclaimed(end).seq < end.seq
    }

    /// The cursors that keep a segment open between reads.
    fn cursors(&mut self) -> impl Iterator<Item = &mut Cursor<S::File>> {
        let behind = self.lanes.as_mut().map(|lanes| &mut lanes.cursor);
        std::iter::once(&mut self.cursor).chain(behind)
    }

    /// Releases segments and views.
    pub(super) fn release(&mut self) {
        self.cursors().for_each(|cursor| cursor.release());
    }

    /// Releases segment and view if the segment is no longer part of the queue.
    fn release_if_drained(&mut self, core: &Core<S>) {
        for cursor in self.cursors() {
            if let Some(life) = cursor.segment_life()
                && !core.segments.list().live.iter().any(|row| row.header.life == life)
            {
                cursor.release();
            }
        }
    }
}
