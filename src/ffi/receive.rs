//! The calls of a queue and of a consumer that give out deliveries, iterators, and descriptors for
//! event loops, and the one that ends waits.

use std::ffi::c_int;

use super::guard::guard;
use super::handle::body;
use super::mmq_consumer::mmq_consumer;
use super::mmq_delivery::mmq_delivery;
use super::mmq_iter::mmq_iter;
use super::mmq_status::mmq_status;
use super::pointers::out;
use super::queue::mmq_queue;
use super::reads;

/// Begins to look at the messages that wait for the queue's own (default) consumer, from the next
/// one on. The iterator consumes nothing and keeps nothing in the queue: it passes over messages
/// that are taken meanwhile.
///
/// @param queue Not NULL.
/// @param out Where the iterator goes; free it with mmq_iter_free. Not NULL.
/// @return MMQ_OK, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_iter_open(
    queue: *mut mmq_queue,
    out: *mut *mut mmq_iter,
) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::iter(queue, out) })
}

/// As mmq_iter_open, for this consumer.
///
/// @param consumer Not NULL.
/// @param out Where the iterator goes; free it with mmq_iter_free. Not NULL.
/// @return MMQ_OK, MMQ_CLOSED once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_iter_open(
    consumer: *mut mmq_consumer,
    out: *mut *mut mmq_iter,
) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::iter(consumer, out) })
}

/// Hands out the next message for work that may fail. mmq_delivery_ack acknowledges it; the
/// consumer's stored place does not pass it before. mmq_delivery_nack, mmq_delivery_free or the
/// death of the process give it back. Messages given back come first. Several threads may receive
/// at the same time: only one of them has a message at a time.
///
/// @param queue Not NULL.
/// @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_peek; MMQ_EMPTY also when as many messages as allowed are in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_receive(
    queue: *mut mmq_queue,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::receive(queue, out) })
}

/// As mmq_receive, but waits for a message. Does not poll.
///
/// @param queue Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
/// @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_receive, but MMQ_TIMED_OUT where that answers MMQ_EMPTY; MMQ_INTERRUPTED by
///   mmq_interrupt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_receive_timeout(
    queue: *mut mmq_queue,
    timeout_ms: i64,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::receive_waiting(queue, timeout_ms, out) })
}

/// Sets how many messages may be in flight (received, neither acknowledged nor given back) at a
/// time. The limit is not stored: every opening begins without one.
///
/// @param queue Not NULL.
/// @param messages At least 1, or 0 for no limit.
/// @return MMQ_OK, MMQ_FULL or MMQ_IO when there is no room for the queue's own consumer,
///   MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_set_max_in_flight(queue: *mut mmq_queue, messages: u32) -> mmq_status {
    // SAFETY: the contract: NULL or a handle given out.
    guard(|| unsafe { reads::set_max_in_flight(queue, messages) })
}

/// How many messages of the queue's own (default) consumer are in flight: received, neither
/// acknowledged nor given back.
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

/// A descriptor for poll, epoll or kqueue. It is readable while a message or an unreported gap
/// waits for the queue's own (default) consumer, and once the queue is closed. Do not read from it,
/// write to it or close it. Read the queue until MMQ_EMPTY before waiting on it again.
///
/// @param queue Not NULL.
/// @param out Where the descriptor goes. It is the library's, and valid until the queue is closed.
///   Not NULL.
/// @return MMQ_OK, MMQ_IO when the system has no descriptor left, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_ready_fd(queue: *mut mmq_queue, out: *mut c_int) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::ready_fd(queue, out) })
}

/// Ends all waits, and leaves the queue open: every call that waits (mmq_dequeue_timeout,
/// mmq_receive_timeout and those of consumers, an enqueue with MMQ_WAIT, mmq_wait_durable) and that
/// began before this one answers MMQ_INTERRUPTED. A call that begins later waits again. Descriptors
/// become readable. Nothing is lost: a message that came at the same time stays for the next read.
///
/// @param queue Not NULL.
/// @return MMQ_OK, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_interrupt(queue: *mut mmq_queue) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL or a handle given out.
        let queue = unsafe { body(queue) }?;
        queue.reader.engine().core.check_not_forked()?;
        queue.reader.interrupt();
        Ok(mmq_status::MMQ_OK)
    })
}

/// As mmq_receive, for this consumer.
///
/// @param consumer Not NULL.
/// @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_receive; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue
///   was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_receive(
    consumer: *mut mmq_consumer,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::receive(consumer, out) })
}

/// As mmq_receive_timeout, for this consumer.
///
/// @param consumer Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
/// @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return As mmq_receive_timeout; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
///   queue was closed.
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
/// @return MMQ_OK, MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
///   closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_set_max_in_flight(
    consumer: *mut mmq_consumer,
    messages: u32,
) -> mmq_status {
    // SAFETY: the contract: NULL or a handle given out.
    guard(|| unsafe { reads::set_max_in_flight(consumer, messages) })
}

/// As mmq_ready_fd, for this consumer.
///
/// @param consumer Not NULL.
/// @param out Where the descriptor goes. It is the library's, and valid until the queue is closed.
///   Not NULL.
/// @return MMQ_OK, MMQ_IO when the system has no descriptor left, MMQ_NOT_FOUND once the consumer
///   was removed, MMQ_CLOSED once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_ready_fd(
    consumer: *mut mmq_consumer,
    out: *mut c_int,
) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::ready_fd(consumer, out) })
}

/// How many messages are in flight: received, neither acknowledged nor given back.
///
/// @param consumer Not NULL.
/// @param out Where the number goes. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_in_flight(
    consumer: *const mmq_consumer,
    out: *mut u64,
) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL, or as the header says.
        let (consumer, out) = unsafe { (body(consumer)?, self::out(out, "out")?) };
        out.write(consumer.reader.in_flight());
        Ok(mmq_status::MMQ_OK)
    })
}
