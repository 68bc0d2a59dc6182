//! The reservation of sequence numbers: a checkpoint on disk reserves them before the writer
//! assigns them.

use std::sync::atomic::Ordering;

use super::tail::STRIDE;
use crate::error::Result;
use crate::format::FRAGMENT_HEADER_LEN;
use crate::state::State;
use crate::storage::Storage;

/// How many sequence numbers are reserved at a time, so that none is used twice after a power cut.
/// (More than twice as many as a stride can use: when half are used, the writer asks the storage
/// worker for more.)
const RESERVATION: u64 = 1 << 21;

/// What the checkpoint on disk contains about this run.
#[derive(Debug)]
pub(super) struct Numbers {
    /// The writer may not assign a number at or above it yet. `None` when numbers need no
    /// reservation.
    reservation: Option<u64>,
    /// Whether the checkpoint on disk shows no clean end, since this run has begun to write.
    has_begun: bool,
}

impl Numbers {
    pub(super) fn new(reservation: Option<u64>) -> Numbers {
        Numbers { reservation, has_begun: false }
    }

    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) fn reservation(&self) -> Option<u64> {
        self.reservation
    }

    pub(super) fn have_begun(&self) -> bool {
        self.has_begun
    }

    /// Makes sure, before the first change of a run, that the checkpoint on disk shows no clean
    /// end, and has a reservation. `seq` is the next number.
    pub(super) fn begin_run<S: Storage>(&mut self, state: &State<S>, seq: u64) -> Result<()> {
        if self.has_begun {
            return Ok(());
        }
        let end = self.reservation.map_or(0, |end| end.max(seq + RESERVATION));
        let (checkpoint, durable) = state.index.durable_checkpoint();
        // A checkpoint that is not durable does not count: an earlier opening stored it and was
        // killed before the sync.
        if planted!(ReservationNotWritten) {
            self.has_begun = true;
            return Ok(());
        }
        if !durable || checkpoint.clean || checkpoint.number == 0 || end > checkpoint.reservation {
            state.have_reserved(end)?;
            self.reservation = self.reservation.map(|_| state.reserved.load(Ordering::Acquire));
        }
        self.has_begun = true;
        Ok(())
    }

    /// Makes the storage worker reserve more numbers when half of the reservation is used. Waits
    /// for it when the records of one stride from `seq` on could use up the rest.
    pub(super) fn renew_reservation<S: Storage>(
        &mut self,
        state: &State<S>,
        seq: u64,
    ) -> Result<()> {
        let is_low = |end: u64| end < seq + RESERVATION / 2;
        let Some(end) = self.reservation.filter(|end| is_low(*end)) else {
            return Ok(());
        };
        let reserved = end.max(state.reserved.load(Ordering::Acquire));
        self.reservation = Some(reserved);
        // The most records that a stride can hold.
        let most = STRIDE / FRAGMENT_HEADER_LEN + 1;
        if reserved < seq + most {
            state.have_reserved(seq + RESERVATION)?;
            self.reservation = Some(state.reserved.load(Ordering::Acquire));
            holds!(
                self.reservation >= Some(seq + most),
                "numbers are reserved for a stride behind {seq}, to {:?}",
                self.reservation
            );
        } else if is_low(reserved) {
            state.storage_worker.request(|wanted| wanted.reservation = Some(seq + RESERVATION));
        }
        Ok(())
    }
}
