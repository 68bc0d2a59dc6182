//! The lease of sequence numbers: a checkpoint on disk reserves them before they are given out.

use std::sync::atomic::Ordering;

use super::tail::STRIDE;
use crate::error::Result;
use crate::format::FRAGMENT_HEADER_LEN;
use crate::state::State;
use crate::storage::Storage;

/// How many sequence numbers are reserved at a time, so that none is used twice after a power cut.
/// (More than twice as many as a stride can use: when half are used the storage worker is asked for
/// more.)
const LEASE: u64 = 1 << 21;

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
            state.have_leased(lease)?;
            self.lease = self.lease.map(|_| state.leased.load(Ordering::Acquire));
        }
        self.has_begun = true;
        Ok(())
    }

    /// Has the storage worker reserve more numbers when half of the lease is used. Waits for it
    /// when the records of one stride from `seq` on could use up the rest.
    pub(super) fn renew_lease<S: Storage>(&mut self, state: &State<S>, seq: u64) -> Result<()> {
        let is_low = |lease: u64| lease < seq + LEASE / 2 && !planted!(LeaseNotRenewed);
        let Some(lease) = self.lease.filter(|lease| is_low(*lease)) else {
            return Ok(());
        };
        let leased = lease.max(state.leased.load(Ordering::Acquire));
        self.lease = Some(leased);
        // The most records that a stride can hold.
        let most = STRIDE / FRAGMENT_HEADER_LEN + 1;
        if leased < seq + most {
            state.have_leased(seq + LEASE)?;
            self.lease = Some(state.leased.load(Ordering::Acquire));
        } else if is_low(leased) {
            state.storage_worker.request(|wanted| wanted.lease = Some(seq + LEASE));
        }
        Ok(())
    }
}
