//! What a consumer keeps open between reads, and when it releases that.

use std::sync::atomic::Ordering;

use crate::commit::Core;
use crate::consume::consumer_state::{ConsumerState, LockedState};
use crate::read::Cursor;
use crate::storage::Storage;

impl<S: Storage> ConsumerState<S> {
    /// Releases the segment and view when the segment is no longer part of the queue. Leaves a
    /// busy consumer alone.
    pub(crate) fn release_if_drained(&self, core: &Core<S>) {
        if let Some(mut locked) = self.locked.try_lock() {
            locked.release_if_drained(core);
        }
    }

    /// As [`release_if_drained`](Self::release_if_drained), but waits for a busy consumer.
    pub(crate) fn wait_and_release_if_drained(&self, core: &Core<S>) {
        self.locked.lock().release_if_drained(core);
    }

    /// Releases segment and view when the consumer has not moved since the last call. Leaves a
    /// busy consumer alone.
    pub(crate) fn release_if_idle(&self) {
        let moves = self.cell.moves.load(Ordering::Acquire);
        if self.moves_seen.swap(moves, Ordering::AcqRel) == moves
            && let Some(mut locked) = self.locked.try_lock()
        {
            locked.release();
        }
    }

    /// Releases the segments and views of all cursors. Leaves a busy consumer alone.
    pub(crate) fn release(&self) {
        if let Some(mut locked) = self.locked.try_lock() {
            locked.release();
            if let Some(ledger) = &mut locked.ledger {
                ledger.again.release();
            }
        }
    }

    /// Other consumers may have released a window: the next read asks for a better one.
    pub(crate) fn reconsider_window(&self) {
        let mut locked = self.locked.lock();
        locked.cursors().for_each(|cursor| cursor.reconsider_window());
    }

    /// Releases everything, at the end of a run. Makes the descriptor readable.
    pub(crate) fn end_run(&self, core: &Core<S>) {
        let mut locked = self.locked.lock();
        // A read that found the queue open and then waited for this lock checks once more.
        locked.special = true;
        locked.release();
        let mut rules = None;
        if let Some(ledger) = &mut locked.ledger {
            ledger.again.release();
            // Nothing is stored any more: what becomes of a delivery or a dead letter from here on
            // is not durable, and the files may be another's.
            ledger.epoch += 1;
            rules = ledger.redelivery.as_mut().map(|redelivery| redelivery.end_run());
        }
        locked.note_ready(core);
        drop(locked);
        // The other queue may be closed by this.
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

    /// Releases segment and view when the segment is no longer part of the queue.
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
