//! The numbers a run may give out: the checkpoint on disk says up to which, before one is given.

use super::tail::STRIDE;
use crate::error::Result;
use crate::format::FRAGMENT_HEADER_LEN;
use crate::state::State;
use crate::storage::Storage;

/// Sequence numbers reserved on disk ahead of their use, so that none is used twice after a power
/// cut.
const LEASE: u64 = 1 << 20;

/// What the disk knows of this run and of its numbers.
#[derive(Debug)]
pub(super) struct Numbers {
    /// No number at or above it may be given out yet; `None` when numbers need no lease.
    lease: Option<u64>,
    /// The checkpoint on disk says that this run has begun.
    begun: bool,
}

impl Numbers {
    pub(super) fn new(lease: Option<u64>) -> Numbers {
        Numbers { lease, begun: false }
    }

    pub(super) fn have_begun(&self) -> bool {
        self.begun
    }

    /// Before the first change of a run: the checkpoint on disk must not say that nothing has
    /// happened since. `seq` is the next number.
    pub(super) fn begin_run<S: Storage>(&mut self, state: &State<S>, seq: u64) -> Result<()> {
        if self.begun {
            return Ok(());
        }
        let lease = self.lease.map_or(0, |lease| lease.max(seq + LEASE));
        let (checkpoint, durable) = state.index.durable_checkpoint();
        // One that an opening before this one had stored, and was killed before it was synced, says
        // nothing.
        if !durable || checkpoint.clean || checkpoint.number == 0 || lease > checkpoint.lease {
            self.write_lease(state, lease)?;
        }
        self.begun = true;
        Ok(())
    }

    /// Reserves more numbers when those from `seq` on may not outlast the next stride.
    pub(super) fn renew_lease<S: Storage>(&mut self, state: &State<S>, seq: u64) -> Result<()> {
        // A stride holds at most so many records.
        let most = STRIDE / FRAGMENT_HEADER_LEN + 1;
        if self.lease.is_some_and(|lease| lease < seq + most) {
            self.write_lease(state, seq + LEASE)?;
        }
        Ok(())
    }

    fn write_lease<S: Storage>(&mut self, state: &State<S>, lease: u64) -> Result<()> {
        state.sync_directory()?;
        // Never lower: the numbers below were given out, or told to be missing.
        let lease = lease.max(state.index.checkpoint().lease);
        let next_life = state.segments.next_life();
        state.index.write_checkpoint(|checkpoint| {
            checkpoint.clean = false;
            checkpoint.lease = lease;
            checkpoint.next_life = checkpoint.next_life.max(next_life);
        })?;
        state.index.set_lease(lease);
        if self.lease.is_some() {
            self.lease = Some(lease);
        }
        Ok(())
    }
}
