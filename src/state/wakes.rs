//! Waking threads and futures.
//!
//! A future's waker is the program's code: it may call the queue, and wait. So it is called by a
//! thread that holds no lock of the queue and for which nobody waits. Who cannot promise that (the
//! storage worker, the leader of a flush, a producer) has the delivery worker call it. The same
//! holds for subscribers of events.

use std::sync::atomic::Ordering;

use super::{LOOK_FOR_ROOM, State};
use crate::events;
use crate::storage::Storage;
use crate::threads::now;

impl<S: Storage> State<S> {
    /// Wakes readers for `count` new messages. Called after the messages became visible, when the
    /// caller saw `message_waiters` above zero under the lock that made them visible. The caller
    /// holds no lock.
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

    /// Wakes all readers: threads here, futures by the delivery worker. Where that cannot run, the
    /// next call that holds no lock [does it](Self::wake_owed).
    #[cold]
    pub(crate) fn wake_readers_elsewhere(&self) {
        let futures_wait = self.waiters.wake_threads();
        if futures_wait && !self.delivery_worker.request(|wanted| wanted.wake_readers = true) {
            self.wakes_owed.store(true, Ordering::SeqCst);
        }
    }

    /// Wakes the readers that could not be woken before. The caller holds no lock.
    #[inline]
    pub(crate) fn wake_owed(&self) {
        if self.wakes_owed.load(Ordering::Relaxed) && self.wakes_owed.swap(false, Ordering::SeqCst)
        {
            self.wake_readers(u64::MAX);
        }
    }

    /// Has the futures woken that wait for room. (Without a thread that could do it they look by
    /// themselves.)
    pub(crate) fn wake_for_room_elsewhere(&self) {
        if !self.tasks.for_room.is_empty() {
            self.delivery_worker.request(|wanted| wanted.wake_for_room = true);
        }
    }

    /// Has the futures woken that wait for the flush that has ended.
    pub(crate) fn wake_flushed_elsewhere(&self) {
        if !self.tasks.for_flush.is_empty() {
            self.delivery_worker.request(|wanted| wanted.wake_flushed = true);
        }
    }

    /// Has all futures woken that wait for the storage worker.
    pub(crate) fn wake_tasks_elsewhere(&self) {
        self.wake_for_room_elsewhere();
        self.wake_flushed_elsewhere();
    }

    /// Has the futures that wait for room look again in a while. False when no thread can wake
    /// them.
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "only futures ask"))]
    pub(crate) fn look_for_room_later(&self) -> bool {
        self.delivery_worker.request(|wanted| {
            if self.space.is_looked_for() {
                wanted.look_for_room.get_or_insert_with(|| now() + LOOK_FOR_ROOM);
            }
        })
    }

    /// Has the events reported that this thread has noted. Where no thread can do it nobody
    /// reports them: they would become more and more.
    pub(crate) fn report_elsewhere(&self) {
        if events::are_noted() {
            let mut events = events::take();
            self.delivery_worker.request(|wanted| wanted.events.append(&mut events));
        }
    }
}
