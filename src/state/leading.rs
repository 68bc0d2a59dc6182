//! What a leader of a flush makes durable; ends a flush whose leader panics.

use std::time::Instant;

use crate::error::Error;
use crate::format::Spot;
use crate::state::State;
use crate::storage::Storage;

/// What a flush makes durable, in one part or several.
#[derive(Debug, Clone, Copy)]
pub(super) struct Led {
    pub(super) to: Spot,
    /// Segments that begin before it are synced: a message that is not committed may fill some.
    pub(super) end: u64,
    pub(super) began: Instant,
}

/// A flush under way. Dropped by a panic alone, it poisons the queue: nobody knows which syncs
/// failed.
pub(super) struct Leading<'a, S: Storage>(pub(super) &'a State<S>);

impl<S: Storage> Drop for Leading<'_, S> {
    fn drop(&mut self) {
        let state = self.0;
        if !state.forked() {
            let path = state.storage.path();
            state.index.set_poisoned(&Error::internal(path, "a flush panicked"));
            state.durable.lock().has_leader = false;
            state.flushed.notify_all();
            state.segment_synced.notify_all();
        }
    }
}
