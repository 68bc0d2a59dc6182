//! The requests to the queue's workers.
//!
//! The storage worker flushes, reserves sequence numbers and frees space. Producers wait for it
//! while they hold their lock, so it waits for no consumer and no producer, and runs none of the
//! program's code. The delivery worker and the carrier do all work that may wait for these: no
//! thread waits for them while holding a lock.

use std::time::Instant;

use crate::error::Result;
use crate::threads::ranks::check_wait_for_storage_worker;
use crate::threads::worker::Worker;
use crate::threads::{Thread, current, now, park};

/// Events that a thread has noted but not reported yet.
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

/// A request for which a producer waits: one at a time, since that producer holds the producers'
/// lock.
#[derive(Debug, Default)]
pub(crate) enum Awaited {
    #[default]
    Nothing,
    For(Request),
    /// The worker is handling the request.
    Taken,
    Done(Result<()>),
}

/// The work that the storage worker has to do.
#[derive(Debug, Default)]
pub(crate) struct StorageRequests {
    /// Reclaim drained segments.
    pub(crate) reclaim: bool,
    /// Make room for more than the next segment.
    pub(crate) room: bool,
    /// Reserve the numbers below this one.
    pub(crate) reservation: Option<u64>,
    /// Reclaim what is drained, or prepare the next segment.
    pub(crate) ahead: bool,
    /// Flush committed records, and sync full segments.
    pub(crate) flush: bool,
    /// Flush messages and places, for futures.
    pub(crate) flush_for_tasks: bool,
    pub(crate) asked: Awaited,
    /// The producer that waits for the end of its request.
    producer: Option<Thread>,
}

impl StorageRequests {
    /// Returns whether a producer waits for the worker to take a request.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.asked, Awaited::For(_))
    }

    /// Takes the next request to handle.
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
    /// Makes the worker handle `request`, and waits for the result. Returns `None` when there is no
    /// worker, so that the caller must do the work itself. The caller holds the producers' lock,
    /// and no lock for which the worker may wait.
    #[cold]
    pub(crate) fn ask(&self, request: Request) -> Option<Result<()>> {
        check_wait_for_storage_worker();
        let ask = |wanted: &mut StorageRequests| {
            holds!(
                matches!(wanted.asked, Awaited::Nothing),
                "one producer asks the storage worker at a time, for {request:?}"
            );
            wanted.asked = Awaited::For(request);
        };
        if !self.request(ask) {
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
            // The unpark that woke this thread may have been meant for the caller's own `park`.
            current().unpark();
        }
        outcome
    }

    /// Passes the result of a request to the producer that [asked](Self::ask) for it, if there is
    /// one.
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

    /// Marks the worker's thread as ended, and wakes a waiting producer, which then does the work
    /// itself.
    pub(crate) fn leave_producers(&self) {
        self.leave();
        let mut requests = self.requests();
        requests.wanted.asked = Awaited::Nothing;
        // An unpark that arrives too late only makes the producer check once more.
        let producer = requests.wanted.producer.take();
        drop(requests);
        if let Some(producer) = producer {
            producer.unpark();
        }
    }
}

/// The work that the delivery worker has to do, and the carrier.
#[derive(Default)]
pub(crate) struct DeliveryRequests {
    /// Check leases and delays at this time, or carry dead letters.
    pub(crate) deliveries: Option<Instant>,
    /// Wake the readers: messages have become durable.
    pub(crate) wake_readers: bool,
    /// Wake the futures that wait for a flush: one has ended.
    pub(crate) wake_flushed: bool,
    /// Wake the futures that wait for room: space was freed.
    pub(crate) wake_for_room: bool,
    /// Wake the futures that wait for room at this time in any case.
    pub(crate) look_for_room: Option<Instant>,
    /// Report these events.
    pub(crate) events: Noted,
}

impl DeliveryRequests {
    /// Makes the worker check the deliveries at this time, or before.
    pub(crate) fn look_at_deliveries(&mut self, at: Instant) {
        self.deliveries = Some(self.deliveries.map_or(at, |due| due.min(at)));
    }

    /// Takes the work that is due now; `None` when there is none.
    pub(crate) fn take_due(&mut self) -> Option<DeliveryRequests> {
        let take = |at: &mut Option<Instant>| at.take_if(|due| now() >= *due);
        let due = DeliveryRequests {
            look_for_room: take(&mut self.look_for_room),
            deliveries: take(&mut self.deliveries),
            wake_readers: std::mem::take(&mut self.wake_readers),
            wake_flushed: std::mem::take(&mut self.wake_flushed),
            wake_for_room: std::mem::take(&mut self.wake_for_room),
            events: std::mem::take(&mut self.events),
        };
        let any = due.next().is_some()
            || due.wake_readers
            || due.wake_flushed
            || due.wake_for_room
            || !due.events.is_empty();
        any.then_some(due)
    }

    /// Returns when the next work is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        [self.deliveries, self.look_for_room].into_iter().flatten().min()
    }
}

impl std::fmt::Debug for DeliveryRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeliveryRequests").field("next", &self.next()).finish_non_exhaustive()
    }
}
