//! Whether a queue still takes calls: open, closed, or poisoned by a sync that failed; and whether
//! a message is being filled.
//!
//! After a sync that failed the page cache may show what will never reach the disk, and a later
//! sync of the same file answers that all is well. So the first failure is noted before anybody can
//! make another sync of that file, and from then on none is made (rule R6).
//! [`Index::heed`](crate::index::Index::heed) is the one place where the answers of syncs are
//! looked at while a queue is open.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// Bits of the status; zero is the only value the quick path looks for.
const CLOSED: u32 = 1;
const POISONED: u32 = 2;
/// The files may be another owner's by now.
const RUN_ENDED: u32 = 4;
/// A message is being filled in place: the calls of the thread that fills it are refused.
const FILLING: u32 = 8;

#[derive(Debug, Default)]
pub(crate) struct Poison {
    status: AtomicU32,
    /// The first failure.
    reason: Mutex<Option<String>>,
}

impl Poison {
    /// Neither closed nor poisoned, and no message is being filled.
    #[inline]
    pub(crate) fn takes_all_calls(&self) -> bool {
        self.status.load(Ordering::Relaxed) == 0
    }

    /// Not closed, and no message is being filled.
    #[inline]
    pub(crate) fn takes_reads(&self) -> bool {
        self.status.load(Ordering::Relaxed) & (CLOSED | FILLING) == 0
    }

    #[inline]
    pub(crate) fn is_filling(&self) -> bool {
        self.status.load(Ordering::Relaxed) & FILLING != 0
    }

    /// Said by the thread that fills a message, to itself: the others need not know.
    pub(crate) fn set_filling(&self, filling: bool) {
        if filling {
            self.status.fetch_or(FILLING, Ordering::Relaxed);
        } else {
            self.status.fetch_and(!FILLING, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.status.load(Ordering::Relaxed) & CLOSED != 0
    }

    #[inline]
    pub(crate) fn is_poisoned(&self) -> bool {
        self.status.load(Ordering::Acquire) & POISONED != 0
    }

    /// False when it was closed before.
    pub(crate) fn close(&self) -> bool {
        self.status.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED == 0
    }

    /// As if it had never been closed.
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

    /// Refuses what needs a sync when one has failed.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_poisoned() { Err(self.refusal()) } else { Ok(()) }
    }

    /// Why writing is refused since a sync failed.
    #[cold]
    pub(crate) fn refusal(&self) -> Error {
        Error::Poisoned { reason: self.reason().unwrap_or_default() }
    }

    /// The failure that poisoned the queue.
    pub(crate) fn reason(&self) -> Option<String> {
        self.reason.lock().clone()
    }

    /// True for the first failure.
    #[cold]
    pub(crate) fn set(&self, error: &Error) -> bool {
        self.reason.lock().get_or_insert_with(|| error.to_string());
        self.status.fetch_or(POISONED, Ordering::Release) & POISONED == 0
    }
}
