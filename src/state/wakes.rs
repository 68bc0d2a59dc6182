//! Wakes waiting threads and futures.
//!
//! A future's waker is the program's code: it may call the queue, and so wait for locks and for the
//! disk, but not for room. Only a thread calls it that holds no lock of the queue and for which no
//! thread waits. A thread that cannot promise that (the storage worker, a flush leader, a producer)
//! leaves the call to the delivery worker. The same holds for event subscribers.

use std::sync::atomic::Ordering;

use super::{LOOK_FOR_ROOM, State};
use crate::events;
use crate::storage::Storage;
use crate::threads::now;

impl<S: Storage> State<S> {
    /// Wakes readers for `count` new messages. The caller holds no lock. It has made the messages
    /// visible, and then saw `message_waiters` above zero.
    #[cold]
    pub(crate) fn wake_readers(&self, count: u64) {
        self.waiters.wake(count);
    }

    /// Wakes one waiting reader of the consumer in `row`. The caller holds no lock.
    #[inline]
    pub(crate) fn wake_reader(&self, row: u32) {
        if self.message_waiters.load(Ordering::Relaxed) != 0 {
            self.waiters.wake_one(row, None);
        }
    }

    /// Wakes all readers: threads here, futures through the delivery worker. Where that cannot run,
    /// the next call without a lock [wakes them](Self::wake_owed).
    #[cold]
    pub(crate) fn wake_readers_elsewhere(&self) {
        let futures_wait = self.waiters.wake_threads();
        if futures_wait && !self.delivery_worker.request(|wanted| wanted.wake_readers = true) {
            self.wakes_owed.store(true, Ordering::SeqCst);
        }
    }

    /// Wakes the readers that [`wake_readers_elsewhere`](Self::wake_readers_elsewhere) could not
    /// wake. The caller holds no lock.
    #[inline]
    pub(crate) fn wake_owed(&self) {
        if self.wakes_owed.load(Ordering::Relaxed) && self.wakes_owed.swap(false, Ordering::SeqCst)
        {
            self.wake_readers(u64::MAX);
        }
    }

    /// Makes the delivery worker wake the futures that wait for room. (Without a delivery worker
    /// they poll for room themselves.)
    pub(crate) fn wake_for_room_elsewhere(&self) {
        if !self.tasks.for_room.is_empty() {
            self.delivery_worker.request(|wanted| wanted.wake_for_room = true);
        }
    }

    /// Makes the delivery worker wake the futures that wait for the flush that has ended.
    pub(crate) fn wake_flushed_elsewhere(&self) {
        if !self.tasks.for_flush.is_empty() {
            self.delivery_worker.request(|wanted| wanted.wake_flushed = true);
        }
    }

    /// Makes the delivery worker wake all futures that wait for the storage worker.
    pub(crate) fn wake_tasks_elsewhere(&self) {
        self.wake_for_room_elsewhere();
        self.wake_flushed_elsewhere();
    }

    /// Makes the delivery worker wake the futures that wait for room again after [`LOOK_FOR_ROOM`].
    /// Returns false when there is no delivery worker.
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only futures ask"))]
    pub(crate) fn look_for_room_later(&self) -> bool {
        self.delivery_worker.request(|wanted| {
            if self.space.is_looked_for() {
                wanted.look_for_room.get_or_insert_with(|| now() + LOOK_FOR_ROOM);
            }
        })
    }

    /// Makes the delivery worker report the events that this thread has noted. Without a delivery
    /// worker they are dropped, so that they do not pile up.
    pub(crate) fn report_elsewhere(&self) {
        if events::are_noted() {
            let mut events = events::take();
            self.delivery_worker.request(|wanted| wanted.events.append(&mut events));
        }
    }
}
