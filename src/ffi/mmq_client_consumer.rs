//! Consumers of queues that other processes have open.

use std::ffi::c_char;

use super::c_handle::{CHandle, Retired, RetiredShared, body, free, give};
use super::guard::{done, guard};
use super::mmq_client::mmq_client;
use super::mmq_delivery::{give_delivery, mmq_delivery};
use super::mmq_gap::{ReportedGaps, last_gap, mmq_gap};
use super::mmq_message::{give_message, mmq_message};
use super::mmq_status::mmq_status;
use super::pointers::{Array, consumer_name, out};
use super::reads::timeout;
use crate::engine::consumer_life::check_name;
use crate::share::ClientConsumer;

/// A consumer of a queue that another process has open. Each message of a consumer goes to one
/// reader, in whichever process.
pub struct mmq_client_consumer {
    _opaque: (),
}

pub(super) struct ClientConsumerBody {
    consumer: ClientConsumer,
    gaps: ReportedGaps,
}

impl CHandle for mmq_client_consumer {
    type Body = ClientConsumerBody;
    const MAGIC: u64 = 0x6d6d_7120_636c_636f;
    const NAME: &'static str = "client consumer";

    fn retired<R>(with: impl FnOnce(&mut Retired<Self::Body>) -> R) -> Option<R> {
        static RETIRED: RetiredShared<ClientConsumerBody> = RetiredShared::new();
        Some(RETIRED.with(with))
    }
}

/// Opens the consumer of that name. The first call with a name, of the owner or of any client,
/// creates the consumer, at the oldest message in the queue (see mmq_consumer_open).
///
/// @param client Not NULL.
/// @param name 1 to 255 bytes of UTF-8; NULL for the queue's own (default) consumer.
/// @param out Receives the handle; free it with mmq_client_consumer_free. It may outlive the
///   client. Not NULL.
/// @return As mmq_consumer_open of the owner; MMQ_CLOSED and MMQ_DISCONNECTED when the owner has
///   gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_consumer_open(
    client: *mut mmq_client,
    name: *const c_char,
    out: *mut *mut mmq_client_consumer,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (client, out) = unsafe { (body(client)?, self::out(out, "out")?) };
        let consumer = if name.is_null() {
            client.default_consumer()
        } else {
            // SAFETY: not NULL; valid by the header's contract.
            let name = unsafe { consumer_name(name) }?;
            check_name(client.path(), name)?;
            client.consumer(name)?
        };
        out.write(give(ClientConsumerBody { consumer, gaps: ReportedGaps::new() }));
        Ok(mmq_status::MMQ_OK)
    })
}

/// Frees a handle. The consumer itself stays in the queue.
///
/// @param consumer From mmq_client_consumer_open, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_consumer_free(consumer: *mut mmq_client_consumer) {
    // SAFETY: the header's contract: NULL or a handle that no other thread uses now.
    guard(|| unsafe { free(consumer) });
}

/// Delivers the next message, for work that may fail, and waits for one (see mmq_receive_timeout).
/// The functions of mmq_delivery work on it. It goes back to the queue, and counts as an attempt,
/// when the connection ends before it was acknowledged. Other threads may use the client meanwhile.
///
/// @param consumer Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever. Only a message or the
///   owner's end ends such a wait.
/// @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
/// @return MMQ_OK, MMQ_TIMED_OUT, MMQ_GAP (see mmq_client_last_gap); MMQ_NOT_FOUND once the
///   consumer was removed; MMQ_CLOSED and MMQ_DISCONNECTED when the owner has gone: no message is
///   lost; as mmq_receive of the owner.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_receive(
    consumer: *mut mmq_client_consumer,
    timeout_ms: i64,
    out: *mut *mut mmq_delivery,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (body, out) = unsafe { (body(consumer)?, self::out(out, "out")?) };
        let received = body.consumer.receive_timeout(timeout(timeout_ms));
        body.gaps.give(received, out, mmq_status::MMQ_TIMED_OUT, give_delivery)
    })
}

/// Delivers up to max messages in one step, at most 64, without waiting for more to arrive (see
/// mmq_receive_batch). mmq_delivery_ack_batch acknowledges them in one.
///
/// @param consumer Not NULL.
/// @param out An array of max elements, which receives the deliveries. May be NULL when max is 0.
/// @param max The most messages to deliver.
/// @param count_out Receives the number of deliveries. Not NULL.
/// @return As mmq_client_receive, but MMQ_EMPTY where that returns MMQ_TIMED_OUT; MMQ_OK means at
///   least one delivery, unless max is 0. The next call reports a gap or an error behind the first
///   message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_receive_batch(
    consumer: *mut mmq_client_consumer,
    out: *mut *mut mmq_delivery,
    max: usize,
    count_out: *mut usize,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (body, count_out) = unsafe { (body(consumer)?, self::out(count_out, "count_out")?) };
        let array = Array::new(out, max, "out")?;
        let batch = body.gaps.note(body.consumer.receive_batch(max))?;
        if batch.is_empty() && max != 0 {
            return Ok(mmq_status::MMQ_EMPTY);
        }
        // SAFETY: the header's contract: the array has max elements.
        count_out.write(unsafe { array.fill(batch.into_iter().map(give_delivery)) });
        Ok(mmq_status::MMQ_OK)
    })
}

/// Takes the next message, and waits for one (see mmq_dequeue_timeout). A message that the owner
/// had sent is lost with the connection; mmq_client_receive loses none.
///
/// @param consumer Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever. Only a message or the
///   owner's end ends such a wait.
/// @param out Receives the message; free it with mmq_message_free. Not NULL.
/// @return As mmq_client_receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_dequeue(
    consumer: *mut mmq_client_consumer,
    timeout_ms: i64,
    out: *mut *mut mmq_message,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (body, out) = unsafe { (body(consumer)?, self::out(out, "out")?) };
        let taken = body.consumer.dequeue_timeout(timeout(timeout_ms));
        body.gaps.give(taken, out, mmq_status::MMQ_TIMED_OUT, give_message)
    })
}

/// Returns the next message, which stays in the queue (see mmq_peek).
///
/// @param consumer Not NULL.
/// @param out Receives the message; free it with mmq_message_free. Not NULL.
/// @return As mmq_client_receive, but MMQ_EMPTY where that returns MMQ_TIMED_OUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_peek(
    consumer: *mut mmq_client_consumer,
    out: *mut *mut mmq_message,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (body, out) = unsafe { (body(consumer)?, self::out(out, "out")?) };
        body.gaps.give(body.consumer.peek(), out, mmq_status::MMQ_EMPTY, give_message)
    })
}

/// Moves the consumer to a message (see mmq_consumer_seek).
///
/// @param consumer Not NULL.
/// @param seq The sequence number of the next message.
/// @return As mmq_consumer_seek of the owner; MMQ_CLOSED and MMQ_DISCONNECTED when the owner has
///   gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_seek(
    consumer: *mut mmq_client_consumer,
    seq: u64,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| done(unsafe { body(consumer) }?.consumer.seek(seq)))
}

/// Returns the gap of the latest MMQ_GAP that a read through this handle returned (see
/// mmq_last_gap).
///
/// @param consumer Not NULL.
/// @param out Receives the gap. Not NULL.
/// @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_last_gap(
    consumer: *mut mmq_client_consumer,
    out: *mut mmq_gap,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { last_gap(consumer, out, |body| &body.gaps) })
}
