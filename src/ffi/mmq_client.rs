//! Clients: queues that other processes have open.

use std::convert::identity;
use std::ffi::{c_char, c_void};

use super::c_handle::{CHandle, Retired, RetiredShared, body, free, give};
use super::guard::{done, guard};
use super::mmq_stats::mmq_stats;
use super::mmq_status::mmq_status;
use super::pointers::{bytes, directory, out, out_or_null, out_sized, put};
use super::slices::{mmq_slice, slices};
use crate::share::Client;

/// A queue that another process has open and shares (mmq_options_set_shared). The other process,
/// its owner, does what a client asks, and answers.
pub struct mmq_client {
    _opaque: (),
}

impl CHandle for mmq_client {
    type Body = Client;
    const MAGIC: u64 = 0x6d6d_7120_636c_6965;
    const NAME: &'static str = "client";

    fn retired<R>(with: impl FnOnce(&mut Retired<Self::Body>) -> R) -> Option<R> {
        static RETIRED: RetiredShared<Client> = RetiredShared::new();
        Some(RETIRED.with(with))
    }
}

/// Connects to the process that has the queue in a directory open, and shares it
/// (mmq_options_set_shared). Any number of threads may use a client at the same time.
///
/// @param dir Path of the directory: not NULL, not empty, any bytes a path may have.
/// @param out Receives the client; free it with mmq_client_free. Not NULL.
/// @return MMQ_OK; MMQ_NOT_SHARED when no process has the queue open, or its owner serves 64
///   clients already, or not this user; MMQ_LOCKED when its owner does not share it; MMQ_NOT_FOUND,
///   MMQ_NOT_A_QUEUE, MMQ_IO, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_connect(dir: *const c_char, out: *mut *mut mmq_client) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (dir, out) = unsafe { (directory(dir)?, self::out(out, "out")?) };
        out.write(give(Client::connect(dir)?));
        Ok(mmq_status::MMQ_OK)
    })
}

/// Frees a client. The connection ends once its consumers and deliveries are freed, too; deliveries
/// that were not acknowledged go back to the queue then.
///
/// @param client From mmq_connect, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_free(client: *mut mmq_client) {
    // SAFETY: the header's contract: NULL or a handle that no other thread uses now.
    guard(|| unsafe { free(client) });
}

/// Appends a message to the queue (see mmq_enqueue). Once the call has returned MMQ_OK, the message
/// survives the death of both processes; it survives a power cut once a flush has covered it. The
/// queue has the messages of one client in the order in which it sent them.
///
/// @param client Not NULL.
/// @param data The bytes, which the call copies. May be NULL when len is 0: a message may be empty.
/// @param len Bytes; at most 16777216.
/// @param seq_out Receives the sequence number. May be NULL.
/// @return As mmq_enqueue of the owner; MMQ_DISCONNECTED when the owner has gone, and then
///   mmq_last_error says whether the message may be in the queue all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_enqueue(
    client: *mut mmq_client,
    data: *const c_void,
    len: usize,
    seq_out: *mut u64,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (client, seq_out) = unsafe { (body(client)?, out_or_null(seq_out, "seq_out")?) };
        // SAFETY: as above.
        let data = unsafe { bytes(|len| client.check_len(len), data, len)? };
        let seq = client.enqueue(data)?;
        put(seq_out, seq);
        Ok(mmq_status::MMQ_OK)
    })
}

/// Appends all messages of an array to the queue, or none (see mmq_enqueue_batch).
///
/// @param client Not NULL.
/// @param messages The messages, whose bytes the call copies: at most 16777216 together, with 4
///   bytes for each message. May be NULL when count is 0.
/// @param count How many.
/// @param first_seq_out Receives the sequence number of the first message (the others follow
///   without a gap); with no messages, the number the next message will get. May be NULL.
/// @return As mmq_client_enqueue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_enqueue_batch(
    client: *mut mmq_client,
    messages: *const mmq_slice,
    count: usize,
    first_seq_out: *mut u64,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or valid.
        let (client, first_seq_out) =
            unsafe { (body(client)?, out_or_null(first_seq_out, "first_seq_out")?) };
        // SAFETY: as above.
        let messages =
            unsafe { slices(|len| client.check_len(len), messages, count, "messages", identity)? };
        let range = client.enqueue_batch(messages)?;
        put(first_seq_out, range.start);
        Ok(mmq_status::MMQ_OK)
    })
}

/// Makes everything durable that was enqueued, taken or acknowledged before, by whichever process
/// (see mmq_flush).
///
/// @param client Not NULL.
/// @return As mmq_flush of the owner; MMQ_DISCONNECTED when the owner has gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_flush(client: *mut mmq_client) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| done(unsafe { body(client) }?.flush()))
}

/// Makes sure that a message is durable: flushes if it is not yet (see mmq_wait_durable).
///
/// @param client Not NULL.
/// @param seq The message's sequence number.
/// @return As mmq_client_flush; MMQ_NOT_FOUND for a number that no message has got yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_wait_durable(client: *mut mmq_client, seq: u64) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| done(unsafe { body(client) }?.wait_durable(seq)))
}

/// Reads the figures of the queue (see mmq_read_stats).
///
/// @param client Not NULL.
/// @param out Receives the figures; set out->struct_size before. Not NULL.
/// @return MMQ_OK; MMQ_CLOSED and MMQ_DISCONNECTED when the owner has gone; MMQ_FORKED;
///   MMQ_INVALID_ARGUMENT, also when struct_size was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_client_read_stats(
    client: *mut mmq_client,
    out: *mut mmq_stats,
) -> mmq_status {
    guard(|| {
        // SAFETY: the header's contract: NULL or a handle of this library.
        let client = unsafe { body(client) }?;
        let unset = "struct_size was not set to sizeof(mmq_stats)";
        let figures =
            |struct_size| Ok(mmq_stats { struct_size, ..mmq_stats::from(client.stats()?) });
        // SAFETY: the header's contract: NULL, or the caller has set the first field. All fields
        // take eight bytes.
        unsafe { out_sized(out, unset, figures) }
    })
}
