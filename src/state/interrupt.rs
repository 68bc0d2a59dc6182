//! Waking every thread and future that waits, without closing the queue.
//!
//! A call that may wait notes when it began, as a count of interrupts. It goes on only while the
//! count is the same. Whoever interrupts raises the count first and wakes everybody then, so a
//! waiter that looks at the count after it can be woken misses no interrupt.

use std::sync::atomic::Ordering;

use super::State;
use crate::error::{Error, Result};
use crate::storage::Storage;

/// When a call began that may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Began(u64);

impl<S: Storage> State<S> {
    /// Called where a call begins that may wait.
    pub(crate) fn began(&self) -> Began {
        Began(self.interrupts.load(Ordering::SeqCst))
    }

    pub(crate) fn is_interrupted(&self, began: Began) -> bool {
        self.began() != began
    }

    /// Refuses to wait on when somebody has interrupted since `began`.
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
        // A thread between its look at the count and its sleep holds this lock.
        drop(self.durable.lock());
        self.flushed.notify_all();
        self.wake_writers();
        self.wake_readers(u64::MAX);
        self.tasks.wake_all();
    }
}
