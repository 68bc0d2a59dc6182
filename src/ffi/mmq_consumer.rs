//! Named consumers.

use std::ffi::{CString, c_char, c_int, c_void};

use super::c_handle::{CHandle, Retired, RetiredShared, body, free, give};
use super::guard::{done, guard, guard_or, invalid};
use super::mmq_gap::{last_gap, mmq_gap};
use super::mmq_message::mmq_message;
use super::mmq_status::mmq_status;
use super::pointers::{Buffer, consumer_name, out};
use super::queue::mmq_queue;
use super::reads::{self, Reader, ReaderBody, ReaderRefs};
use crate::consume::step::Read;
use crate::consumer::Consumer;
use crate::error::Result;
use crate::options::Start;

/// A consumer: a named, stored read position in a queue. Handles of the same consumer share its
/// position: each message goes to exactly one of them. Consumers of different names each see every
/// message.
pub struct mmq_consumer {
    _opaque: (),
}

impl CHandle for mmq_consumer {
    type Body = ReaderBody<Consumer>;
    const MAGIC: u64 = 0x6d6d_7120_636f_6e73;
    const NAME: &'static str = "consumer";

    fn retired<R>(with: impl FnOnce(&mut Retired<Self::Body>) -> R) -> Option<R> {
        static RETIRED: RetiredShared<ReaderBody<Consumer>> = RetiredShared::new();
        Some(RETIRED.with(with))
    }
}

impl Reader for mmq_consumer {
    type Reads = Consumer;

    #[inline]
    fn parts(consumer: &Consumer) -> Result<ReaderRefs<'_>> {
        Ok(consumer.parts())
    }
}

/// Where a new consumer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum mmq_start {
    /// At the oldest message in the queue.
    MMQ_START_OLDEST = 0,
    /// Behind the newest message.
    MMQ_START_END = 1,
    /// At the message with a given sequence number, or at the next one if that is no longer in the
    /// queue.
    MMQ_START_SEQ = 2,
}

/// An `mmq_start` from C, unchecked.
type raw_start = c_int;

fn give_consumer(consumer: Consumer) -> *mut mmq_consumer {
    // The name came from C, so no zero byte is in it.
    let name = CString::new(consumer.name()).unwrap_or_default();
    give(ReaderBody::new(consumer, name))
}

/// Opens the consumer of that name. The first call with a name creates the consumer, at the oldest
/// message in the queue, and stores its name and position. The queue frees the space of messages
/// that every consumer has passed.
///
/// While a queue has no consumer, it keeps all messages. From the first consumer on, it keeps only
/// what its consumers have not passed: so open all consumers before the first one reads. (The
/// default consumer, which the queue's first read creates, is one of them.)
///
/// @param queue Not NULL.
/// @param name 1 to 255 bytes of UTF-8. Not NULL.
/// @param out Receives the handle; free it with mmq_consumer_free. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT, MMQ_FULL or MMQ_IO when there is no room for another
///   consumer, MMQ_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_open(
    queue: *mut mmq_queue,
    name: *const c_char,
    out: *mut *mut mmq_consumer,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (queue, name, out) =
            unsafe { (body(queue)?, consumer_name(name)?, self::out(out, "out")?) };
        out.write(give_consumer(queue.reader.consumer(name)?));
        Ok(mmq_status::MMQ_OK)
    })
}

/// Opens the consumer of that name (see mmq_consumer_open), and creates a missing one where start
/// says, in one step: it neither misses nor reads twice a message enqueued meanwhile. An existing
/// consumer keeps its position.
///
/// While a queue has no consumer, it keeps all messages: open all consumers before the first one
/// reads. If the first consumer starts behind the oldest message, the queue discards the messages
/// before it; mmq_stats.unclaimed counts them.
///
/// @param queue Not NULL.
/// @param name 1 to 255 bytes of UTF-8. Not NULL.
/// @param start Where a new consumer begins.
/// @param seq The sequence number for MMQ_START_SEQ; ignored otherwise.
/// @param out Receives the handle; free it with mmq_consumer_free. Not NULL.
/// @return As mmq_consumer_open; MMQ_NOT_FOUND for a number that no message has got yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_open_at(
    queue: *mut mmq_queue,
    name: *const c_char,
    start: raw_start,
    seq: u64,
    out: *mut *mut mmq_consumer,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (queue, name, out) =
            unsafe { (body(queue)?, consumer_name(name)?, self::out(out, "out")?) };
        let starts =
            [mmq_start::MMQ_START_OLDEST, mmq_start::MMQ_START_END, mmq_start::MMQ_START_SEQ];
        let start = match starts.into_iter().find(|known| *known as c_int == start) {
            Some(mmq_start::MMQ_START_OLDEST) => Start::Oldest,
            Some(mmq_start::MMQ_START_END) => Start::End,
            Some(mmq_start::MMQ_START_SEQ) => Start::Seq(seq),
            None => {
                let known = "not one of MMQ_START_OLDEST, MMQ_START_END, MMQ_START_SEQ";
                return Err(invalid("start", known));
            }
        };
        out.write(give_consumer(queue.reader.consumer_at(name, start)?));
        Ok(mmq_status::MMQ_OK)
    })
}

/// Creates a consumer at the position of another one. The new consumer also receives the messages
/// that the other one has not acknowledged.
///
/// @param consumer Not NULL.
/// @param name The new consumer's name: 1 to 255 bytes of UTF-8, not in use yet. Not NULL.
/// @param out Receives the handle; free it with mmq_consumer_free. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT (also for a name already in use), MMQ_FULL or MMQ_IO when
///   there is no room for another consumer, MMQ_CLOSED once the queue was closed, MMQ_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_fork(
    consumer: *const mmq_consumer,
    name: *const c_char,
    out: *mut *mut mmq_consumer,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (consumer, name, out) =
            unsafe { (body(consumer)?, consumer_name(name)?, self::out(out, "out")?) };
        out.write(give_consumer(consumer.reader.fork(name)?));
        Ok(mmq_status::MMQ_OK)
    })
}

/// Frees a handle. The consumer itself stays in the queue (mmq_consumer_remove removes it). Allowed
/// after mmq_close.
///
/// @param consumer From mmq_consumer_open or mmq_consumer_fork, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_free(consumer: *mut mmq_consumer) {
    // SAFETY: the header's contract: NULL or a handle that no other thread uses now.
    guard(|| unsafe { free(consumer) });
}

/// Removes a consumer: the queue no longer keeps messages for it. Calls through its handles return
/// MMQ_NOT_FOUND from now on; free the handles as usual. The removal survives the death of the
/// process, and a power cut once a flush has covered the call. The empty name removes the queue's
/// own (default) consumer: calls that wait in it return MMQ_NOT_FOUND, and the next reading call
/// creates it again, at the oldest message in the queue.
///
/// @param queue Not NULL.
/// @param name The consumer's name. Not NULL.
/// @return MMQ_OK, MMQ_NOT_FOUND when no consumer has that name, MMQ_FORKED, MMQ_INVALID_ARGUMENT;
///   MMQ_IO when a sync failed, as in mmq_flush (the consumer is removed all the same).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_remove(
    queue: *mut mmq_queue,
    name: *const c_char,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (queue, name) = unsafe { (body(queue)?, consumer_name(name)?) };
        done(queue.reader.remove_consumer(name))
    })
}

/// Returns the consumer's next message, which stays in the queue (see mmq_peek).
///
/// @param consumer Not NULL.
/// @param out Receives the message; free it with mmq_message_free. Not NULL.
/// @return As mmq_peek; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
///   closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_peek(
    consumer: *mut mmq_consumer,
    out: *mut *mut mmq_message,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::next(consumer, Read::Look, out) })
}

/// Takes the consumer's next message (see mmq_dequeue).
///
/// @param consumer Not NULL.
/// @param out Receives the message; free it with mmq_message_free. Not NULL.
/// @return As mmq_dequeue; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue
///   was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_dequeue(
    consumer: *mut mmq_consumer,
    out: *mut *mut mmq_message,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::next(consumer, Read::Take, out) })
}

/// Takes the consumer's next message, and waits for one (see mmq_dequeue_timeout).
///
/// @param consumer Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
/// @param out Receives the message; free it with mmq_message_free. Not NULL.
/// @return As mmq_dequeue_timeout; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
///   queue was closed, also to a call that waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_dequeue_timeout(
    consumer: *mut mmq_consumer,
    timeout_ms: i64,
    out: *mut *mut mmq_message,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::next_waiting(consumer, timeout_ms, out) })
}

/// Copies the consumer's next message, which stays in the queue (see mmq_peek_into).
///
/// @param consumer Not NULL.
/// @param buf Receives the bytes. May be NULL when cap is 0.
/// @param cap Size of buf in bytes.
/// @param len_out Receives the length of the message, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
/// @param seq_out Receives the sequence number. May be NULL.
/// @return As mmq_peek_into; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue
///   was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_peek_into(
    consumer: *mut mmq_consumer,
    buf: *mut c_void,
    cap: usize,
    len_out: *mut usize,
    seq_out: *mut u64,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::next_into(consumer, Read::Look, buf, cap, len_out, seq_out) })
}

/// Takes the consumer's next message and copies it (see mmq_dequeue_into).
///
/// @param consumer Not NULL.
/// @param buf Receives the bytes. May be NULL when cap is 0.
/// @param cap Size of buf in bytes.
/// @param len_out Receives the length of the message, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
/// @param seq_out Receives the sequence number. May be NULL.
/// @return As mmq_dequeue_into; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
///   queue was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_dequeue_into(
    consumer: *mut mmq_consumer,
    buf: *mut c_void,
    cap: usize,
    len_out: *mut usize,
    seq_out: *mut u64,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::next_into(consumer, Read::Take, buf, cap, len_out, seq_out) })
}

/// Skips the consumer's next message: takes it without reading its bytes (see mmq_skip).
///
/// @param consumer Not NULL.
/// @param seq_out Receives the sequence number. May be NULL.
/// @return As mmq_skip; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
///   closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_skip(
    consumer: *mut mmq_consumer,
    seq_out: *mut u64,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::skip(consumer, seq_out) })
}

/// Returns the gap of the latest MMQ_GAP that a read through this handle returned (see
/// mmq_last_gap).
///
/// @param consumer Not NULL.
/// @param out Receives the gap. Not NULL.
/// @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_last_gap(
    consumer: *mut mmq_consumer,
    out: *mut mmq_gap,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { last_gap(consumer, out, |body| &body.gaps) })
}

/// Returns the name of a consumer.
///
/// @param consumer Not NULL.
/// @return UTF-8 text, valid until mmq_consumer_free. NULL when consumer is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_name(consumer: *const mmq_consumer) -> *const c_char {
    guard_or(std::ptr::null(), || {
        // SAFETY: the header's contract: NULL or a handle that no thread frees now.
        unsafe { body(consumer) }.map_or(std::ptr::null(), |body| body.called.as_ptr())
    })
}

/// Lists the names of all consumers, in the order of their bytes. The queue's own (default)
/// consumer has no name. (Names with a zero byte, which only a Rust program can give, are omitted.)
///
/// @param queue Not NULL.
/// @param buf Receives the names one after another, each ended by a zero byte. May be NULL when cap
///   is 0.
/// @param cap Size of buf in bytes.
/// @param len_out Receives the length of all names together in bytes, zero bytes included, also
///   with MMQ_BUFFER_TOO_SMALL. Not NULL.
/// @return MMQ_OK, MMQ_BUFFER_TOO_SMALL (buf is unchanged), MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumers(
    queue: *const mmq_queue,
    buf: *mut c_char,
    cap: usize,
    len_out: *mut usize,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (queue, len_out) = unsafe { (body(queue)?, self::out(len_out, "len_out")?) };
        let buffer = Buffer::new(buf.cast(), cap)?;
        let names = queue.reader.consumers().into_iter().filter_map(|name| CString::new(name).ok());
        let names: Vec<u8> = names.flat_map(CString::into_bytes_with_nul).collect();
        // SAFETY: the header's contract: the buffer has cap writable bytes.
        let room = unsafe { buffer.room(names.len()) };
        len_out.write(names.len());
        let Some(room) = room else {
            return Ok(mmq_status::MMQ_BUFFER_TOO_SMALL);
        };
        room.copy_from_slice(&names);
        Ok(mmq_status::MMQ_OK)
    })
}

/// Counts the messages that wait for this consumer, including those in flight.
///
/// @param consumer Not NULL.
/// @param out Receives the number. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_len(
    consumer: *const mmq_consumer,
    out: *mut u64,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::tell(consumer, out, Consumer::len) })
}

/// Tells whether no message waits for this consumer, and none is in flight.
///
/// @param consumer Not NULL.
/// @param out Receives true or false. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_is_empty(
    consumer: *const mmq_consumer,
    out: *mut bool,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::tell(consumer, out, Consumer::is_empty) })
}

/// Moves a consumer to a message, backward or forward. The sequence number after the last message
/// leads to the end of the queue, a number within a gap to that gap. The move cancels earlier
/// deliveries: to acknowledge or return them changes nothing any more.
///
/// @param consumer Not NULL.
/// @param seq The message's sequence number.
/// @return MMQ_OK, MMQ_NOT_FOUND when that message is not in the queue (yet or any more), or the
///   consumer was removed, MMQ_IO (messages acknowledged behind the position may be delivered again
///   after the next opening), MMQ_CLOSED once the queue was closed, MMQ_FORKED,
///   MMQ_INVALID_ARGUMENT. The position changes only with MMQ_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_consumer_seek(consumer: *mut mmq_consumer, seq: u64) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| done(unsafe { body(consumer) }?.reader.seek(seq)))
}
