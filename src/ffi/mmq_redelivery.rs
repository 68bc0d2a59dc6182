//! Redelivery: leases, delays, attempts and dead letters.

use std::time::Duration;

use super::c_handle::{body, take};
use super::guard::{Answer, done, guard};
use super::mmq_consumer::mmq_consumer;
use super::mmq_delivery::mmq_delivery;
use super::mmq_status::mmq_status;
use super::queue::mmq_queue;
use super::reads::Reader;
use crate::redelivery::Redelivery;

/// Converts C's milliseconds; 0 and below: none.
fn time(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// # Safety
///
/// The handles are valid for [`body`].
unsafe fn set<H: Reader>(
    handle: *const H,
    lease_ms: i64,
    delays_ms: (i64, i64),
    max_attempts: u32,
    dead: *const mmq_queue,
) -> Answer {
    // SAFETY: the caller's promise.
    let reader = unsafe { body(handle) }?;
    let mut redelivery = Redelivery::new();
    if let Some(lease) = time(lease_ms) {
        redelivery = redelivery.lease(lease);
    }
    if let Some(first) = time(delays_ms.0) {
        redelivery = redelivery.backoff(first, time(delays_ms.1).unwrap_or(first));
    }
    if max_attempts > 0 {
        redelivery = redelivery.max_attempts(max_attempts);
    }
    if !dead.is_null() {
        // SAFETY: the caller's promise.
        redelivery = redelivery.dead_letters_to(unsafe { body(dead) }?.reader.engine());
    }
    let (engine, consumer) = H::parts(&reader.reader)?;
    done(engine.set_redelivery(consumer, redelivery.rules(engine)?))
}

/// Sets when the queue's own (default) consumer receives messages again that it did not
/// acknowledge. The rules are not stored: each opening begins without them.
///
/// From this call on the queue stores, before it delivers a message, that the message is in flight,
/// and how often it came back, so that mmq_delivery_attempts also counts earlier openings. The
/// death of the process counts as one attempt for each message that was in flight. Four consumers
/// of a queue have a row in the index for this, each with room for at least 36 messages; for
/// further consumers and messages, attempts of earlier openings are not counted.
///
/// @param queue Not NULL.
/// @param lease_ms After so many milliseconds without acknowledgement or return, the queue takes
///   the message back; a later acknowledgement returns MMQ_EXPIRED. 0 or below: never.
/// @param first_delay_ms The queue delivers a returned message again after so many milliseconds,
///   and twice as many after each further return; other messages overtake it. 0 or below: at once.
/// @param max_delay_ms The longest of these delays; 0 or below: the first one.
/// @param max_attempts After so many deliveries without an acknowledgement the queue rejects the
///   message, as mmq_delivery_reject does. 0: never.
/// @param dead The dead-letter queue that gets rejected messages. With NULL, rejected messages are
///   discarded and reported as a gap (MMQ_GAP_REJECTED). While it is full or closed, they stay
///   here, and this queue tries again. Close it after this queue.
/// @return MMQ_OK; MMQ_INVALID_ARGUMENT, also when the first delay is longer than the longest, and
///   when the dead letters would come back to this queue; MMQ_FULL or MMQ_IO when there is no room
///   for the queue's own consumer, MMQ_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_set_redelivery(
    queue: *mut mmq_queue,
    lease_ms: i64,
    first_delay_ms: i64,
    max_delay_ms: i64,
    max_attempts: u32,
    dead: *mut mmq_queue,
) -> mmq_status {
    let delays_ms = (first_delay_ms, max_delay_ms);
    // SAFETY: the header's contract: NULL or handles of this library.
    guard(|| unsafe { set(queue, lease_ms, delays_ms, max_attempts, dead) })
}

/// Sets when this consumer receives messages again that it did not acknowledge (see
/// mmq_set_redelivery).
///
/// @param consumer Not NULL.
/// @param lease_ms See mmq_set_redelivery.
/// @param first_delay_ms See mmq_set_redelivery.
/// @param max_delay_ms See mmq_set_redelivery.
/// @param max_attempts See mmq_set_redelivery.
/// @param dead See mmq_set_redelivery. May be NULL.
/// @return As mmq_set_redelivery; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
///   queue was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_set_redelivery(
    consumer: *mut mmq_consumer,
    lease_ms: i64,
    first_delay_ms: i64,
    max_delay_ms: i64,
    max_attempts: u32,
    dead: *mut mmq_queue,
) -> mmq_status {
    let delays_ms = (first_delay_ms, max_delay_ms);
    // SAFETY: the header's contract: NULL or handles of this library.
    guard(|| unsafe { set(consumer, lease_ms, delays_ms, max_attempts, dead) })
}

/// Returns the message to the queue, which delivers it again after a delay. Other messages overtake
/// it meanwhile. Frees the delivery. A new opening of the queue ends the delay.
///
/// @param delivery Not NULL.
/// @param delay_ms Milliseconds; 0 or below: at once.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_nack_after(
    delivery: *mut mmq_delivery,
    delay_ms: i64,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or a handle that no other thread uses now.
        unsafe { take(delivery) }?.delivery.nack_after(time(delay_ms).unwrap_or_default());
        Ok(mmq_status::MMQ_OK)
    })
}

/// Makes the lease of a delivery end so many milliseconds from now, for work that takes longer. A
/// delivery without a lease stays without one.
///
/// @param delivery Not NULL.
/// @param ms Milliseconds, above 0.
/// @return MMQ_OK; MMQ_EXPIRED when the lease has ended (another worker gets, or got, the message;
///   free the delivery), MMQ_CLOSED, MMQ_NOT_FOUND when the consumer was removed, MMQ_FORKED,
///   MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_extend(delivery: *const mmq_delivery, ms: i64) -> mmq_status {
    guard(|| {
        let by = time(ms)
            .ok_or_else(|| super::guard::invalid("ms", "0 or below: the lease would end"))?;
        // SAFETY: the header's contract: NULL or a handle that no thread ends now.
        done(unsafe { body(delivery) }?.delivery.extend(by))
    })
}

/// Rejects the message: this consumer does not receive it again. The queue moves it to the
/// consumer's dead-letter queue, and acknowledges it here once it is durable there; without a
/// dead-letter queue it is discarded and reported as a gap (MMQ_GAP_REJECTED). Frees the delivery,
/// whatever it returns.
///
/// @param delivery Not NULL.
/// @return MMQ_OK; otherwise as mmq_delivery_ack, and MMQ_EXPIRED when the lease has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_reject(delivery: *mut mmq_delivery) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle that no other thread uses now.
    guard(|| done(unsafe { take(delivery) }?.delivery.reject()))
}
