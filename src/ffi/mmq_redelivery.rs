//! When messages that were handed out come again.

use std::time::Duration;

use super::guard::{Answer, guard};
use super::handle::{Handle, body, take};
use super::mmq_consumer::mmq_consumer;
use super::mmq_delivery::mmq_delivery;
use super::mmq_status::mmq_status;
use super::queue::mmq_queue;
use super::reads::{Reader, ReaderBody};
use crate::redelivery::Redelivery;

/// Milliseconds as C gives them; 0 and below: none.
fn time(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// # Safety
///
/// As [`body`].
unsafe fn set<H, R>(
    handle: *const H,
    lease_ms: i64,
    delays_ms: (i64, i64),
    max_attempts: u32,
    dead: *const mmq_queue,
) -> Answer
where
    H: Handle<Body = ReaderBody<R>>,
    R: Reader,
{
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
    let (engine, consumer) = reader.reader.parts()?;
    engine.set_redelivery(consumer, redelivery.rules(engine)?)?;
    Ok(mmq_status::MMQ_OK)
}

/// Sets when messages of the queue's own (default) consumer come again that were handed out and not
/// acknowledged. The rules are not stored: each opening begins without.
///
/// From this call on it is stored before a message is handed out that it is, and how often it was
/// given back, so that mmq_delivery_attempts counts over openings. After a death of the process,
/// the messages that had been handed out come again one at a time, until they are done: only a
/// death with a message alone in flight counts against it. Four consumers of a queue have a row in
/// the index for this; a fifth one's messages are not counted over openings.
///
/// @param queue Not NULL.
/// @param lease_ms A delivery that is neither acknowledged nor given back after so many
///   milliseconds
///   goes back by itself, and to acknowledge it is MMQ_EXPIRED. 0 or below: never.
/// @param first_delay_ms A message that was given back comes again after so many milliseconds,
///   twice
///   as many each time it is given back again; others pass it. 0 or below: at once.
/// @param max_delay_ms The longest of these delays; 0 or below: the first one.
/// @param max_attempts A message that was handed out so often in vain is rejected, as by
///   mmq_delivery_reject. 0: never.
/// @param dead The queue that rejected messages go to, or NULL: they are given up, and reported
///   as a gap (MMQ_GAP_REJECTED). While it is full or closed they stay, and are tried again. Close
///   it after this queue.
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
    // SAFETY: the contract: NULL or handles given out.
    guard(|| unsafe { set(queue, lease_ms, delays_ms, max_attempts, dead) })
}

/// As mmq_set_redelivery, for this consumer.
///
/// @param consumer Not NULL.
/// @param lease_ms As there.
/// @param first_delay_ms As there.
/// @param max_delay_ms As there.
/// @param max_attempts As there.
/// @param dead As there, or NULL.
/// @return As there; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
///   closed.
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
    // SAFETY: the contract: NULL or handles given out.
    guard(|| unsafe { set(consumer, lease_ms, delays_ms, max_attempts, dead) })
}

/// Gives the message back, to come again after a delay. Others pass it meanwhile. Frees the
/// delivery. After the next opening the message comes at once.
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
        // SAFETY: the contract: NULL or a handle given out, which nobody else uses now.
        unsafe { take(delivery) }?.delivery.nack_after(time(delay_ms).unwrap_or_default());
        Ok(mmq_status::MMQ_OK)
    })
}

/// Has the lease of a delivery end so many milliseconds from now, for work that takes longer. A
/// delivery without a lease stays without.
///
/// @param delivery Not NULL.
/// @param ms Milliseconds, above 0.
/// @return MMQ_OK; MMQ_EXPIRED when the lease has ended (the message comes, or came, to another
///   worker; free the delivery), MMQ_CLOSED, MMQ_NOT_FOUND when the consumer was removed,
///   MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_extend(delivery: *const mmq_delivery, ms: i64) -> mmq_status {
    guard(|| {
        let by = time(ms)
            .ok_or_else(|| super::guard::invalid("ms", "0 or below: the lease would end"))?;
        // SAFETY: the contract: NULL or a handle given out, which nobody ends now.
        unsafe { body(delivery) }?.delivery.extend(by)?;
        Ok(mmq_status::MMQ_OK)
    })
}

/// Rejects the message: it comes no more. It goes to the consumer's queue for dead letters, where
/// it is durable before it is acknowledged here; without one it is given up, and reported as a
/// gap (MMQ_GAP_REJECTED). Frees the delivery, whatever is returned.
///
/// @param delivery Not NULL.
/// @return MMQ_OK; otherwise as mmq_delivery_ack, and MMQ_EXPIRED when the lease has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_delivery_reject(delivery: *mut mmq_delivery) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL or a handle given out, which nobody else uses now.
        unsafe { take(delivery) }?.delivery.reject()?;
        Ok(mmq_status::MMQ_OK)
    })
}
