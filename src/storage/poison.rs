//! The status of an open queue: closed, poisoned by a failed sync, or in a forked child.
//!
//! After a failed sync the page cache may show bytes that will never reach the disk, and a later
//! sync of the same file succeeds all the same. So the queue notes the first failure before any
//! thread can sync that file again, and from then on never syncs (rule R6). While a queue is open,
//! only [`Index::heed`](crate::index::Index::heed) handles the results of syncs.

use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::memory::ForkGuard;
use crate::threads::{AtomicU64, Mutex};

/// Bits of the status, below those of the fork guard's token.
const CLOSED: u64 = 1;
const POISONED: u64 = 2;
/// The run has ended: another process may own the files by now.
const RUN_ENDED: u64 = 4;
const _: () = assert!(CLOSED + POISONED + RUN_ENDED < ForkGuard::STEP);

/// The status of an open queue.
#[derive(Debug)]
pub(crate) struct Poison {
    /// Detects a forked child, which does not own the queue.
    guard: ForkGuard,
    /// The guard's token and the bits above. The fast path compares it with the guard's word alone,
    /// which is zero in a forked child.
    status: AtomicU64,
    /// The first failure.
    failure: Mutex<Option<Reason>>,
}

/// The failure that poisoned a queue.
#[derive(Debug, Clone)]
pub(crate) struct Reason {
    pub(crate) text: String,
    /// The system's error number; 0 when it has none.
    pub(crate) number: i32,
}

impl Poison {
    pub(crate) fn new() -> Poison {
        let guard = ForkGuard::new();
        let status = AtomicU64::new(guard.token());
        Poison { guard, status, failure: Mutex::default() }
    }

    /// Returns whether the queue is neither closed nor poisoned, and this is no forked child.
    ///
    /// Relaxed: a thread that sets a bit sees it in its own later calls. Other threads see it as if
    /// their call had come earlier; whom that must not happen to checks under a lock that the
    /// setting thread held.
    #[inline(always)]
    pub(crate) fn takes_all_calls(&self) -> bool {
        self.guard.is_token(self.status.load(Ordering::Relaxed))
    }

    /// Returns whether the queue is closed or poisoned.
    #[inline(always)]
    pub(crate) fn is_marked(&self) -> bool {
        !self.status.load(Ordering::Relaxed).is_multiple_of(ForkGuard::STEP)
    }

    /// Returns whether this process is a forked child of the one that opened the queue.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.guard.forked()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.status.load(Ordering::Relaxed) & CLOSED != 0
    }

    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.status.load(Ordering::Acquire) & POISONED != 0
    }

    /// Closes the queue. Returns false when it was closed before.
    pub(crate) fn close(&self) -> bool {
        self.status.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED == 0
    }

    /// Undoes [`close`](Self::close).
    #[cfg(test)]
    pub(crate) fn open_again(&self) {
        self.status.fetch_and(!CLOSED, Ordering::AcqRel);
    }

    pub(crate) fn end_run(&self) {
        self.status.fetch_or(RUN_ENDED, Ordering::AcqRel);
    }

    pub(crate) fn has_run_ended(&self) -> bool {
        self.status.load(Ordering::Acquire) & RUN_ENDED != 0
    }

    /// Returns an error if a sync has failed. Calls that need a sync use it.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_poisoned() { Err(self.refusal()) } else { Ok(()) }
    }

    /// Returns the error that names the failed sync, after which the queue rejects all writes.
    #[cold]
    pub(crate) fn refusal(&self) -> Error {
        Error::Poisoned { reason: self.reason().unwrap_or_default() }
    }

    /// Returns the failure that poisoned the queue.
    pub(crate) fn failure(&self) -> Option<Reason> {
        self.failure.lock().clone()
    }

    /// Returns the text of the failure that poisoned the queue.
    pub(crate) fn reason(&self) -> Option<String> {
        self.failure().map(|failure| failure.text)
    }

    /// Poisons the queue. Returns true for the first failure.
    #[cold]
    pub(crate) fn set(&self, error: &Error) -> bool {
        self.failure.lock().get_or_insert_with(|| Reason {
            text: error.to_string(),
            number: error.system_number(),
        });
        self.status.fetch_or(POISONED, Ordering::Release) & POISONED == 0
    }
}
