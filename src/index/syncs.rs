//! Which syncs of the index are done.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Counts the syncs of the index, so that whoever stored something in it can tell whether that is
/// on the disk.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    pub(super) begun: AtomicU64,
    /// Number of the latest one that succeeded. (After one that failed there is none.)
    pub(super) done: AtomicU64,
}

impl Syncs {
    /// What this thread has stored is on the disk once a sync of a higher number is done.
    pub(super) fn ticket(&self) -> u64 {
        // The stores are not left behind by the load.
        fence(Ordering::SeqCst);
        self.begun.load(Ordering::SeqCst)
    }

    pub(super) fn is_past(&self, ticket: u64) -> bool {
        self.done.load(Ordering::Acquire) > ticket
    }
}
