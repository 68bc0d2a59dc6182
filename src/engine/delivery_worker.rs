//! The delivery worker: a thread of the queue for which no thread waits while it holds a lock. It
//! ends leases and delays, carries dead letters, calls the wakers of futures, and reports the
//! events that the storage worker noted.
//!
//! The thread starts at the first request. Where it cannot start, the calling threads end leases
//! and carry dead letters when they meet them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::consumer_table::Consumers;
use crate::commit::Core;
use crate::events;
use crate::storage::Storage;
use crate::threads::requests::Due;
use crate::threads::worker::ThreadBody;

/// When dropped, at the end of the thread, marks the worker as ended. After a panic it wakes
/// everyone whom the thread should have woken.
struct AtItsEnd<'a, S: Storage>(&'a Core<S>);

impl<S: Storage> Drop for AtItsEnd<'_, S> {
    fn drop(&mut self) {
        self.0.delivery_worker.leave();
        if std::thread::panicking() {
            self.0.tasks.wake_all();
            self.0.wake_readers(u64::MAX);
        }
    }
}

/// Lets the thread start from now on.
pub(super) fn allow<S: Storage>(core: &Arc<Core<S>>, consumers: &Arc<Consumers<S>>) {
    // Weak, against a cycle: the core has the worker.
    let (weak, consumers) = (Arc::downgrade(core), Arc::clone(consumers));
    core.delivery_worker.allow("mmq-delivery", move || {
        let (core, consumers) = (weak.upgrade()?, Arc::clone(&consumers));
        Some(Box::new(move || {
            let _leaving = AtItsEnd(&core);
            serve(&core, &consumers);
        }) as ThreadBody)
    });
}

/// Serves requests until the queue stops the worker.
fn serve<S: Storage>(core: &Core<S>, consumers: &Consumers<S>) {
    let worker = &core.delivery_worker;
    let mut requests = worker.requests();
    while !requests.stop {
        if let Some(due) = requests.wanted.take_due() {
            drop(requests);
            work(core, consumers, due);
            requests = worker.requests();
        } else {
            let next = requests.wanted.next();
            requests = worker.sleep(requests, next);
        }
    }
}

fn work<S: Storage>(core: &Core<S>, consumers: &Consumers<S>, due: Due) {
    events::take_over(due.events);
    if due.wake_flushed {
        core.tasks.for_flush.wake(u64::MAX);
    }
    if due.wake_for_room {
        core.tasks.for_room.wake(u64::MAX);
    }
    if due.wake_readers {
        core.wake_readers(u64::MAX);
    }
    if due.deliveries {
        consumers.look_at_deliveries(core);
        core.store_figures();
    }
    // The thread survives a subscriber's panic.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(events::report)) {
        // Forgotten: its drop might panic again.
        std::mem::forget(panic);
    }
}
