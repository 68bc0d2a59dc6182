//! Who waits for whom when a queue is closed: a close for the calls that carry dead letters, and a
//! second close for the first one.
//!
//! A close, and a call that carries dead letters, run code of the program's, and that code may
//! close queues. So a thread that others may wait for does not wait itself: no two threads wait for
//! each other.

use std::cell::Cell;

use crate::threads::worker::is_worker;
use crate::threads::{Condvar, Mutex};

thread_local! {
    /// Others may wait for the calling thread: it closes a queue, or carries dead letters.
    static IS_WAITED_FOR: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread may wait for one that closes a queue or carries dead letters.
pub(super) fn may_wait() -> bool {
    !IS_WAITED_FOR.get() && !is_worker()
}

/// While it lives, others may wait for the calling thread.
#[derive(Debug)]
pub(super) struct WaitedFor {
    /// They may have waited for it before.
    before: bool,
}

impl WaitedFor {
    pub(super) fn begin() -> WaitedFor {
        WaitedFor { before: IS_WAITED_FOR.replace(true) }
    }
}

impl Drop for WaitedFor {
    fn drop(&mut self) {
        IS_WAITED_FOR.set(self.before);
    }
}

/// Counts the threads that carry dead letters.
#[derive(Debug, Default)]
pub(crate) struct Carriers {
    count: Mutex<usize>,
    changed: Condvar,
}

/// While it lives, its thread carries dead letters.
#[derive(Debug)]
pub(super) struct Carrying<'a> {
    carriers: &'a Carriers,
    _waited_for: WaitedFor,
}

impl Carriers {
    /// The calling thread is about to take dead letters.
    pub(super) fn begin(&self) -> Carrying<'_> {
        *self.count.lock() += 1;
        Carrying { carriers: self, _waited_for: WaitedFor::begin() }
    }

    /// Waits until nobody carries dead letters. The queue is closed: whoever begins finds none.
    pub(super) fn wait_for_all(&self) {
        let mut count = self.count.lock();
        while *count > 0 {
            self.changed.wait(&mut count);
        }
    }
}

impl Drop for Carrying<'_> {
    fn drop(&mut self) {
        *self.carriers.count.lock() -= 1;
        self.carriers.changed.notify_all();
    }
}
