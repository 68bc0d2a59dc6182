//! The gap structs of C, and the latest gap reported through each handle.

use std::borrow::Borrow;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

use super::c_handle::{CHandle, body};
use super::guard::{Answer, Failed};
use super::mmq_status::mmq_status;
use super::pointers::out;
use crate::error::{Error, Gap, GapCause};
use crate::threads::OwnMutex;

/// A range of sequence numbers that will never be delivered, and the reason. With MMQ_GAP_RESERVED
/// this is not a count of lost messages.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_gap {
    /// The first missing sequence number.
    pub first: u64,
    /// The last missing sequence number.
    pub last: u64,
    /// Why they are missing.
    pub cause: mmq_gap_cause,
}

/// Why messages are missing. Later versions may add causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum mmq_gap_cause {
    /// Their bytes are not the ones written: a file was damaged, replaced or removed.
    MMQ_GAP_DAMAGED = 1,
    /// They had not been flushed when the machine lost power.
    MMQ_GAP_UNFLUSHED = 2,
    /// The queue dropped them to make room (MMQ_DROP_OLDEST). The gap counts all dropped numbers,
    /// including those that were already lost or only reserved.
    MMQ_GAP_DROPPED = 3,
    /// They were older than the maximum age. The gap counts all expired numbers, including those
    /// that were already lost or only reserved.
    MMQ_GAP_EXPIRED = 4,
    /// This consumer rejected the message, or used up its delivery attempts, and has no dead-letter
    /// queue (mmq_consumer_set_redelivery).
    MMQ_GAP_REJECTED = 5,
    /// The queue had reserved these numbers for future messages when the machine lost power, or
    /// when the process died and the queue is now opened through another mount. Probably no message
    /// is missing, because none is known to have had one of the numbers; but unflushed messages may
    /// have been lost together with that knowledge. The numbers stay unused, so that no number
    /// names two messages.
    MMQ_GAP_RESERVED = 6,
}

impl From<Gap> for mmq_gap {
    fn from(gap: Gap) -> mmq_gap {
        let cause = match gap.cause {
            GapCause::Damaged => mmq_gap_cause::MMQ_GAP_DAMAGED,
            GapCause::Unflushed => mmq_gap_cause::MMQ_GAP_UNFLUSHED,
            GapCause::Dropped => mmq_gap_cause::MMQ_GAP_DROPPED,
            GapCause::Expired => mmq_gap_cause::MMQ_GAP_EXPIRED,
            GapCause::Reserved => mmq_gap_cause::MMQ_GAP_RESERVED,
            GapCause::Rejected => mmq_gap_cause::MMQ_GAP_REJECTED,
        };
        mmq_gap { first: gap.first, last: gap.last, cause }
    }
}

/// The gaps reported through one handle: each thread's latest, and the latest of all threads.
pub(super) struct ReportedGaps {
    /// Identifies the handle. Never used twice, unlike the address of a handle.
    number: u64,
    latest: OwnMutex<Option<Gap>>,
}

thread_local! {
    static LATEST: Cell<Option<(u64, Gap)>> = const { Cell::new(None) };
}

impl ReportedGaps {
    pub(super) fn new() -> ReportedGaps {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ReportedGaps { number: NEXT.fetch_add(1, Ordering::Relaxed), latest: OwnMutex::new(None) }
    }

    /// Returns the result of a read through the handle unchanged, and remembers it if it is a gap.
    #[inline]
    pub(super) fn note<T, E: Borrow<Error> + Into<Failed>>(&self, read: Result<T, E>) -> Answer<T> {
        read.map_err(|error| self.failed(error))
    }

    #[cold]
    #[inline(never)]
    fn failed<E: Borrow<Error> + Into<Failed>>(&self, error: E) -> Failed {
        if let Error::Gap(gap) = error.borrow()
            && let Ok(mut latest) = self.latest.lock()
        {
            *latest = Some(*gap);
            LATEST.set(Some((self.number, *gap)));
        }
        error.into()
    }

    /// Writes what a read through the handle found to `out`, as the handle that `give` makes of it;
    /// returns `none` when it found nothing.
    pub(super) fn give<T, H>(
        &self,
        read: Result<Option<T>, Error>,
        out: &mut MaybeUninit<*mut H>,
        none: mmq_status,
        give: impl FnOnce(T) -> *mut H,
    ) -> Answer {
        let Some(found) = self.note(read)? else {
            return Ok(none);
        };
        out.write(give(found));
        Ok(mmq_status::MMQ_OK)
    }
}

/// Writes the latest gap that a handle reported to `out`, or returns `MMQ_EMPTY` when there was
/// none.
///
/// # Safety
///
/// The arguments are valid for [`body`] and [`self::out`].
pub(super) unsafe fn last_gap<H: CHandle>(
    handle: *const H,
    out: *mut mmq_gap,
    of: impl FnOnce(&H::Body) -> &ReportedGaps,
) -> Answer {
    // SAFETY: the caller's promise.
    let (body, out) = unsafe { (body(handle)?, self::out(out, "out")?) };
    let gaps = of(body);
    let of_all = *gaps.latest.lock()?;
    let own = LATEST.get().filter(|(number, _)| *number == gaps.number).map(|(_, gap)| gap);
    let Some(gap) = own.or(of_all) else { return Ok(mmq_status::MMQ_EMPTY) };
    out.write(gap.into());
    Ok(mmq_status::MMQ_OK)
}
