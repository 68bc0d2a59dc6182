//! Opens, closes and flushes a queue, enqueues, and reads through the default consumer.

use std::convert::identity;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::c_handle::{CHandle, Retired, RetiredShared, body, give, take};
use super::guard::{done, guard, guard_or};
use super::mmq_gap::{last_gap, mmq_gap};
use super::mmq_message::mmq_message;
use super::mmq_options::mmq_options;
use super::mmq_status::mmq_status;
use super::pointers::{bytes, out, out_or_null, put, text};
use super::reads::{self, Reader, ReaderBody, ReaderRefs};
use super::slices::{mmq_slice, slices};
use crate::consume::step::Read;
use crate::error::Result;
use crate::options::Options;
use crate::queue::Queue;

/// An open queue.
#[derive(Debug)]
pub struct mmq_queue {
    _opaque: (),
}

impl CHandle for mmq_queue {
    type Body = ReaderBody<Queue>;
    const MAGIC: u64 = 0x6d6d_7120_7175_6575;
    const NAME: &'static str = "queue";

    fn retired<R>(with: impl FnOnce(&mut Retired<Self::Body>) -> R) -> Option<R> {
        static RETIRED: RetiredShared<ReaderBody<Queue>> = RetiredShared::new();
        Some(RETIRED.with(with))
    }
}

impl Reader for mmq_queue {
    type Reads = Queue;

    #[inline]
    fn parts(queue: &Queue) -> Result<ReaderRefs<'_>> {
        let engine = queue.engine();
        Ok((engine, engine.default_consumer()?))
    }

    fn parts_to_look(queue: &Queue) -> Result<ReaderRefs<'_>> {
        let engine = queue.engine();
        Ok((engine, engine.default_consumer_state()))
    }
}

/// Opens the queue in a directory, and creates a missing one (see mmq_options_set_create). After a
/// close or the death of the process, opening takes milliseconds whatever the backlog. After a
/// power cut it takes as long as reading what was not flushed (see "What survives what" at the
/// top).
///
/// @param dir Path of the directory: not NULL, not empty, any bytes a path may have. The directory
///   belongs to the queue.
/// @param options How to open it; NULL for the defaults. The queue does not need them once the call
///   has returned.
/// @param out Receives the queue. Not NULL. Close it with mmq_close.
/// @return MMQ_OK, MMQ_INVALID_OPTION, MMQ_LOCKED (mmq_last_error names the process that has it
///   open), MMQ_NOT_FOUND (only with create set to false), MMQ_NOT_A_QUEUE (the directory holds
///   files, but none of a queue; it is unchanged), MMQ_UNSUPPORTED_FORMAT, MMQ_FULL, MMQ_IO,
///   MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_open(
    dir: *const c_char,
    options: *const mmq_options,
    out: *mut *mut mmq_queue,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (dir, out) = unsafe { (text(dir, "dir")?, self::out(out, "out")?) };
        let options = if options.is_null() {
            Options::new()
        } else {
            // SAFETY: the header's contract: a handle of this library.
            unsafe { body(options) }?.lock().clone()
        };
        let queue = options.open(Path::new(OsStr::from_bytes(CStr::to_bytes(dir))))?;
        out.write(give(ReaderBody::new(queue, dir.to_owned())));
        Ok(mmq_status::MMQ_OK)
    })
}

/// Makes everything durable, closes the files and frees the handle, whatever it returns. No other
/// thread may be in a call with this very handle. Threads that wait in a call of one of the queue's
/// consumers get MMQ_CLOSED; from now on the program can only free handles of consumers. Messages
/// stay readable until they are freed. Before it closes, the queue moves rejected messages to their
/// dead-letter queue; it starts no more moves after five seconds.
///
/// @param queue The queue, or NULL.
/// @return MMQ_OK; MMQ_IO or MMQ_FULL (see "Full disk" at the top) when this last flush failed,
///   MMQ_POISONED when an earlier one had failed: enqueued messages survive the process all the
///   same; MMQ_INVALID_ARGUMENT when it is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_close(queue: *mut mmq_queue) -> mmq_status {
    guard(|| {
        if queue.is_null() {
            return Ok(mmq_status::MMQ_OK);
        }
        // SAFETY: the header's contract: a handle of this library that no other thread uses now.
        unsafe { take(queue) }?.reader.close()?;
        Ok(mmq_status::MMQ_OK)
    })
}

/// Appends a message to the queue. Once the call has returned MMQ_OK, the message survives the
/// death of the process; it survives a power cut once a flush has covered it.
///
/// @param queue Not NULL.
/// @param data The bytes, which the call copies. May be NULL when len is 0: a message may be empty.
/// @param len Bytes; at most 4294967295.
/// @param seq_out Receives the sequence number. May be NULL.
/// @return MMQ_OK; MMQ_FULL (also after waiting, with MMQ_WAIT), MMQ_MESSAGE_TOO_LARGE,
///   MMQ_POISONED, MMQ_IO, MMQ_FORKED, MMQ_INVALID_ARGUMENT: nothing was changed. With
///   mmq_options_set_flush_every_ops MMQ_IO may come from the flush instead: then the message is in
///   the queue, the queue is usually poisoned, and the text of mmq_last_error says "cannot flush".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_enqueue(
    queue: *mut mmq_queue,
    data: *const c_void,
    len: usize,
    seq_out: *mut u64,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (queue, seq_out) = unsafe { (body(queue)?, out_or_null(seq_out, "seq_out")?) };
        // SAFETY: as above.
        let data = unsafe { bytes(|len| queue.reader.check_len(len), data, len)? };
        let seq = queue.reader.engine().enqueue(data)?;
        put(seq_out, seq);
        Ok(mmq_status::MMQ_OK)
    })
}

/// Appends all messages of an array to the queue, or none, even if the process or machine crashes.
///
/// @param queue Not NULL.
/// @param messages The messages, whose bytes the call copies. May be NULL when count is 0.
/// @param count How many.
/// @param first_seq_out Receives the sequence number of the first message (the others follow
///   without a gap); with no messages, the number the next message will get. May be NULL.
/// @return As mmq_enqueue: none of the messages is in the queue, or, after a failed flush, all are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_enqueue_batch(
    queue: *mut mmq_queue,
    messages: *const mmq_slice,
    count: usize,
    first_seq_out: *mut u64,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (queue, first_seq_out) =
            unsafe { (body(queue)?, out_or_null(first_seq_out, "first_seq_out")?) };
        // SAFETY: as above.
        let messages = unsafe {
            slices(|len| queue.reader.check_len(len), messages, count, "messages", identity)?
        };
        let range = queue.reader.engine().enqueue_batch(&messages)?;
        put(first_seq_out, range.start);
        Ok(mmq_status::MMQ_OK)
    })
}

/// Appends one message whose bytes lie in several buffers, in their order.
///
/// @param queue Not NULL.
/// @param parts The buffers, whose bytes the call copies. May be NULL when count is 0 (an empty
///   message).
/// @param count How many.
/// @param seq_out Receives the sequence number. May be NULL.
/// @return As mmq_enqueue; MMQ_MESSAGE_TOO_LARGE also when the parts are too long together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_enqueue_parts(
    queue: *mut mmq_queue,
    parts: *const mmq_slice,
    count: usize,
    seq_out: *mut u64,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (queue, seq_out) = unsafe { (body(queue)?, out_or_null(seq_out, "seq_out")?) };
        // SAFETY: as above.
        let parts = unsafe {
            slices(|len| queue.reader.check_len(len), parts, count, "parts", IoSlice::new)?
        };
        let seq = queue.reader.enqueue_parts(&parts)?;
        put(seq_out, seq);
        Ok(mmq_status::MMQ_OK)
    })
}

/// Returns the next message, which stays in the queue. The first read creates the queue's own
/// (default) consumer, at the oldest message in the queue.
///
/// @param queue Not NULL.
/// @param out Receives the message; free it with mmq_message_free. Not NULL.
/// @return MMQ_OK, MMQ_EMPTY, MMQ_GAP, MMQ_FULL (only from the very first read: no room for the
///   queue's own consumer), MMQ_IO, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_peek(queue: *mut mmq_queue, out: *mut *mut mmq_message) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::next(queue, Read::Look, out) })
}

/// Takes the next message. Once the call has returned, the message is not delivered again after the
/// death of the process; after a power cut, messages taken since the last flush may be delivered
/// again. MMQ_IO means that the call took no message. When a flush that the options ask for fails
/// after the read, the call still returns the message, and the next call that writes returns
/// MMQ_POISONED.
///
/// @param queue Not NULL.
/// @param out Receives the message; free it with mmq_message_free. Not NULL.
/// @return As mmq_peek.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_dequeue(
    queue: *mut mmq_queue,
    out: *mut *mut mmq_message,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::next(queue, Read::Take, out) })
}

/// Takes the next message, and waits for one. Does not poll.
///
/// @param queue Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
/// @param out Receives the message; free it with mmq_message_free. Not NULL.
/// @return As mmq_dequeue, but MMQ_TIMED_OUT where that returns MMQ_EMPTY; MMQ_INTERRUPTED by
///   mmq_interrupt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_dequeue_timeout(
    queue: *mut mmq_queue,
    timeout_ms: i64,
    out: *mut *mut mmq_message,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::next_waiting(queue, timeout_ms, out) })
}

/// Copies the next message, which stays in the queue.
///
/// @param queue Not NULL.
/// @param buf Receives the bytes. After an error other than MMQ_BUFFER_TOO_SMALL its content is
///   undefined. May be NULL when cap is 0.
/// @param cap Size of buf in bytes.
/// @param len_out Receives the length of the message, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
/// @param seq_out Receives the sequence number. May be NULL.
/// @return As mmq_peek; MMQ_BUFFER_TOO_SMALL (buf is unchanged).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_peek_into(
    queue: *mut mmq_queue,
    buf: *mut c_void,
    cap: usize,
    len_out: *mut usize,
    seq_out: *mut u64,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::next_into(queue, Read::Look, buf, cap, len_out, seq_out) })
}

/// Takes the next message and copies it. The call does not take a message that does not fit: it
/// writes the length to len_out, and the next call gets the same message.
///
/// @param queue Not NULL.
/// @param buf Receives the bytes. After an error other than MMQ_BUFFER_TOO_SMALL its content is
///   undefined. May be NULL when cap is 0.
/// @param cap Size of buf in bytes.
/// @param len_out Receives the length of the message, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
/// @param seq_out Receives the sequence number. May be NULL.
/// @return As mmq_dequeue; MMQ_BUFFER_TOO_SMALL (no message was taken, buf is unchanged).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_dequeue_into(
    queue: *mut mmq_queue,
    buf: *mut c_void,
    cap: usize,
    len_out: *mut usize,
    seq_out: *mut u64,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::next_into(queue, Read::Take, buf, cap, len_out, seq_out) })
}

/// Skips the next message: takes it without reading or checking its bytes.
///
/// @param queue Not NULL.
/// @param seq_out Receives the sequence number. May be NULL.
/// @return As mmq_dequeue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_skip(queue: *mut mmq_queue, seq_out: *mut u64) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::skip(queue, seq_out) })
}

/// Returns the gap of the latest MMQ_GAP that this thread got from a read through this handle, or,
/// if it got none, that any thread got.
///
/// @param queue Not NULL.
/// @param out Receives the gap. Not NULL.
/// @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_last_gap(queue: *mut mmq_queue, out: *mut mmq_gap) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { last_gap(queue, out, |body| &body.gaps) })
}

/// Returns the directory of a queue, as the program passed it to mmq_open.
///
/// @param queue Not NULL.
/// @return Text, valid until mmq_close. NULL when queue is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_path(queue: *const mmq_queue) -> *const c_char {
    guard_or(std::ptr::null(), || {
        // SAFETY: the header's contract: NULL or a handle that no thread closes now.
        unsafe { body(queue) }.map_or(std::ptr::null(), |body| body.called.as_ptr())
    })
}

/// Counts the messages that wait for the queue's own (default) consumer, including those in flight.
/// Without a default consumer: the messages that some consumer has not finished. Without any
/// consumer: all messages in the queue.
///
/// @param queue Not NULL.
/// @param out Receives the number. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_len(queue: *const mmq_queue, out: *mut u64) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::tell(queue, out, Queue::len) })
}

/// Tells whether no message waits for the queue's own (default) consumer.
///
/// @param queue Not NULL.
/// @param out Receives true or false. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_is_empty(queue: *const mmq_queue, out: *mut bool) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::tell(queue, out, Queue::is_empty) })
}

/// Makes everything durable that was enqueued, taken or acknowledged before: once the call has
/// returned MMQ_OK, it survives a power cut. Threads that flush at the same time share one sync.
///
/// @param queue Not NULL.
/// @return MMQ_OK; MMQ_IO when a sync failed: all writing returns MMQ_POISONED until the queue is
///   opened again; MMQ_FULL (on file systems that copy what is overwritten: see "Full disk" at the
///   top): the next mmq_flush tries again; MMQ_POISONED (mmq_last_error has the reason),
///   MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_flush(queue: *mut mmq_queue) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| done(unsafe { body(queue) }?.reader.flush()))
}

/// Returns the first sequence number not yet known to be durable.
///
/// @param queue Not NULL.
/// @param out Receives the number. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_durable_seq(queue: *const mmq_queue, out: *mut u64) -> mmq_status {
    // SAFETY: the header's contract: NULL or valid.
    guard(|| unsafe { reads::tell(queue, out, Queue::durable_seq) })
}

/// Makes sure that a message is durable: flushes if it is not yet. Threads that wait at the same
/// time share one sync.
///
/// @param queue Not NULL.
/// @param seq The message's sequence number.
/// @return As mmq_flush, but MMQ_OK for a message that is durable already; MMQ_NOT_FOUND for a
///   number that no message has got yet; MMQ_INTERRUPTED by mmq_interrupt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_wait_durable(queue: *mut mmq_queue, seq: u64) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| done(unsafe { body(queue) }?.reader.wait_durable(seq)))
}
