//! What a consumer keeps open between reads, and when it lets go of it.

use std::sync::atomic::Ordering;

use crate::commit::Core;
use crate::consume::standing::{Progress, Standing};
use crate::read::Cursor;
use crate::storage::Storage;

impl<S: Storage> Standing<S> {
    /// Lets go of the segment and view when the segment is no longer part of the queue. Leaves a
    /// busy consumer alone.
    pub(crate) fn let_go_if_drained(&self, core: &Core<S>) {
        if let Some(mut progress) = self.progress.try_lock() {
            progress.let_go_if_drained(core);
        }
    }

    /// As [`let_go_if_drained`](Self::let_go_if_drained), but waits for a busy consumer.
    pub(crate) fn wait_and_let_go_if_drained(&self, core: &Core<S>) {
        self.progress.lock().let_go_if_drained(core);
    }

    /// Lets go of segment and view when the consumer has not moved since the last call. Leaves a
    /// busy consumer alone.
    pub(crate) fn let_go_if_idle(&self) {
        let moves = self.cell.moves.load(Ordering::Acquire);
        if self.moves_seen.swap(moves, Ordering::AcqRel) == moves
            && let Some(mut progress) = self.progress.try_lock()
        {
            progress.let_go();
        }
    }

    /// Lets go of the segments and views of all cursors. Leaves a busy consumer alone.
    pub(crate) fn let_go(&self) {
        if let Some(mut progress) = self.progress.try_lock() {
            progress.let_go();
            if let Some(ledger) = &mut progress.ledger {
                ledger.again.let_go();
            }
        }
    }

    /// Other consumers may have let go of a window: the next read asks for a better one.
    pub(crate) fn reconsider_window(&self) {
        let mut progress = self.progress.lock();
        progress.cursors().for_each(|cursor| cursor.reconsider_window());
    }

    /// Lets go of everything, at the end of a run. Makes the descriptor readable.
    pub(crate) fn end_run(&self, core: &Core<S>) {
        let mut progress = self.progress.lock();
        // A read that found the queue open and then waited for this lock checks once more.
        progress.special |= !planted!(ReadersNotStopped);
        progress.let_go();
        let mut rules = None;
        if let Some(ledger) = &mut progress.ledger {
            ledger.again.let_go();
            // Nothing is stored any more: what becomes of a delivery or a letter from here on is
            // not durable, and the files may be another's.
            ledger.epoch += 1;
            rules = ledger.redelivery.as_mut().map(|redelivery| redelivery.end_run());
        }
        progress.note_ready(core);
        drop(progress);
        // The other queue may be closed by this.
        drop(rules);
    }
}

impl<S: Storage> Progress<S> {
    /// The cursors that keep a segment open between reads.
    fn cursors(&mut self) -> impl Iterator<Item = &mut Cursor<S::File>> {
        let behind = self.lanes.as_mut().map(|lanes| &mut lanes.cursor);
        std::iter::once(&mut self.cursor).chain(behind)
    }

    /// Lets go of segments and views.
    pub(super) fn let_go(&mut self) {
        self.cursors().for_each(|cursor| cursor.let_go());
    }

    /// Lets go of segment and view when the segment is no longer part of the queue.
    fn let_go_if_drained(&mut self, core: &Core<S>) {
        for cursor in self.cursors() {
            if let Some(life) = cursor.segment_life()
                && !core.segments.list().live.iter().any(|row| row.header.life == life)
            {
                cursor.let_go();
            }
        }
    }
}
