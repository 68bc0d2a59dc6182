//! Frees space in the storage worker: of messages that are too old, that are dropped for new ones,
//! and of a long tail's segment that all consumers have read. It waits for no consumer; a busy one
//! releases its segment later.

use std::sync::atomic::Ordering;

use super::Core;
use super::storage_worker::Release;
use crate::error::Result;
use crate::storage::Storage;

impl<S: Storage> Core<S> {
    /// Reclaims drained segments, and wakes the threads and futures that wait for room.
    pub(crate) fn reclaim_and_wake(&self) -> Result<()> {
        let reclaimed = self.reclaim();
        self.wake_writers();
        reclaimed
    }

    /// Reclaims the drained segments that a busy queue left. Returns whether that gave space back:
    /// then the queue is not idle yet. Otherwise a request tells of the next one; what could not be
    /// freed waits for that, or for a producer that needs the space.
    pub(crate) fn reclaim_left(&self) -> bool {
        let Some(seen) = self.segments.list().are_drained() else {
            return false;
        };
        // A failed sync poisons the queue: the next call that writes returns the error.
        let _ = self.reclaim_and_wake();
        self.segments.list().watch_if_given_back(seen)
    }

    /// Drops the oldest messages ahead of need.
    pub(crate) fn make_room(&self, release: &Release<S>) -> Result<()> {
        let visible = self.visible.position.load(Ordering::Acquire);
        let unread = self.unread();
        if let Some(first_held) = self.segments.drop_ahead(&self.context(), visible) {
            self.oldest_seq.fetch_max(first_held, Ordering::AcqRel);
            self.note_evicted(unread);
            release(self);
        }
        self.reclaim_and_wake()
    }

    /// Drains a long tail's segment that all consumers have read, and evicts messages that are too
    /// old.
    pub(crate) fn look_at_ages(&self, release: &Release<S>) {
        let drained = self.drain_long_tail();
        if drained {
            release(self);
            // A failed sync poisons the queue: the next call that writes returns the error.
            let _ = self.reclaim_and_wake();
        }
        self.expire_old(&**release);
    }

    /// Evicts messages that are too old, and cuts files of segments that were closed early. While a
    /// reader has a removed segment open, asks the consumers again to release theirs.
    pub(crate) fn expire_old(&self, release: &dyn Fn(&Core<S>)) {
        if self.ages.is_none() {
            return;
        }
        if self.expire() || self.segments.has_removed_open() {
            release(self);
            // As above: a failed sync poisons the queue.
            let _ = self.reclaim_and_wake();
        }
        self.segments.cut_early_ends(&self.context());
    }
}
