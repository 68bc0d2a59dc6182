//! The calls of a queue and of a consumer that return deliveries, iterators, and descriptors for
//! event loops, and the one that ends waits.

use std::ffi::c_int;

use super::c_handle::body;
use super::guard::guard;
use super::mmq_consumer::mmq_consumer;
use super::mmq_delivery::mmq_delivery;
use super::mmq_iter::mmq_iter;
use super::mmq_status::mmq_status;
use super::queue::mmq_queue;
use super::reads;
use crate::consumer::Consumer;
use crate::queue::Queue;

/// Opens an iterator over the messages that wait for the queue's own (default) consumer, from the
/// next one on. The iterator consumes nothing and keeps nothing in the queue: it skips messages
/// that another read takes meanwhile.
///
/// @param queue Not NULL.
/// @param out Receives the iterator; free it with mmq_iter_free. Not NULL.
/// @return MMQ_OK, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_iter_open(
    queue: *mut mmq_queue,
    out: *mut *mut mmq_iter,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::iter(queue, out) })
}

/// Opens an iterator over the messages that wait for this consumer (see mmq_iter_open).
///
/// @param consumer Not NULL.
/// @param out Receives the iterator; free it with mmq_iter_free. Not NULL.
/// @return MMQ_OK, MMQ_CLOSED once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_iter_open(
    consumer: *mut mmq_consumer,
    out: *mut *mut mmq_iter,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::iter(consumer, out) })
}

/// Delivers the next message, for work that may fail. mmq_delivery_ack acknowledges it; until then
/// the consumer's stored position does not pass it. mmq_delivery_nack, mmq_delivery_free or the
/// death of the process return it to the queue. Returned messages are delivered first. Several
/// threads may receive at the same time: each message is with only one of them at a time.
///
/// @param queue Not NULL.
/// @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_peek; MMQ_EMPTY also while as many messages are in flight as
///   mmq_set_max_in_flight allows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_receive(
    queue: *mut mmq_queue,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::receive(queue, out) })
}

/// Delivers the next message, for work that may fail, and waits for one (see mmq_receive). Does not
/// poll.
///
/// @param queue Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
/// @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_receive, but MMQ_TIMED_OUT where that returns MMQ_EMPTY; MMQ_INTERRUPTED by
///   mmq_interrupt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_receive_timeout(
    queue: *mut mmq_queue,
    timeout_ms: i64,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::receive_waiting(queue, timeout_ms, out) })
}

/// Sets how many messages may be in flight (received, but neither acknowledged nor returned) at a
/// time. The limit is not stored: every opening begins without one.
///
/// @param queue Not NULL.
/// @param messages At least 1, or 0 for no limit.
/// @return MMQ_OK, MMQ_FULL or MMQ_IO when there is no room for the queue's own consumer,
///   MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_set_max_in_flight(queue: *mut mmq_queue, messages: u32) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe { reads::set_max_in_flight(queue, messages) })
}

/// Counts the messages of the queue's own (default) consumer that are in flight: received, but
/// neither acknowledged nor returned.
///
/// @param queue Not NULL.
/// @param out Receives the number. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_in_flight(queue: *const mmq_queue, out: *mut u64) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::tell(queue, out, Queue::in_flight) })
}

/// Returns a descriptor for poll, epoll or kqueue. It is readable while a message or an unreported
/// gap waits for the queue's own (default) consumer, and once the queue is closed. Do not read from
/// it, write to it or close it. Read the queue until MMQ_EMPTY before waiting on it again.
///
/// @param queue Not NULL.
/// @param out Receives the descriptor. It is the library's, and valid until the queue is closed.
///   Not NULL.
/// @return MMQ_OK, MMQ_IO when the system has no descriptor left, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_ready_fd(queue: *mut mmq_queue, out: *mut c_int) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::ready_fd(queue, out) })
}

/// Ends all waits, and leaves the queue open: every waiting call that began before this one
/// (mmq_dequeue_timeout, mmq_receive_timeout and those of consumers, an enqueue with MMQ_WAIT,
/// mmq_wait_durable) returns MMQ_INTERRUPTED. A call that begins later waits again. Descriptors
/// become readable. No message is lost: one that arrives at the same time stays for the next read.
///
/// @param queue Not NULL.
/// @return MMQ_OK, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_interrupt(queue: *mut mmq_queue) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or a handle of this library.
        let queue = unsafe { body(queue) }?;
        queue.reader.engine().core.check_not_forked()?;
        queue.reader.interrupt();
        Ok(mmq_status::MMQ_OK)
    })
}

/// Delivers this consumer's next message, for work that may fail (see mmq_receive).
///
/// @param consumer Not NULL.
/// @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_receive; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue
///   was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_receive(
    consumer: *mut mmq_consumer,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::receive(consumer, out) })
}

/// Delivers this consumer's next message, and waits for one (see mmq_receive_timeout).
///
/// @param consumer Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
/// @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_receive_timeout; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
///   queue was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_receive_timeout(
    consumer: *mut mmq_consumer,
    timeout_ms: i64,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::receive_waiting(consumer, timeout_ms, out) })
}

/// Sets how many messages of this consumer may be in flight at a time (see mmq_set_max_in_flight).
///
/// @param consumer Not NULL.
/// @param messages At least 1, or 0 for no limit.
/// @return MMQ_OK, MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
///   closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_set_max_in_flight(
    consumer: *mut mmq_consumer,
    messages: u32,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe { reads::set_max_in_flight(consumer, messages) })
}

/// Returns a descriptor that is readable while a message or an unreported gap waits for this
/// consumer (see mmq_ready_fd).
///
/// @param consumer Not NULL.
/// @param out Receives the descriptor. It is the library's, and valid until the queue is closed.
///   Not NULL.
/// @return MMQ_OK, MMQ_IO when the system has no descriptor left, MMQ_NOT_FOUND once the consumer
///   was removed, MMQ_CLOSED once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_ready_fd(
    consumer: *mut mmq_consumer,
    out: *mut c_int,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::ready_fd(consumer, out) })
}

/// Counts the messages of this consumer that are in flight: received, but neither acknowledged nor
/// returned.
///
/// @param consumer Not NULL.
/// @param out Receives the number. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_in_flight(
    consumer: *const mmq_consumer,
    out: *mut u64,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::tell(consumer, out, Consumer::in_flight) })
}
