//! Iterators: read ahead of a consumer and consume nothing.

use super::c_handle::{CHandle, Retired, RetiredShared, body, free};
use super::guard::guard;
use super::mmq_gap::{ReportedGaps, last_gap, mmq_gap};
use super::mmq_message::{give_message, mmq_message};
use super::mmq_status::mmq_status;
use super::pointers::out;
use crate::engine::ahead::Ahead;
use crate::storage::FileStorage;
use crate::threads::OwnMutex;

/// Reads ahead over the messages of a queue or a consumer, and consumes nothing.
pub struct mmq_iter {
    _opaque: (),
}

pub(super) struct IterBody {
    /// Threads that share the handle take turns by this lock.
    ahead: OwnMutex<Ahead<FileStorage>>,
    gaps: ReportedGaps,
}

impl IterBody {
    pub(super) fn new(ahead: Ahead<FileStorage>) -> IterBody {
        IterBody { ahead: OwnMutex::new(ahead), gaps: ReportedGaps::new() }
    }
}

impl CHandle for mmq_iter {
    type Body = IterBody;
    const MAGIC: u64 = 0x6d6d_7120_6974_6572;
    const NAME: &'static str = "iterator";

    fn retired<R>(with: impl FnOnce(&mut Retired<IterBody>) -> R) -> Option<R> {
        static RETIRED: RetiredShared<IterBody> = RetiredShared::new();
        Some(RETIRED.with(with))
    }
}

/// Returns the next message ahead. At the end it returns MMQ_EMPTY; a later call continues with new
/// messages. After an error (16 and above) the iterator has ended for good.
///
/// @param iter Not NULL.
/// @param out Receives the message; free it with mmq_message_free. Not NULL.
/// @return MMQ_OK, MMQ_EMPTY, MMQ_GAP (not counted in the figures: a read reports the gap to the
///   consumer when it comes there), MMQ_IO, MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED
///   once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_iter_next(
    iter: *mut mmq_iter,
    out: *mut *mut mmq_message,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (iter, out) = unsafe { (body(iter)?, self::out(out, "out")?) };
        let Some(message) = iter.gaps.note(iter.ahead.lock()?.next().transpose())? else {
            return Ok(mmq_status::MMQ_EMPTY);
        };
        out.write(give_message(message));
        Ok(mmq_status::MMQ_OK)
    })
}

/// Returns the gap of the latest MMQ_GAP that this iterator returned (see mmq_last_gap).
///
/// @param iter Not NULL.
/// @param out Receives the gap. Not NULL.
/// @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_iter_last_gap(iter: *mut mmq_iter, out: *mut mmq_gap) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { last_gap(iter, out, |body| &body.gaps) })
}

/// Frees an iterator. Allowed after mmq_close.
///
/// @param iter From mmq_iter_open or mmq_consumer_iter_open, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_iter_free(iter: *mut mmq_iter) {
    // SAFETY: the header's contract: NULL or a handle that no other thread uses now.
    guard(|| unsafe { free(iter) });
}
