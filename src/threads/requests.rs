//! What the queue's two workers are requested to do.
//!
//! The storage worker flushes, reserves numbers and gives space back. Producers wait for it with
//! their lock held, so it waits for no consumer and no producer, and runs no code of the program's.
//! The delivery worker does all that may wait for them: nobody waits for it with a lock held.

use std::time::Instant;

use crate::error::Result;
use crate::threads::ranks::check_wait_for_storage_worker;
use crate::threads::worker::Worker;
use crate::threads::{Thread, current, now, park};

/// Events that were noted and not reported yet.
pub(crate) type Noted = Vec<Box<dyn FnOnce() + Send>>;

/// Work with syncs in it, which the storage worker does for producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// Reclaim drained segments.
    Reclaim,
    /// Evict the oldest messages, so that there is room for the next segment, and reclaim.
    Room,
    /// Reserve the numbers below this one.
    Reserve(u64),
}

/// A request that a producer waits for: one at a time, for that producer has the producers' lock.
#[derive(Debug, Default)]
enum Awaited {
    #[default]
    Nothing,
    For(Request),
    /// The worker is at it.
    Taken,
    Done(Result<()>),
}

/// What the storage worker is to do.
#[derive(Debug, Default)]
pub(crate) struct StorageRequests {
    /// Reclaim drained segments.
    pub(crate) reclaim: bool,
    /// Have room for more than the next segment.
    pub(crate) room: bool,
    /// Reserve the numbers below this one.
    pub(crate) reservation: Option<u64>,
    /// Make the next segment ready.
    pub(crate) ahead: bool,
    /// Flush what is committed, and sync full segments.
    pub(crate) flush: bool,
    /// Flush messages and places, for futures.
    pub(crate) flush_for_tasks: bool,
    asked: Awaited,
    /// The producer that waits for its request.
    producer: Option<Thread>,
}

impl StorageRequests {
    /// The request that is to be done next.
    pub(crate) fn take_request(&mut self) -> Option<Request> {
        if let Awaited::For(request) = self.asked {
            self.asked = Awaited::Taken;
            return Some(request);
        }
        if std::mem::take(&mut self.reclaim) {
            return Some(Request::Reclaim);
        }
        if std::mem::take(&mut self.room) {
            return Some(Request::Room);
        }
        self.reservation.take().map(Request::Reserve)
    }
}

impl Worker<StorageRequests> {
    /// Has the worker do `request`, and waits until it has. `None`: the caller is to do it itself,
    /// for there is no worker. The caller holds the producers' lock, and none of those that the
    /// worker may wait for.
    #[cold]
    pub(crate) fn ask(&self, request: Request) -> Option<Result<()>> {
        check_wait_for_storage_worker();
        if !self.request(|wanted| wanted.asked = Awaited::For(request)) {
            return None;
        }
        let mut requests = self.requests();
        let mut has_parked = false;
        let outcome = loop {
            match std::mem::take(&mut requests.wanted.asked) {
                Awaited::Done(result) => break Some(result),
                Awaited::Nothing => break None,
                Awaited::For(_) if requests.stop => break None,
                asked => requests.wanted.asked = asked,
            }
            requests.wanted.producer = Some(current());
            drop(requests);
            park();
            has_parked = true;
            requests = self.requests();
        };
        requests.wanted.producer = None;
        drop(requests);
        if has_parked {
            // The token that woke this thread may have been meant for the caller's own `park`.
            current().unpark();
        }
        outcome
    }

    /// The request that was [asked](Self::ask) for, if one was, is done.
    pub(crate) fn answer(&self, result: Result<()>) {
        let mut requests = self.requests();
        if matches!(requests.wanted.asked, Awaited::Taken) {
            requests.wanted.asked = Awaited::Done(result);
            let producer = requests.wanted.producer.take();
            drop(requests);
            if let Some(producer) = producer {
                producer.unpark();
            }
        }
    }

    /// The worker's thread ends: a producer that waits for it does its request itself.
    pub(crate) fn leave_producers(&self) {
        self.leave();
        let mut requests = self.requests();
        requests.wanted.asked = Awaited::Nothing;
        // A token that comes too late only has the producer look once more.
        let producer = requests.wanted.producer.take();
        drop(requests);
        if let Some(producer) = producer {
            producer.unpark();
        }
    }
}

/// What the delivery worker is to do.
#[derive(Default)]
pub(crate) struct DeliveryRequests {
    /// Look at leases, delays and dead letters at this time.
    pub(crate) deliveries: Option<Instant>,
    /// Wake the readers: messages have become durable.
    pub(crate) wake_readers: bool,
    /// Wake the futures that wait for a flush: one has ended.
    pub(crate) wake_flushed: bool,
    /// Wake the futures that wait for room: space was given back.
    pub(crate) wake_for_room: bool,
    /// Wake them at this time in any case.
    pub(crate) look_for_room: Option<Instant>,
    /// Report these.
    pub(crate) events: Noted,
}

/// What of a [`DeliveryRequests`] is due.
#[derive(Default)]
pub(crate) struct Due {
    pub(crate) deliveries: bool,
    pub(crate) wake_readers: bool,
    pub(crate) wake_flushed: bool,
    pub(crate) wake_for_room: bool,
    pub(crate) events: Noted,
}

impl DeliveryRequests {
    /// Has the worker look at the deliveries at this time, or before.
    pub(crate) fn look_at_deliveries(&mut self, at: Instant) {
        self.deliveries = Some(self.deliveries.map_or(at, |due| due.min(at)));
    }

    /// Takes out what is to be done now. `None` when there is nothing.
    pub(crate) fn take_due(&mut self) -> Option<Due> {
        let take = |at: &mut Option<Instant>| at.take_if(|due| now() >= *due).is_some();
        let looks = take(&mut self.look_for_room);
        let due = Due {
            deliveries: take(&mut self.deliveries),
            wake_readers: std::mem::take(&mut self.wake_readers),
            wake_flushed: std::mem::take(&mut self.wake_flushed),
            wake_for_room: std::mem::take(&mut self.wake_for_room) || looks,
            events: std::mem::take(&mut self.events),
        };
        let any = due.deliveries
            || due.wake_readers
            || due.wake_flushed
            || due.wake_for_room
            || !due.events.is_empty();
        any.then_some(due)
    }

    /// When something is due next.
    pub(crate) fn next(&self) -> Option<Instant> {
        [self.deliveries, self.look_for_room].into_iter().flatten().min()
    }
}

impl std::fmt::Debug for DeliveryRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeliveryRequests").field("next", &self.next()).finish_non_exhaustive()
    }
}
