//! The queue itself.

use std::convert::identity;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::guard::{guard, guard_or};
use super::handle::{Handle, Retired, RetiredShared, body, give, take};
use super::mmq_gap::mmq_gap;
use super::mmq_message::mmq_message;
use super::mmq_options::mmq_options;
use super::mmq_status::mmq_status;
use super::pointers::{bytes, out, out_or_null, text};
use super::reads::{self, ReaderBody};
use super::slices::{mmq_slice, slices};
use crate::consume::step::Read;
use crate::options::Options;
use crate::queue::Queue;

/// An open queue.
pub struct mmq_queue {
    _opaque: (),
}

impl Handle for mmq_queue {
    type Body = ReaderBody<Queue>;
    const MAGIC: u64 = 0x6d6d_7120_7175_6575;
    const NAME: &'static str = "queue";

    fn retired<R>(with: impl FnOnce(&mut Retired<Self::Body>) -> R) -> Option<R> {
        static RETIRED: RetiredShared<ReaderBody<Queue>> = RetiredShared::new();
        Some(RETIRED.with(with))
    }
}

/// Opens the queue in a directory, and creates a missing one (see mmq_options_set_create). Opening
/// takes milliseconds whatever the backlog, also after a crash: see "What survives what" at the
/// top.
///
/// @param dir Path of the directory: not NULL, not empty, any bytes a path may have. The directory
///   belongs to the queue.
/// @param options How to open it; NULL for the defaults. Not needed any more once the call returns.
/// @param out Where the queue goes. Not NULL. Close it with mmq_close.
/// @return MMQ_OK, MMQ_INVALID_OPTION, MMQ_LOCKED (mmq_last_error names the holder's process),
///   MMQ_NOT_FOUND (only with create set to false), MMQ_NOT_A_QUEUE (the directory holds files, but
///   none of a queue; it was left as it is), MMQ_UNSUPPORTED_FORMAT, MMQ_FULL, MMQ_IO,
///   MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_open(
    dir: *const c_char,
    options: *const mmq_options,
    out: *mut *mut mmq_queue,
) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL, or as the header says.
        let (dir, out) = unsafe { (text(dir, "dir")?, self::out(out, "out")?) };
        let options = if options.is_null() {
            Options::new()
        } else {
            // SAFETY: the contract: a handle given out.
            unsafe { body(options) }?.lock().clone()
        };
        let queue = options.open(Path::new(OsStr::from_bytes(CStr::to_bytes(dir))))?;
        out.write(give(ReaderBody::new(queue, dir.to_owned())));
        Ok(mmq_status::MMQ_OK)
    })
}

/// Makes everything durable, closes the files and frees the handle, whatever is returned. No other
/// thread may be in a call with this very handle. Threads that wait in a call of one of the queue's
/// consumers get MMQ_CLOSED; handles of consumers can only be freed from now on. Messages stay
/// readable until they are freed. Rejected messages that can go to their queue for dead letters go
/// first; after five seconds no more begin to go.
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
        // SAFETY: the contract: a handle given out, which nobody else uses now.
        unsafe { take(queue) }?.reader.close()?;
        Ok(mmq_status::MMQ_OK)
    })
}

/// Puts a message at the tail. Once the call has returned MMQ_OK, the message survives the death of
/// the process; it survives a power cut once a flush has covered it.
///
/// @param queue Not NULL.
/// @param data The bytes, which are copied. May be NULL when len is 0: a message may be empty.
/// @param len Bytes; at most 4294967295.
/// @param seq_out Where the sequence number goes. May be NULL.
/// @return MMQ_OK; MMQ_FULL (also after waiting, with MMQ_WAIT), MMQ_MESSAGE_TOO_LARGE,
///   MMQ_POISONED, MMQ_IO, MMQ_FORKED, MMQ_INVALID_ARGUMENT: nothing was changed. With
///   mmq_options_set_flush_every_ops MMQ_IO may come from the flush instead: then the message is in
///   the queue, mostly the queue is poisoned, and the text of mmq_last_error says "cannot flush".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_enqueue(
    queue: *mut mmq_queue,
    data: *const c_void,
    len: usize,
    seq_out: *mut u64,
) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL, or as the header says.
        let (queue, seq_out) = unsafe { (body(queue)?, out_or_null(seq_out, "seq_out")?) };
        // SAFETY: as above.
        let data = unsafe { bytes(&queue.reader, data, len)? };
        let seq = queue.reader.engine().enqueue(data)?;
        if let Some(seq_out) = seq_out {
            seq_out.write(seq);
        }
        Ok(mmq_status::MMQ_OK)
    })
}

/// Puts all messages of an array at the tail, or none, also when a crash intervenes.
///
/// @param queue Not NULL.
/// @param messages The messages, whose bytes are copied. May be NULL when count is 0.
/// @param count How many.
/// @param first_seq_out Where the sequence number of the first goes (the others follow without a
///   gap); with no messages, the number the next message will get. May be NULL.
/// @return As mmq_enqueue: none of the messages is in the queue, or, after a failed flush, all are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_enqueue_batch(
    queue: *mut mmq_queue,
    messages: *const mmq_slice,
    count: usize,
    first_seq_out: *mut u64,
) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL, or as the header says.
        let (queue, first_seq_out) =
            unsafe { (body(queue)?, out_or_null(first_seq_out, "first_seq_out")?) };
        // SAFETY: as above.
        let messages = unsafe { slices(&queue.reader, messages, count, "messages", identity)? };
        let range = queue.reader.engine().enqueue_batch(&messages)?;
        if let Some(first_seq_out) = first_seq_out {
            first_seq_out.write(range.start);
        }
        Ok(mmq_status::MMQ_OK)
    })
}

/// Puts one message at the tail whose bytes lie in several buffers, in their order.
///
/// @param queue Not NULL.
/// @param parts The buffers, whose bytes are copied. May be NULL when count is 0 (a message of no
///   bytes).
/// @param count How many.
/// @param seq_out Where the sequence number goes. May be NULL.
/// @return As mmq_enqueue; MMQ_MESSAGE_TOO_LARGE also when the parts are too long together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_enqueue_parts(
    queue: *mut mmq_queue,
    parts: *const mmq_slice,
    count: usize,
    seq_out: *mut u64,
) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL, or as the header says.
        let (queue, seq_out) = unsafe { (body(queue)?, out_or_null(seq_out, "seq_out")?) };
        // SAFETY: as above.
        let parts = unsafe { slices(&queue.reader, parts, count, "parts", IoSlice::new)? };
        let seq = queue.reader.enqueue_parts(&parts)?;
        if let Some(seq_out) = seq_out {
            seq_out.write(seq);
        }
        Ok(mmq_status::MMQ_OK)
    })
}

/// Looks at the next message, which stays in the queue. The first read makes the queue's own
/// (default) consumer, at the oldest message held.
///
/// @param queue Not NULL.
/// @param out Where the message goes; free it with mmq_message_free. Not NULL.
/// @return MMQ_OK, MMQ_EMPTY, MMQ_GAP, MMQ_FULL (only from the very first read: no room for the
///   queue's own consumer), MMQ_IO, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_peek(queue: *mut mmq_queue, out: *mut *mut mmq_message) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::next(queue, Read::Look, out) })
}

/// Takes the next message. Once the call has returned, the message does not come again after the
/// death of the process; after a power cut, messages taken since the last flush may come again.
/// MMQ_IO means that no message was taken. When a flush that the options ask for fails after the
/// read, the message is handed over all the same, and the next call that writes answers
/// MMQ_POISONED.
///
/// @param queue Not NULL.
/// @param out Where the message goes; free it with mmq_message_free. Not NULL.
/// @return As mmq_peek.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_dequeue(
    queue: *mut mmq_queue,
    out: *mut *mut mmq_message,
) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::next(queue, Read::Take, out) })
}

/// Takes the next message, and waits for it. Does not poll.
///
/// @param queue Not NULL.
/// @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
/// @param out Where the message goes; free it with mmq_message_free. Not NULL.
/// @return As mmq_dequeue, but MMQ_TIMED_OUT where that answers MMQ_EMPTY; MMQ_INTERRUPTED by
///   mmq_interrupt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_dequeue_timeout(
    queue: *mut mmq_queue,
    timeout_ms: i64,
    out: *mut *mut mmq_message,
) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::next_waiting(queue, timeout_ms, out) })
}

/// Looks at the next message, which stays in the queue, and copies it.
///
/// @param queue Not NULL.
/// @param buf Where the bytes go; with a status that tells of an error, MMQ_BUFFER_TOO_SMALL apart,
///   its content says nothing. May be NULL when cap is 0.
/// @param cap Size of buf in bytes.
/// @param len_out Where the length of the message goes, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
/// @param seq_out Where the sequence number goes. May be NULL.
/// @return As mmq_peek; MMQ_BUFFER_TOO_SMALL (buf is unchanged).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_peek_into(
    queue: *mut mmq_queue,
    buf: *mut c_void,
    cap: usize,
    len_out: *mut usize,
    seq_out: *mut u64,
) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::next_into(queue, Read::Look, buf, cap, len_out, seq_out) })
}

/// Takes the next message and copies it. A message that does not fit is not taken: its length is
/// written to len_out, and the message comes with the next call.
///
/// @param queue Not NULL.
/// @param buf Where the bytes go; with a status that tells of an error, MMQ_BUFFER_TOO_SMALL apart,
///   its content says nothing. May be NULL when cap is 0.
/// @param cap Size of buf in bytes.
/// @param len_out Where the length of the message goes, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
/// @param seq_out Where the sequence number goes. May be NULL.
/// @return As mmq_dequeue; MMQ_BUFFER_TOO_SMALL (no message was taken, buf is unchanged).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_dequeue_into(
    queue: *mut mmq_queue,
    buf: *mut c_void,
    cap: usize,
    len_out: *mut usize,
    seq_out: *mut u64,
) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::next_into(queue, Read::Take, buf, cap, len_out, seq_out) })
}

/// Takes up to max messages, as many as there are, without waiting.
///
/// @param queue Not NULL.
/// @param out An array of max places, where the messages go; free each with mmq_message_free. May
///   be NULL when max is 0.
/// @param max How many to take at most.
/// @param count_out Where their number goes. Not NULL.
/// @return As mmq_dequeue; MMQ_OK means at least one message, unless max is 0. A gap or an error
///   behind the first message comes with the next call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_dequeue_batch(
    queue: *mut mmq_queue,
    out: *mut *mut mmq_message,
    max: usize,
    count_out: *mut usize,
) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::batch(queue, out, max, count_out) })
}

/// Takes the next message without delivering it. Its bytes are neither read nor checked.
///
/// @param queue Not NULL.
/// @param seq_out Where the sequence number goes. May be NULL.
/// @return As mmq_dequeue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_skip(queue: *mut mmq_queue, seq_out: *mut u64) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::skip(queue, seq_out) })
}

/// The gap of the latest MMQ_GAP that a read through this handle answered to this thread, or, if
/// there was none, to any thread.
///
/// @param queue Not NULL.
/// @param out Where the gap goes. Not NULL.
/// @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_last_gap(queue: *mut mmq_queue, out: *mut mmq_gap) -> mmq_status {
    // SAFETY: the contract: NULL, or as the header says.
    guard(|| unsafe { reads::last_gap(queue, out) })
}

/// The directory of a queue, as it was given to mmq_open.
///
/// @param queue Not NULL.
/// @return Text, valid until mmq_close. NULL when queue is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_path(queue: *const mmq_queue) -> *const c_char {
    guard_or(std::ptr::null(), || {
        // SAFETY: the contract: NULL or a handle given out, which nobody closes now.
        unsafe { body(queue) }.map_or(std::ptr::null(), |body| body.called.as_ptr())
    })
}

/// How many messages wait for the queue's own (default) consumer, those in flight included. Where
/// there is none, how many any consumer has yet to deal with; without any consumer, how many are
/// held.
///
/// @param queue Not NULL.
/// @param out Where the number goes. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_len(queue: *const mmq_queue, out: *mut u64) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL, or as the header says.
        let (queue, out) = unsafe { (body(queue)?, self::out(out, "out")?) };
        out.write(queue.reader.len());
        Ok(mmq_status::MMQ_OK)
    })
}

/// Whether no message waits for the queue's own (default) consumer.
///
/// @param queue Not NULL.
/// @param out Where the answer goes. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_is_empty(queue: *const mmq_queue, out: *mut bool) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL, or as the header says.
        let (queue, out) = unsafe { (body(queue)?, self::out(out, "out")?) };
        out.write(queue.reader.is_empty());
        Ok(mmq_status::MMQ_OK)
    })
}

/// Makes durable what was enqueued and taken before: once the call has returned MMQ_OK, it survives
/// a power cut. Threads that flush at the same time share one sync.
///
/// @param queue Not NULL.
/// @return MMQ_OK; MMQ_IO when a sync failed: all writing answers MMQ_POISONED until the queue is
///   opened again; MMQ_FULL (on file systems that copy what is overwritten: see "Full disk" at the
///   top): the next mmq_flush tries again; MMQ_POISONED (mmq_last_error has the reason),
///   MMQ_FORKED, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_flush(queue: *mut mmq_queue) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL or a handle given out.
        unsafe { body(queue) }?.reader.flush()?;
        Ok(mmq_status::MMQ_OK)
    })
}

/// The first sequence number not yet known to be durable.
///
/// @param queue Not NULL.
/// @param out Where the number goes. Not NULL.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_durable_seq(queue: *const mmq_queue, out: *mut u64) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL, or as the header says.
        let (queue, out) = unsafe { (body(queue)?, self::out(out, "out")?) };
        out.write(queue.reader.durable_seq());
        Ok(mmq_status::MMQ_OK)
    })
}

/// Returns once a message is durable; flushes when it is not yet. Threads that wait at the same
/// time share one sync.
///
/// @param queue Not NULL.
/// @param seq The message's sequence number.
/// @return As mmq_flush, but MMQ_OK for a message that is durable already; MMQ_NOT_FOUND for a
///   number that was not given out yet; MMQ_INTERRUPTED by mmq_interrupt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_wait_durable(queue: *mut mmq_queue, seq: u64) -> mmq_status {
    guard(|| {
        // SAFETY: the contract: NULL or a handle given out.
        unsafe { body(queue) }?.reader.wait_durable(seq)?;
        Ok(mmq_status::MMQ_OK)
    })
}
