//! The status of an open queue, which says what calls it takes: closed, or poisoned by a sync that
//! failed.
//!
//! After a failed sync the page cache may show what will never reach the disk, and a later sync of
//! the same file succeeds all the same. So the first failure is noted before anybody can sync that
//! file again, and from then on no sync is made (rule R6). While a queue is open,
//! [`Index::heed`](crate::index::Index::heed) alone looks at the answers of syncs.

use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::threads::{AtomicU32, Mutex};

/// Bits of the status. The quick way only compares the status with zero.
const CLOSED: u32 = 1;
const POISONED: u32 = 2;
/// The run has ended: the files may be another owner's by now.
const RUN_ENDED: u32 = 4;

/// The status of an open queue.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    status: AtomicU32,
    /// The first failure.
    failure: Mutex<Option<Reason>>,
}

/// The failure that poisoned a queue.
#[derive(Debug, Clone)]
pub(crate) struct Reason {
    pub(crate) text: String,
    /// The system's number of the error; 0: it has none.
    pub(crate) number: i32,
}

impl Poison {
    /// Whether the queue is neither closed nor poisoned.
    #[inline]
    pub(crate) fn takes_all_calls(&self) -> bool {
        self.status.load(Ordering::Relaxed) == 0
    }

    #[inline]
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

    /// An error when a sync has failed: for calls that need a sync.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_poisoned() { Err(self.refusal()) } else { Ok(()) }
    }

    /// The error that says which sync failed, since when all writing is refused.
    #[cold]
    pub(crate) fn refusal(&self) -> Error {
        Error::Poisoned { reason: self.reason().unwrap_or_default() }
    }

    /// The failure that poisoned the queue.
    pub(crate) fn failure(&self) -> Option<Reason> {
        self.failure.lock().clone()
    }

    /// What the failure that poisoned the queue says.
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
