//! Messages lent to C.

use std::cell::RefCell;

use super::c_handle::{CHandle, Empty, Retired, body, free, give};
use super::guard::{guard, guard_or};
use crate::engine::reading;
use crate::format::Origin;
use crate::message::Message;
use crate::read::{Cursor, Record};
use crate::storage::StorageFile;

/// A message that was taken or peeked at. Its bytes are lent in place where possible. Free it with
/// mmq_message_free. (If the system has no memory for a copy of such bytes when the queue closes,
/// the queue stays locked until the message is freed.)
pub struct mmq_message {
    _opaque: (),
}

/// The address of the bytes is computed once: they do not move while the message lives, even when
/// the queue is closed.
pub(super) struct MessageBody {
    message: Message,
    data: *const u8,
    len: usize,
}

impl MessageBody {
    pub(super) fn origin(&self) -> Option<Origin> {
        self.message.origin()
    }
}

thread_local! {
    /// One list for each thread: a message costs no lock, and, once a few were freed, no
    /// allocation.
    static RETIRED: RefCell<Retired<MessageBody>> = const { RefCell::new(Retired::new()) };
}

impl CHandle for mmq_message {
    type Body = MessageBody;
    const MAGIC: u64 = 0x6d6d_7120_6d65_7373;
    const EXCHANGED: bool = false;
    const NAME: &'static str = "message";

    #[inline]
    fn retired<R>(with: impl FnOnce(&mut Retired<MessageBody>) -> R) -> Option<R> {
        RETIRED.try_with(|retired| with(&mut retired.borrow_mut())).ok()
    }
}

pub(super) fn give_message(message: Message) -> *mut mmq_message {
    let (data, len) = (message.as_ptr(), message.len());
    give(MessageBody { message, data, len })
}

/// Makes a handle of the record that `cursor` has found; `None` when the caller must search for the
/// record again.
#[inline(always)]
pub(super) fn give_found<F: StorageFile>(
    cursor: &mut Cursor<F>,
    record: Record,
) -> Option<*mut mmq_message> {
    // Write the fields straight into the shell: moving the message would cost more than finding it.
    let shell = Empty::new();
    if let Some((window, offset)) = reading::lendable(cursor, record) {
        let len = record.len as usize;
        let data = window.bytes(offset, len).as_ptr();
        let message = Message::lent(record.seq, window.share(), offset, len);
        return Some(shell.fill(MessageBody { message, data, len }));
    }
    drop(shell);
    give_copied(cursor, record)
}

#[cold]
#[inline(never)]
fn give_copied<F: StorageFile>(cursor: &mut Cursor<F>, record: Record) -> Option<*mut mmq_message> {
    reading::message(cursor, record).map(give_message)
}

/// Returns the bytes of a message. They stay in place, unchanged, until mmq_message_free, whatever
/// happens to the queue. A forked child must not read them: there they may change at any time.
///
/// @param message Not NULL.
/// @return The first byte; not to be read when the length is 0. NULL when message is not a live
///   handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_message_data(message: *const mmq_message) -> *const u8 {
    guard_or(std::ptr::null(), || {
        // SAFETY: the header's contract: NULL or a handle that no thread frees now.
        unsafe { body(message) }.map_or(std::ptr::null(), |body| body.data)
    })
}

/// Returns the length of a message.
///
/// @param message Not NULL.
/// @return Bytes. 0 when message is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_message_len(message: *const mmq_message) -> usize {
    // SAFETY: the header's contract: NULL or a handle that no thread frees now.
    guard_or(0, || unsafe { body(message) }.map_or(0, |body| body.len))
}

/// Returns the sequence number of a message, which mmq_enqueue assigned. It identifies the message
/// and is never used twice in a queue.
///
/// @param message Not NULL.
/// @return The number. UINT64_MAX, which no message has, when message is not a live handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_message_seq(message: *const mmq_message) -> u64 {
    // SAFETY: the header's contract: NULL or a handle that no thread frees now.
    guard_or(u64::MAX, || unsafe { body(message) }.map_or(u64::MAX, |body| body.message.seq()))
}

/// Frees a message. Allowed from any thread, and after mmq_close. It does not change the consumer's
/// position.
///
/// @param message From mmq_peek, mmq_dequeue or the like, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_message_free(message: *mut mmq_message) {
    // SAFETY: the header's contract: NULL or a handle that no other thread uses now.
    guard(|| unsafe { free(message) });
}
