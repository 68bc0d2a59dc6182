//! The origin of dead letters.

use super::c_handle::body;
use super::guard::{Answer, guard, not_found};
use super::mmq_delivery::mmq_delivery;
use super::mmq_message::mmq_message;
use super::mmq_status::mmq_status;
use super::pointers::out_sized;
use crate::format::Origin;

/// The queue and message from which a dead letter was made. Later versions append fields: set
/// struct_size to sizeof(mmq_origin) before every call of mmq_message_origin and
/// mmq_delivery_origin.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_origin {
    /// In: the caller's sizeof(mmq_origin). Out: how many bytes were filled; fields behind them are
    /// as they were.
    pub struct_size: usize,
    /// The id of the queue in which the message was enqueued first (see mmq_queue_id).
    pub queue_id: [u8; 16],
    /// Its sequence number there.
    pub seq: u64,
    /// How often it was delivered there without an acknowledgement.
    pub attempts: u32,
    /// 0.
    pub reserved: u32,
}

/// Fills the caller's struct.
///
/// # Safety
///
/// `out` is NULL, or its first field is set, and it has that many writable bytes.
unsafe fn give(origin: Option<Origin>, out: *mut mmq_origin) -> Answer {
    let unset = "struct_size was not set to sizeof(mmq_origin)";
    let none = "the message is no dead letter, so it has no origin";
    let value = |struct_size| {
        let Origin { queue_id, seq, attempts, .. } = origin.ok_or_else(|| not_found(none))?;
        Ok(mmq_origin { struct_size, queue_id, seq, attempts, reserved: 0 })
    };
    // SAFETY: the caller's promise. The fields take 8, 16, 8, 4 and 4 bytes: there is no padding.
    unsafe { out_sized(out, unset, value) }
}

/// Returns the origin of a message that is a dead letter: another queue moved it here because a
/// consumer there rejected it or used up its delivery attempts.
///
/// @param message Not NULL.
/// @param out Receives the origin; set out->struct_size before. Not NULL.
/// @return MMQ_OK; MMQ_NOT_FOUND when the message is no dead letter; MMQ_INVALID_ARGUMENT, also
///   when struct_size was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_message_origin(
    message: *const mmq_message,
    out: *mut mmq_origin,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle that no thread frees now; NULL, or the caller
    // has set the first field.
    guard(|| unsafe { give(body(message)?.origin(), out) })
}

/// Returns the origin of a delivery whose message is a dead letter (see mmq_message_origin).
///
/// @param delivery Not NULL.
/// @param out Receives the origin; set out->struct_size before. Not NULL.
/// @return MMQ_OK; MMQ_NOT_FOUND when the message is no dead letter; MMQ_INVALID_ARGUMENT, also
///   when struct_size was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_origin(
    delivery: *const mmq_delivery,
    out: *mut mmq_origin,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle that no thread ends now; NULL, or the caller
    // has set the first field.
    guard(|| unsafe { give(body(delivery)?.origin(), out) })
}
