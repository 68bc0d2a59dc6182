//! Messages handed out for work that may fail, and descriptors for event loops.

use std::ffi::c_int;

use parking_lot::Mutex;

use super::consumer::mmq_consumer;
use super::guard::{guard, guard_or};
use super::handle::{Handle, Retired, body, free, give, take};
use super::pointers::out;
use super::queue::mmq_queue;
use super::reads;
use super::status::mmq_status;
use crate::delivery::Delivery;

/// A message that was handed out and waits to be acknowledged.
pub struct mmq_delivery {
    _opaque: (),
}

/// As for a message: the bytes do not move while the delivery lives.
pub(super) struct DeliveryBody {
    delivery: Delivery,
    data: *const u8,
    len: usize,
}

// SAFETY: the pointer leads into the delivery itself, which may go to another thread, and is only read through.
unsafe impl Send for DeliveryBody {}

impl Handle for mmq_delivery {
    type Body = DeliveryBody;
    const MAGIC: u64 = 0x6d6d_7120_6465_6c69;
    const NAME: &'static str = "delivery";

    fn retired<R>(with: impl FnOnce(&mut Retired<DeliveryBody>) -> R) -> Option<R> {
        static RETIRED: Mutex<Retired<DeliveryBody>> = Mutex::new(Retired::new());
        Some(with(&mut RETIRED.lock()))
    }
}

pub(super) fn give_delivery(delivery: Delivery) -> *mut mmq_delivery {
    let (data, len) = (delivery.as_ptr(), delivery.len());
    give(DeliveryBody { delivery, data, len })
}

/// Hands out the next message for work that may fail. The consumer's stored place does not pass it before it is acknowledged by
/// mmq_delivery_ack; mmq_delivery_nack, freeing it, or the death of the process gives it back. Messages given back come first.
/// Several threads may receive at the same time: each message is in one hand at a time.
///
/// @param queue Not NULL.
/// @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_peek; MMQ_EMPTY also when as many as allowed are in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_receive(queue: *mut mmq_queue, out: *mut *mut mmq_delivery) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::receive(queue, out) })
}

/// As mmq_receive, waiting for a message. Does not poll.
///
/// @param queue Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
/// @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_receive, but MMQ_TIMED_OUT where that answers MMQ_EMPTY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_receive_timeout(
    queue: *mut mmq_queue,
    timeout_ms: i64,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::receive_waiting(queue, timeout_ms, out) })
}

/// How many messages may be in flight (received, neither acknowledged nor given back) at a time. Not stored: every opening
/// begins without a limit.
///
/// @param queue Not NULL.
/// @param messages At least 1, or 0 for no limit.
/// @return MMQ_OK, MMQ_FULL or MMQ_IO when there is no room for the queue's own consumer, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_set_max_in_flight(queue: *mut mmq_queue, messages: u32) -> mmq_status {
    // SAFETY: the contract: NULL or a handle given out.
    guard(|| unsafe { reads::set_max_in_flight(queue, messages) })
}

/// How many messages of the queue's own (default) consumer are in flight: received, neither acknowledged nor given back.
///
/// @param queue Not NULL.
/// @param out Where the number goes. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_in_flight(queue: *const mmq_queue, out: *mut u64) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL, or as the header says.
        let (queue, out) = unsafe { (body(queue)?, self::out(out, "out")?) };
        out.write(queue.reader.in_flight());
        Ok(mmq_status::MMQ_OK)
    })
}

/// A descriptor that is readable while a message, or the news of a gap, waits for the queue's own (default) consumer, and once
/// the queue is closed: for poll, epoll or kqueue. Do not read from it, write to it or close it. Read the queue until
/// MMQ_EMPTY before waiting on it again.
///
/// @param queue Not NULL.
/// @param out Where the descriptor goes. It is the library's, and valid until the queue is closed. Not NULL.
/// @return MMQ_OK, MMQ_IO when the system has no descriptor left, MMQ_FULL or MMQ_IO when there is no room for the queue's own
/// consumer, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_ready_fd(queue: *mut mmq_queue, out: *mut c_int) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::ready_fd(queue, out) })
}

/// As mmq_receive, for this consumer.
///
/// @param consumer Not NULL.
/// @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_receive; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_receive(consumer: *mut mmq_consumer, out: *mut *mut mmq_delivery) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::receive(consumer, out) })
}

/// As mmq_receive_timeout, for this consumer.
///
/// @param consumer Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
/// @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_receive_timeout; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_receive_timeout(
    consumer: *mut mmq_consumer,
    timeout_ms: i64,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::receive_waiting(consumer, timeout_ms, out) })
}

/// As mmq_set_max_in_flight, for this consumer.
///
/// @param consumer Not NULL.
/// @param messages At least 1, or 0 for no limit.
/// @return MMQ_OK, MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was closed, MMQ_FORKED,
/// MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_set_max_in_flight(consumer: *mut mmq_consumer, messages: u32) -> mmq_status {
    // SAFETY: the contract: NULL or a handle given out.
    guard(|| unsafe { reads::set_max_in_flight(consumer, messages) })
}

/// As mmq_ready_fd, for this consumer.
///
/// @param consumer Not NULL.
/// @param out Where the descriptor goes. It is the library's, and valid until the queue is closed. Not NULL.
/// @return MMQ_OK, MMQ_IO when the system has no descriptor left, MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once
/// the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_ready_fd(consumer: *mut mmq_consumer, out: *mut c_int) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::ready_fd(consumer, out) })
}

/// How many messages are in flight: received, neither acknowledged nor given back.
///
/// @param consumer Not NULL.
/// @param out Where the number goes. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_in_flight(consumer: *const mmq_consumer, out: *mut u64) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL, or as the header says.
        let (consumer, out) = unsafe { (body(consumer)?, self::out(out, "out")?) };
        out.write(consumer.reader.in_flight());
        Ok(mmq_status::MMQ_OK)
    })
}

/// The bytes of a delivery. They stay where they are until it is acknowledged, given back or freed.
///
/// @param delivery Not NULL.
/// @return The first byte; not to be read when the length is 0. NULL when delivery is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_data(delivery: *const mmq_delivery) -> *const u8 {
    // SAFETY: the contract: NULL or a handle given out, which nobody ends now.
    guard_or(std::ptr::null(), || unsafe { body(delivery) }.map_or(std::ptr::null(), |body| body.data))
}

/// The length of a delivery.
///
/// @param delivery Not NULL.
/// @return Bytes. 0 when delivery is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_len(delivery: *const mmq_delivery) -> usize {
    // SAFETY: the contract: NULL or a handle given out, which nobody ends now.
    guard_or(0, || unsafe { body(delivery) }.map_or(0, |body| body.len))
}

/// The sequence number of a delivery.
///
/// @param delivery Not NULL.
/// @return The number. UINT64_MAX, which no message has, when delivery is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_seq(delivery: *const mmq_delivery) -> u64 {
    // SAFETY: the contract: NULL or a handle given out, which nobody ends now.
    guard_or(u64::MAX, || unsafe { body(delivery) }.map_or(u64::MAX, |body| body.delivery.seq()))
}

/// How often the message was handed out since the queue was opened, this time included.
///
/// @param delivery Not NULL.
/// @return 1 the first time. 0 when delivery is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_attempts(delivery: *const mmq_delivery) -> u32 {
    // SAFETY: the contract: NULL or a handle given out, which nobody ends now.
    guard_or(0, || unsafe { body(delivery) }.map_or(0, |body| body.delivery.attempts()))
}

/// The work is done: the message does not come again to this consumer. Frees the delivery, whatever is returned. Deliveries may
/// be acknowledged in any order and from any thread. That survives the death of the process, and, once flushed, a power cut. Of
/// numbers acknowledged before an older message is, at least 22 ranges (114 close together) are remembered for each consumer, the lowest first; those
/// in ranges beyond come again after a crash, also when they were flushed, and so do all of them of a consumer for which the index
/// file has no row (twelve consumers have one) and cannot grow.
///
/// @param delivery Not NULL.
/// @return MMQ_OK; MMQ_CLOSED when the queue was closed (the message comes again after the next opening), MMQ_NOT_FOUND when the
/// consumer was removed, MMQ_FORKED; MMQ_IO from a flush that the options ask for (it is acknowledged all the same);
/// MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_ack(delivery: *mut mmq_delivery) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL or a handle given out, which nobody else uses now.
        unsafe { take(delivery) }?.delivery.ack()?;
        Ok(mmq_status::MMQ_OK)
    })
}

/// The work was not done: the message goes back to the front of the line. Frees the delivery.
///
/// @param delivery Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_nack(delivery: *mut mmq_delivery) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL or a handle given out, which nobody else uses now.
        unsafe { take(delivery) }?.delivery.nack();
        Ok(mmq_status::MMQ_OK)
    })
}

/// As mmq_delivery_nack, but NULL is fine: what cleans up after an error can always call it. Allowed after mmq_close.
///
/// @param delivery From mmq_receive or the like, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_free(delivery: *mut mmq_delivery) {
    // SAFETY: the contract: NULL or a handle given out, which nobody else uses now.
    guard(|| unsafe { free(delivery) });
}
