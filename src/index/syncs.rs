//! Counts syncs of the index.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Counts the syncs of the index, so that a thread that stored bytes in it can tell whether they
/// are on the disk.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    pub(super) begun: AtomicU64,
    /// The number of the latest sync that succeeded. (After one that failed, no sync is made.)
    pub(super) done: AtomicU64,
}

impl Syncs {
    /// A number that stands for everything this thread has stored so far: all of it is on the disk
    /// once a sync of a higher number is done.
    pub(super) fn ticket(&self) -> u64 {
        // The stores come before the load.
        fence(Ordering::SeqCst);
        self.begun.load(Ordering::SeqCst)
    }

    pub(super) fn is_past(&self, ticket: u64) -> bool {
        self.done.load(Ordering::Acquire) + u64::from(planted!(SyncUnderWayCounts)) > ticket
    }
}
