//! Counts syncs of the index.

use std::sync::atomic::Ordering;

use crate::threads::{AtomicU64, fence};

/// Counts the syncs of the index, so that a thread can determine whether its stores are on the
/// disk.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    begun: AtomicU64,
    /// The number of the latest successful sync. (No sync follows a failed one.)
    done: AtomicU64,
}

impl Syncs {
    /// Returns a number for everything that this thread has stored so far: all of it is on the disk
    /// once a sync with a higher number is done.
    pub(crate) fn ticket(&self) -> u64 {
        // The stores come before the load. With the fence in `begin`: either this thread sees that
        // the sync has begun, or the sync covers its stores.
        fence(Ordering::SeqCst);
        self.begun.load(Ordering::SeqCst)
    }

    /// Begins a sync and returns its number. The caller begins one only after the one before has
    /// ended.
    pub(crate) fn begin(&self) -> u64 {
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        fence(Ordering::SeqCst);
        number
    }

    /// Notes that the sync with this number succeeded.
    pub(crate) fn end(&self, number: u64) {
        check!(let begun = self.begun.load(Ordering::SeqCst));
        check!(let done = self.done.load(Ordering::SeqCst));
        holds!(number <= begun, "sync {number} was begun, as {begun} were");
        holds!(done < number, "syncs end one after the other, {number} behind {done}");
        self.done.store(number, Ordering::Release);
    }

    pub(crate) fn is_past(&self, ticket: u64) -> bool {
        self.done.load(Ordering::Acquire) + u64::from(planted!(SyncUnderWayCounts)) > ticket
    }
}
