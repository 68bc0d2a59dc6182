//! The lease of sequence numbers: a checkpoint on disk reserves them before they are given out.

use super::tail::STRIDE;
use crate::error::Result;
use crate::format::FRAGMENT_HEADER_LEN;
use crate::state::State;
use crate::storage::Storage;

/// How many sequence numbers are reserved at a time, so that none is used twice after a power cut.
const LEASE: u64 = 1 << 20;

/// What the checkpoint on disk says of this run.
#[derive(Debug)]
pub(super) struct Numbers {
    /// No number at or above it may be given out yet. `None` when numbers need no lease.
    lease: Option<u64>,
    /// The checkpoint on disk says that this run has begun: it claims no clean end.
    has_begun: bool,
}

impl Numbers {
    pub(super) fn new(lease: Option<u64>) -> Numbers {
        Numbers { lease, has_begun: false }
    }

    pub(super) fn have_begun(&self) -> bool {
        self.has_begun
    }

    /// Makes sure, before the first change of a run, that the checkpoint on disk does not claim a
    /// clean end, and that it has a lease. `seq` is the next number.
    pub(super) fn begin_run<S: Storage>(&mut self, state: &State<S>, seq: u64) -> Result<()> {
        if self.has_begun {
            return Ok(());
        }
        let lease = self.lease.map_or(0, |lease| lease.max(seq + LEASE));
        let (checkpoint, durable) = state.index.durable_checkpoint();
        // A checkpoint that is not durable does not count: an earlier opening stored it and was
        // killed before the sync.
        if planted!(LeaseNotWritten) {
            self.has_begun = true;
            return Ok(());
        }
        if !durable || checkpoint.clean || checkpoint.number == 0 || lease > checkpoint.lease {
            self.write_lease(state, lease)?;
        }
        self.has_begun = true;
        Ok(())
    }

    /// Reserves more numbers when the records of one stride from `seq` on could use up the lease.
    pub(super) fn renew_lease<S: Storage>(&mut self, state: &State<S>, seq: u64) -> Result<()> {
        // The most records that a stride can hold.
        let most = STRIDE / FRAGMENT_HEADER_LEN + 1;
        if self.lease.is_some_and(|lease| lease < seq + most) && !planted!(LeaseNotRenewed) {
            self.write_lease(state, seq + LEASE)?;
        }
        Ok(())
    }

    fn write_lease<S: Storage>(&mut self, state: &State<S>, lease: u64) -> Result<()> {
        state.sync_directory()?;
        // Never lower than before: those numbers may have been given out, or told as missing.
        let before = if planted!(LeaseGoesBack) { 0 } else { state.index.checkpoint().lease };
        let lease = lease.max(before);
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
