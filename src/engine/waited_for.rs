//! Which threads wait when a queue closes: the close waits for the calls that carry dead letters,
//! and for the threads that serve clients; a second close waits for the first one.
//!
//! A close, and a call that carries dead letters, run the program's code, which may close queues.
//! So a thread for which others may wait does not wait itself, and no two threads wait for each
//! other.

use std::cell::Cell;

use crate::threads::worker::own_waits;
use crate::threads::{Condvar, Mutex};

thread_local! {
    /// Whether others may wait for this thread, because it closes a queue or carries dead letters.
    static IS_WAITED_FOR: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the calling thread may wait for one that closes a queue, carries dead letters or
/// serves a client.
pub(crate) fn may_wait() -> bool {
    !IS_WAITED_FOR.get() && own_waits().is_none()
}

/// While it lives, others may wait for the calling thread.
#[derive(Debug)]
pub(super) struct WaitedFor {
    /// Whether others could already wait for the thread before.
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

/// The number of threads that carry dead letters.
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
    /// Counts the calling thread, which is about to take dead letters.
    pub(super) fn begin(&self) -> Carrying<'_> {
        *self.count.lock() += 1;
        Carrying { carriers: self, _waited_for: WaitedFor::begin() }
    }

    /// Waits until no thread carries dead letters. The queue is closed, so a thread that begins
    /// later finds none.
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
