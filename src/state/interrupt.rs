//! Wakes every waiting thread and future without closing the queue.
//!
//! A call that may wait notes the interrupt count when it begins, and waits only while the count
//! stays the same. The interrupting thread first raises the count and then wakes all waiters, so a
//! waiter that registers before it reads the count misses no interrupt.

use std::sync::atomic::Ordering;

use super::State;
use crate::error::{Error, Result};
use crate::storage::Storage;

/// The interrupt count when a call that may wait began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Began(u64);

impl<S: Storage> State<S> {
    /// Returns the interrupt count. A call that may wait does this first.
    pub(crate) fn began(&self) -> Began {
        Began(self.interrupts.load(Ordering::SeqCst))
    }

    pub(crate) fn is_interrupted(&self, began: Began) -> bool {
        self.began() != began
    }

    /// Returns an error if a thread has interrupted since `began`.
    pub(crate) fn check_uninterrupted(&self, began: Began) -> Result<()> {
        if self.is_interrupted(began) {
            Err(Error::interrupted(self.storage.path()))
        } else {
            Ok(())
        }
    }

    /// Ends every wait that has begun.
    pub(crate) fn interrupt(&self) {
        if self.forked() {
            return;
        }
        self.interrupts.fetch_add(1, Ordering::SeqCst);
        // A thread holds this lock from its check of the count until it sleeps, so this waits for
        // it.
        drop(self.durable.lock());
        self.flushed.notify_all();
        self.wake_writers();
        self.wake_readers(u64::MAX);
        self.tasks.wake_all();
    }
}
