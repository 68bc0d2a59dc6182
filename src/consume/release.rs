//! Closes the segments and views that a consumer keeps open between reads.

use std::sync::atomic::Ordering;

use crate::commit::Core;
use crate::consume::consumer_state::{ConsumerState, LockedState};
use crate::read::Cursor;
use crate::storage::Storage;

impl<S: Storage> ConsumerState<S> {
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
        let moves = self.cell.moves.load(Ordering::Acquire);
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
