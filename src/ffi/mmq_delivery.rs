//! Deliveries: messages received for work that may fail, until they are acknowledged.

use super::c_handle::{CHandle, Retired, RetiredShared, body, free, give, take};
use super::guard::{done, guard, guard_or};
use super::mmq_status::mmq_status;
use super::pointers::array;
use crate::delivery::Delivery;
use crate::format::Origin;

/// A message that a consumer received and has not yet acknowledged.
pub struct mmq_delivery {
    _opaque: (),
}

/// A delivery and its bytes, which do not move while the delivery lives.
pub(super) struct DeliveryBody {
    pub(super) delivery: Delivery,
    data: *const u8,
    len: usize,
}

// SAFETY: the pointer leads to the delivery's own bytes and is only read through; the delivery may
// go to another thread.
unsafe impl Send for DeliveryBody {}

impl DeliveryBody {
    pub(super) fn origin(&self) -> Option<Origin> {
        self.delivery.origin()
    }
}

impl CHandle for mmq_delivery {
    type Body = DeliveryBody;
    const MAGIC: u64 = 0x6d6d_7120_6465_6c69;
    const NAME: &'static str = "delivery";

    fn retired<R>(with: impl FnOnce(&mut Retired<DeliveryBody>) -> R) -> Option<R> {
        static RETIRED: RetiredShared<DeliveryBody> = RetiredShared::new();
        Some(RETIRED.with(with))
    }
}

pub(super) fn give_delivery(delivery: Delivery) -> *mut mmq_delivery {
    let (data, len) = (delivery.as_ptr(), delivery.len());
    give(DeliveryBody { delivery, data, len })
}

/// Returns the bytes of a delivery. They stay in place until it is acknowledged, returned to the
/// queue or freed.
///
/// @param delivery Not NULL.
/// @return The first byte; not to be read when the length is 0. NULL when delivery is not a live
///   handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_data(delivery: *const mmq_delivery) -> *const u8 {
    guard_or(std::ptr::null(), || {
        // SAFETY: the header's contract: NULL or a handle that no thread ends now.
        unsafe { body(delivery) }.map_or(std::ptr::null(), |body| body.data)
    })
}

/// Returns the length of a delivery's message.
///
/// @param delivery Not NULL.
/// @return Bytes. 0 when delivery is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_len(delivery: *const mmq_delivery) -> usize {
    // SAFETY: the header's contract: NULL or a handle that no thread ends now.
    guard_or(0, || unsafe { body(delivery) }.map_or(0, |body| body.len))
}

/// Returns the sequence number of a delivery's message.
///
/// @param delivery Not NULL.
/// @return The number. UINT64_MAX, which no message has, when delivery is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_seq(delivery: *const mmq_delivery) -> u64 {
    // SAFETY: the header's contract: NULL or a handle that no thread ends now.
    guard_or(u64::MAX, || unsafe { body(delivery) }.map_or(u64::MAX, |body| body.delivery.seq()))
}

/// Returns how often the message was delivered since the queue was opened, this time included. With
/// mmq_set_redelivery it also counts deliveries of earlier openings.
///
/// @param delivery Not NULL.
/// @return 1 the first time. 0 when delivery is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_attempts(delivery: *const mmq_delivery) -> u32 {
    // SAFETY: the header's contract: NULL or a handle that no thread ends now.
    guard_or(0, || unsafe { body(delivery) }.map_or(0, |body| body.delivery.attempts()))
}

/// Tells whether a delivery comes from the backlog of lanes (mmq_lanes): the fresh lane skipped its
/// message, or delivered it before the last jump.
///
/// @param delivery Not NULL.
/// @return True if so. False when delivery is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_is_backlog(delivery: *const mmq_delivery) -> bool {
    // SAFETY: the header's contract: NULL or a handle that no thread ends now.
    guard_or(false, || unsafe { body(delivery) }.is_ok_and(|body| body.delivery.is_backlog()))
}

/// Acknowledges the message: the work is done, and this consumer does not receive the message
/// again. Frees the delivery, whatever it returns. Any thread may acknowledge deliveries, in any
/// order. The acknowledgement survives the death of the process and, once flushed, a power cut.
///
/// While an older message is still unacknowledged, the queue stores the acknowledged numbers behind
/// it as ranges: for each consumer at least the lowest 22 (114 where they lie close together).
/// After a crash the consumer receives the messages in further ranges again, even if the
/// acknowledgements were flushed. The same holds for all messages acknowledged ahead of an older
/// one when the index file has no row of ranges for the consumer (it has six) and cannot grow.
///
/// @param delivery Not NULL.
/// @return MMQ_OK; MMQ_CLOSED when the queue was closed (the message is delivered again after the
///   next opening), MMQ_EXPIRED when its lease has ended, MMQ_NOT_FOUND when the consumer was
///   removed, MMQ_FORKED; MMQ_IO from a flush that the options ask for (the message is acknowledged
///   all the same); MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_ack(delivery: *mut mmq_delivery) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle that no other thread uses now.
    guard(|| done(unsafe { take(delivery) }?.delivery.ack()))
}

/// Acknowledges many deliveries in one step (see mmq_delivery_ack), and frees all of them, whatever
/// it returns. When the process dies meanwhile, some of the messages may come again.
///
/// @param deliveries An array of count deliveries, each once. May be NULL when count is 0.
/// @param count The number of deliveries.
/// @return As mmq_delivery_ack: the first error. The other deliveries are acknowledged all the
///   same, except where the queue was closed or the consumer removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_ack_batch(
    deliveries: *mut *mut mmq_delivery,
    count: usize,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract.
        let handles = unsafe { array(deliveries.cast_const(), count, "deliveries")? };
        let (mut taken, mut wrong) = (Vec::with_capacity(count), Ok(()));
        for handle in handles {
            // SAFETY: the header's contract: a handle that no other thread uses now.
            match unsafe { take(*handle) } {
                Ok(body) => taken.push(body.delivery),
                Err(error) => wrong = wrong.and(Err(error)),
            }
        }
        Delivery::ack_batch(taken)?;
        wrong.map(|()| mmq_status::MMQ_OK)
    })
}

/// Returns the message to the queue, because the work was not done: it will be the next one
/// delivered. Frees the delivery.
///
/// @param delivery Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_nack(delivery: *mut mmq_delivery) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or a handle that no other thread uses now.
        unsafe { take(delivery) }?.delivery.nack();
        Ok(mmq_status::MMQ_OK)
    })
}

/// Returns the message to the queue (see mmq_delivery_nack) and frees the delivery. Does nothing
/// with NULL, so that clean-up code can always call it. Allowed after mmq_close.
///
/// @param delivery From mmq_receive or the like, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_free(delivery: *mut mmq_delivery) {
    // SAFETY: the header's contract: NULL or a handle that no other thread uses now.
    guard(|| unsafe { free(delivery) });
}
