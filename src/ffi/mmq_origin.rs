//! Where dead letters come from.

use super::guard::{Answer, guard, not_found};
use super::handle::body;
use super::mmq_delivery::mmq_delivery;
use super::mmq_message::mmq_message;
use super::mmq_status::mmq_status;
use super::pointers::out_sized;
use crate::format::Origin;

/// Where a dead letter comes from. Later versions append fields: set struct_size to
/// sizeof(mmq_origin) before every call of mmq_message_origin and mmq_delivery_origin.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_origin {
    /// In: the caller's sizeof(mmq_origin). Out: how many bytes were filled; fields behind them are
    /// as they were.
    pub struct_size: usize,
    /// The id of the queue in which the message was put: mmq_queue_id.
    pub queue_id: [u8; 16],
    /// Its sequence number there.
    pub seq: u64,
    /// How often it was handed out there without being acknowledged.
    pub attempts: u32,
    /// 0.
    pub reserved: u32,
}

/// Fills the caller's struct.
///
/// # Safety
///
/// `out` is NULL, or its first field is set, and it has as many writable bytes as that says.
unsafe fn give(origin: Option<Origin>, out: *mut mmq_origin) -> Answer {
    let unset = "struct_size was not set to sizeof(mmq_origin)";
    let none = "the message is no dead letter, so it has no origin";
    let value = |struct_size| {
        let Origin { queue_id, seq, attempts } = origin.ok_or_else(|| not_found(none))?;
        Ok(mmq_origin { struct_size, queue_id, seq, attempts, reserved: 0 })
    };
    // SAFETY: the caller's promise. The fields take 8, 16, 8, 4 and 4 bytes: there is no padding.
    unsafe { out_sized(out, unset, value) }
}

/// Where a message comes from, if it is a dead letter: one that another queue put in here because
/// it was handed out too often there.
///
/// @param message Not NULL.
/// @param out Where that goes; set out->struct_size before. Not NULL.
/// @return MMQ_OK; MMQ_NOT_FOUND when the message is no dead letter; MMQ_INVALID_ARGUMENT, also
///   when struct_size was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_message_origin(
    message: *const mmq_message,
    out: *mut mmq_origin,
) -> mmq_status {
    // SAFETY: the contract: NULL or a handle given out, which nobody frees now; NULL, or the caller
    // has set the first field.
    guard(|| unsafe { give(body(message)?.origin(), out) })
}

/// As mmq_message_origin, of a delivery.
///
/// @param delivery Not NULL.
/// @param out Where that goes; set out->struct_size before. Not NULL.
/// @return MMQ_OK; MMQ_NOT_FOUND when the message is no dead letter; MMQ_INVALID_ARGUMENT, also
///   when struct_size was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_origin(
    delivery: *const mmq_delivery,
    out: *mut mmq_origin,
) -> mmq_status {
    // SAFETY: the contract: NULL or a handle given out, which nobody ends now; NULL, or the caller
    // has set the first field.
    guard(|| unsafe { give(body(delivery)?.origin(), out) })
}
