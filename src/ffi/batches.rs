//! The calls that take or receive many messages at once.

use std::ffi::c_void;

use super::c_handle::body;
use super::guard::{Answer, guard};
use super::mmq_consumer::mmq_consumer;
use super::mmq_delivery::{give_delivery, mmq_delivery};
use super::mmq_message::{give_message, mmq_message};
use super::mmq_status::mmq_status;
use super::pointers::{Array, Buffer, out};
use super::queue::mmq_queue;
use super::reads::{Reader, ReaderRefs};
use crate::consume::step::Deliver;
use crate::delivery::Delivery;
use crate::delivery::handing_out::receive_batch;
use crate::engine::reading::{self, Fit};
use crate::error::Result;
use crate::message::Message;
use crate::read::{Check, Cursor, Record};
use crate::storage::{FileStorage, Storage};

/// A message that mmq_dequeue_batch_into copied.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct mmq_copied_message {
    /// The first byte, in the caller's buffer.
    pub data: *const c_void,
    /// How many bytes.
    pub len: usize,
    /// The sequence number.
    pub seq: u64,
}

/// Takes up to max messages without waiting for more to arrive. The consumer's place is stored
/// once, at the end of the call: a process that dies before gets all of them again. Where another
/// thread waits for the consumer, the call may take fewer messages than there are.
///
/// @param queue Not NULL.
/// @param out An array of max elements, which receives the messages; free each with
///   mmq_message_free. May be NULL when max is 0.
/// @param max The most messages to take.
/// @param count_out Receives the number of messages taken. Not NULL.
/// @return As mmq_dequeue; MMQ_OK means at least one message, unless max is 0. The next call
///   reports a gap or an error behind the first message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_dequeue_batch(
    queue: *mut mmq_queue,
    out: *mut *mut mmq_message,
    max: usize,
    count_out: *mut usize,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { fill(queue, out, max, count_out, messages, give_message) })
}

/// Takes up to max messages without waiting for more to arrive, and copies them: their bytes lie
/// one behind the other in buf. Takes only those that fit, and leaves the next one in the queue.
/// Nothing is to be freed.
///
/// mmq_copied_message got[64];
/// status = mmq_dequeue_batch_into(queue, buf, sizeof buf, got, 64, &count, &len);
/// if (status == MMQ_OK) for (at = 0; at < count; at++) use(got[at].data, got[at].len);
///
/// @param queue Not NULL.
/// @param buf Receives the bytes. After an error other than MMQ_BUFFER_TOO_SMALL its content is
///   undefined. May be NULL when cap is 0.
/// @param cap Size of buf in bytes.
/// @param out An array of max elements, which receives where each message lies. After an error its
///   content is undefined. May be NULL when max is 0.
/// @param max The most messages to take.
/// @param count_out Receives the number of messages taken. Not NULL.
/// @param len_out Receives how many bytes of buf the messages take; with MMQ_BUFFER_TOO_SMALL, the
///   length of the next message. Not NULL.
/// @return As mmq_dequeue_batch; MMQ_BUFFER_TOO_SMALL when the next message does not fit buf (no
///   message was taken, buf is unchanged).
#[allow(rustdoc::broken_intra_doc_links, reason = "the lines of C are no links")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_dequeue_batch_into(
    queue: *mut mmq_queue,
    buf: *mut c_void,
    cap: usize,
    out: *mut mmq_copied_message,
    max: usize,
    count_out: *mut usize,
    len_out: *mut usize,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { take_into(queue, buf, cap, out, max, count_out, len_out) })
}

/// Takes up to max of the consumer's messages, without waiting (see mmq_dequeue_batch).
///
/// @param consumer Not NULL.
/// @param out An array of max elements, for the messages; free each with mmq_message_free. May
///   be NULL when max is 0.
/// @param max How many to take at most.
/// @param count_out Receives their number. Not NULL.
/// @return As mmq_dequeue_batch; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
///   queue was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_dequeue_batch(
    consumer: *mut mmq_consumer,
    out: *mut *mut mmq_message,
    max: usize,
    count_out: *mut usize,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { fill(consumer, out, max, count_out, messages, give_message) })
}

/// Takes up to max of the consumer's messages, without waiting, and copies them (see
/// mmq_dequeue_batch_into).
///
/// @param consumer Not NULL.
/// @param buf Receives the bytes. May be NULL when cap is 0.
/// @param cap Size of buf in bytes.
/// @param out An array of max elements, which receives where each message lies. May be NULL when
///   max is 0.
/// @param max The most messages to take.
/// @param count_out Receives the number of messages taken. Not NULL.
/// @param len_out Receives how many bytes of buf the messages take; with MMQ_BUFFER_TOO_SMALL, the
///   length of the next message. Not NULL.
/// @return As mmq_dequeue_batch_into; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once
///   the queue was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_dequeue_batch_into(
    consumer: *mut mmq_consumer,
    buf: *mut c_void,
    cap: usize,
    out: *mut mmq_copied_message,
    max: usize,
    count_out: *mut usize,
    len_out: *mut usize,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { take_into(consumer, buf, cap, out, max, count_out, len_out) })
}

/// Delivers up to max messages in one step, without waiting for more to arrive (see mmq_receive).
/// mmq_delivery_ack_batch acknowledges them in one.
///
/// @param queue Not NULL.
/// @param out An array of max elements, which receives the deliveries. May be NULL when max is 0.
/// @param max The most messages to deliver.
/// @param count_out Receives the number of deliveries. Not NULL.
/// @return As mmq_receive; MMQ_OK means at least one delivery, unless max is 0. The next call
///   reports a gap or an error behind the first message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_receive_batch(
    queue: *mut mmq_queue,
    out: *mut *mut mmq_delivery,
    max: usize,
    count_out: *mut usize,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { fill(queue, out, max, count_out, deliveries, give_delivery) })
}

/// Delivers up to max of the consumer's messages in one step (see mmq_receive_batch).
///
/// @param consumer Not NULL.
/// @param out An array of max elements, which receives the deliveries. May be NULL when max is 0.
/// @param max The most messages to deliver.
/// @param count_out Receives the number of deliveries. Not NULL.
/// @return As mmq_receive_batch; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
///   queue was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_receive_batch(
    consumer: *mut mmq_consumer,
    out: *mut *mut mmq_delivery,
    max: usize,
    count_out: *mut usize,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { fill(consumer, out, max, count_out, deliveries, give_delivery) })
}

fn messages((engine, consumer): ReaderRefs<'_>, max: usize) -> Result<Vec<Message>> {
    reading::batch(engine, consumer, max)
}

fn deliveries((engine, consumer): ReaderRefs<'_>, max: usize) -> Result<Vec<Delivery>> {
    receive_batch(engine, consumer, max)
}

/// Reads a batch, and gives the caller each of its parts.
///
/// # Safety
///
/// The arguments are valid for [`body`], [`out`] and [`Array::fill`].
unsafe fn fill<H: Reader, T, G>(
    handle: *const H,
    into: *mut *mut G,
    max: usize,
    count_out: *mut usize,
    read: fn(ReaderRefs<'_>, usize) -> Result<Vec<T>>,
    give: fn(T) -> *mut G,
) -> Answer {
    // SAFETY: the caller's promise.
    let (body, count_out) = unsafe { (body(handle)?, out(count_out, "count_out")?) };
    let array = Array::new(into, max, "out")?;
    let batch = body.gaps.note(read(H::parts(&body.reader)?, max))?;
    if batch.is_empty() && max != 0 {
        return Ok(mmq_status::MMQ_EMPTY);
    }
    // SAFETY: the caller's promise.
    count_out.write(unsafe { array.fill(batch.into_iter().map(give)) });
    Ok(mmq_status::MMQ_OK)
}

/// The caller's memory while a batch fills it.
struct Filling {
    rest: Buffer,
    array: Array<mmq_copied_message>,
    /// Bytes and messages that were copied.
    len: usize,
    count: usize,
    /// The length of a message for which there was no room.
    missing: Option<usize>,
}

impl Deliver<FileStorage> for &mut Filling {
    type Delivered = Fit;

    #[inline(always)]
    fn deliver(
        &mut self,
        cursor: &mut Cursor<<FileStorage as Storage>::File>,
        record: Record,
    ) -> Option<Fit> {
        // SAFETY: `take_into` promises that the buffer can be written to.
        let room = unsafe { self.rest.room(record.len as usize) };
        let fit = reading::fit(cursor, record, room)?;
        match fit {
            Fit::Copied { seq, len } => {
                let data = self.rest.split_off(len);
                // SAFETY: as above, for the array: a batch has at most as many messages as it has
                // elements.
                unsafe { self.array.put(self.count, mmq_copied_message { data, len, seq }) };
                self.count += 1;
                self.len += len;
            }
            Fit::TooSmall { len } => self.missing = Some(len),
        }
        Some(fit)
    }

    #[inline(always)]
    fn took(fit: &Fit) -> bool {
        fit.is_copied()
    }
}

/// # Safety
///
/// The arguments are valid for [`body`], [`out`], [`Buffer::room`] and [`Array::put`].
unsafe fn take_into<H: Reader>(
    handle: *const H,
    buf: *mut c_void,
    cap: usize,
    messages: *mut mmq_copied_message,
    max: usize,
    count_out: *mut usize,
    len_out: *mut usize,
) -> Answer {
    // SAFETY: the caller's promise.
    let (body, count_out, len_out) =
        unsafe { (body(handle)?, out(count_out, "count_out")?, out(len_out, "len_out")?) };
    let (rest, array) = (Buffer::new(buf, cap)?, Array::new(messages, max, "out")?);
    let mut filling = Filling { rest, array, len: 0, count: 0, missing: None };
    let (engine, consumer) = H::parts(&body.reader)?;
    body.gaps.note(engine.take_batch(consumer, max, Check::Later, &mut filling))?;
    if filling.count == 0 && max != 0 {
        return Ok(match filling.missing {
            Some(len) => {
                len_out.write(len);
                mmq_status::MMQ_BUFFER_TOO_SMALL
            }
            None => mmq_status::MMQ_EMPTY,
        });
    }
    count_out.write(filling.count);
    len_out.write(filling.len);
    Ok(mmq_status::MMQ_OK)
}
