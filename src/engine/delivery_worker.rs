//! The delivery worker and the carrier: threads of the queue for which no thread waits while it
//! holds a lock. The delivery worker ends leases and delays, calls the wakers of futures, and
//! reports the events that the storage worker noted. The carrier carries dead letters: it waits for
//! the other queue's disk, and leases end meanwhile.
//!
//! Each thread starts at its first request. Where the delivery worker cannot start, the calling
//! threads end leases when they meet them; where the carrier cannot, they or the delivery worker
//! carry dead letters.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::consumer_table::Consumers;
use crate::commit::Core;
use crate::events;
use crate::storage::Storage;
use crate::threads::requests::DeliveryRequests;
use crate::threads::worker::{ThreadBody, Worker};

/// When dropped, at the end of the thread, marks the worker as ended. After a panic it wakes
/// everyone whom the thread should have woken.
struct AtItsEnd<'a, S: Storage>(&'a Core<S>, &'a Worker<DeliveryRequests>);

impl<S: Storage> Drop for AtItsEnd<'_, S> {
    fn drop(&mut self) {
        self.1.leave();
        if std::thread::panicking() {
            self.0.tasks.wake_all();
            self.0.wake_readers(u64::MAX);
        }
    }
}

/// Lets the threads start from now on.
pub(super) fn allow<S: Storage>(core: &Arc<Core<S>>, consumers: &Arc<Consumers<S>>) {
    type Requests<S> = fn(&Core<S>) -> &Worker<DeliveryRequests>;
    type Look<S> = fn(&Consumers<S>, &Core<S>);
    let threads: [(_, Requests<S>, Look<S>); 2] = [
        ("mmq-delivery", |core| &core.delivery_worker, Consumers::look_at_deliveries),
        ("mmq-carrier", |core| &core.carrier, Consumers::carry_dead_letters),
    ];
    for (name, worker, look) in threads {
        // Weak, against a cycle: the core has the worker.
        let (weak, consumers) = (Arc::downgrade(core), Arc::clone(consumers));
        worker(core).allow(name, move || {
            let (core, consumers) = (weak.upgrade()?, Arc::clone(&consumers));
            Some(Box::new(move || {
                let _leaving = AtItsEnd(&core, worker(&core));
                serve(&core, worker(&core), || look(&consumers, &core));
            }) as ThreadBody)
        });
    }
}

/// Serves requests until the queue stops the worker.
fn serve<S: Storage>(core: &Core<S>, worker: &Worker<DeliveryRequests>, look: impl Fn()) {
    let mut requests = worker.requests();
    while !requests.stop {
        if let Some(due) = requests.wanted.take_due() {
            drop(requests);
            work(core, due, &look);
            requests = worker.requests();
        } else {
            let next = requests.wanted.next();
            requests = worker.sleep(requests, next);
        }
    }
}

fn work<S: Storage>(core: &Core<S>, due: DeliveryRequests, look: impl Fn()) {
    events::take_over(due.events);
    if due.wake_flushed {
        core.tasks.for_flush.wake(u64::MAX);
    }
    if due.wake_for_room || due.look_for_room.is_some() {
        core.tasks.for_room.wake(u64::MAX);
    }
    if due.wake_readers {
        core.wake_readers(u64::MAX);
    }
    if due.deliveries.is_some() {
        look();
        core.store_figures();
    }
    // The thread survives a subscriber's panic.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(events::report)) {
        // Forgotten: its drop might panic again.
        std::mem::forget(panic);
    }
}
