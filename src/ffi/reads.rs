//! The reads that a queue (through its default consumer) and a named consumer share.

use std::ffi::{CString, c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use super::c_handle::{CHandle, body, free, give};
use super::guard::{Answer, done};
use super::mmq_delivery::{give_delivery, mmq_delivery};
use super::mmq_gap::ReportedGaps;
use super::mmq_iter::{IterBody, mmq_iter};
use super::mmq_message::{give_found, give_message, mmq_message};
use super::mmq_status::mmq_status;
use super::pointers::{Buffer, out, out_or_null, put};
use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::{Deliver, Read};
use crate::delivery::handing_out;
use crate::engine::Engine;
use crate::engine::ahead::Ahead;
use crate::engine::reading::{self, Fit};
use crate::error::{Error, Result};
use crate::read::{Check, Cursor, Record};
use crate::storage::{FileStorage, Storage};

pub(super) type ReaderRefs<'a> =
    (&'a Arc<Engine<FileStorage>>, &'a Arc<ConsumerState<FileStorage>>);

/// The handle of a queue or of a consumer.
pub(super) trait Reader: CHandle<Body = ReaderBody<Self::Reads>> {
    type Reads;

    /// Returns engine and consumer for a call that reads.
    fn parts(reads: &Self::Reads) -> Result<ReaderRefs<'_>>;

    /// Returns engine and consumer for a call that only looks: the default consumer may not exist
    /// yet.
    fn parts_to_look(reads: &Self::Reads) -> Result<ReaderRefs<'_>> {
        Self::parts(reads)
    }
}

/// The body of a handle that reads.
pub(super) struct ReaderBody<R> {
    pub(super) reader: R,
    pub(super) gaps: ReportedGaps,
    /// The queue's directory or the consumer's name; C borrows it.
    pub(super) called: CString,
}

impl<R> ReaderBody<R> {
    pub(super) fn new(reader: R, called: CString) -> ReaderBody<R> {
        ReaderBody { reader, gaps: ReportedGaps::new(), called }
    }
}

/// Writes what `of` returns to `out`.
///
/// # Safety
///
/// The arguments are valid for [`body`] and [`out`].
pub(super) unsafe fn tell<H: Reader, T>(
    handle: *const H,
    out: *mut T,
    of: impl FnOnce(&H::Reads) -> T,
) -> Answer {
    // SAFETY: the caller's promise.
    let (body, out) = unsafe { (body(handle)?, self::out(out, "out")?) };
    out.write(of(&body.reader));
    Ok(mmq_status::MMQ_OK)
}

/// A message that C does not own yet: dropping this frees it.
struct OwnedMessage(*mut mmq_message);

impl OwnedMessage {
    #[inline]
    fn into_raw(mut self) -> *mut mmq_message {
        std::mem::replace(&mut self.0, std::ptr::null_mut())
    }
}

impl Deliver<FileStorage> for &mut OwnedMessage {
    type Delivered = ();

    #[inline(always)]
    fn deliver(
        &mut self,
        cursor: &mut Cursor<<FileStorage as Storage>::File>,
        record: Record,
    ) -> Option<()> {
        give_found(cursor, record).map(|message| self.0 = message)
    }
}

impl Drop for OwnedMessage {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: NULL, or a handle that C has not got yet.
        let _ = unsafe { free(self.0) };
    }
}

/// Skips the next message. Not inlined, so that queues and consumers share the code.
#[inline(never)]
fn step_over(
    engine: &Engine<FileStorage>,
    consumer: &ConsumerState<FileStorage>,
) -> Result<Option<u64>> {
    reading::skip(engine, consumer)
}

/// Returns the next message without taking it. Not inlined, so that queues and consumers share the
/// code. (Taking is inlined in both.)
#[inline(never)]
fn look(
    engine: &Engine<FileStorage>,
    consumer: &ConsumerState<FileStorage>,
    given: &mut OwnedMessage,
) -> Result<Option<()>, Box<Error>> {
    engine.read_boxed(consumer, Read::Look, Check::Now, given)
}

/// # Safety
///
/// The arguments are valid for [`body`] and [`out`].
#[inline(always)]
pub(super) unsafe fn next<H: Reader>(
    handle: *const H,
    what: Read,
    message: *mut *mut mmq_message,
) -> Answer {
    // SAFETY: the caller's promise.
    let (body, out) = unsafe { (body(handle)?, out(message, "out")?) };
    let (engine, consumer) = H::parts(&body.reader)?;
    let mut given = OwnedMessage(std::ptr::null_mut());
    let read = match what {
        Read::Look => look(engine, consumer, &mut given),
        _ => engine.read_boxed(consumer, what, Check::Now, &mut given),
    };
    if body.gaps.note(read)?.is_none() {
        return Ok(mmq_status::MMQ_EMPTY);
    }
    out.write(given.into_raw());
    Ok(mmq_status::MMQ_OK)
}

/// # Safety
///
/// The arguments are valid for [`body`] and [`out`].
pub(super) unsafe fn next_waiting<H: Reader>(
    handle: *const H,
    timeout_ms: i64,
    message: *mut *mut mmq_message,
) -> Answer {
    // SAFETY: the caller's promise.
    let (body, out) = unsafe { (body(handle)?, out(message, "out")?) };
    let (engine, consumer) = H::parts(&body.reader)?;
    let read = reading::next_waiting(engine, consumer, timeout(timeout_ms));
    body.gaps.give(read, out, mmq_status::MMQ_TIMED_OUT, give_message)
}

/// Copies the next message into a buffer without taking it.
///
/// # Safety
///
/// `buffer` is valid for [`Buffer::room`].
#[inline(never)]
unsafe fn look_into(
    engine: &Engine<FileStorage>,
    consumer: &ConsumerState<FileStorage>,
    buffer: Buffer,
) -> Result<Option<Fit>, Box<Error>> {
    // SAFETY: the caller's promise.
    reading::next_fitting(engine, consumer, Read::Look, |len| unsafe { buffer.room(len) })
}

/// # Safety
///
/// The arguments are valid for [`body`], [`out`] and [`Buffer::room`].
#[inline(always)]
pub(super) unsafe fn next_into<H: Reader>(
    handle: *const H,
    what: Read,
    buf: *mut c_void,
    cap: usize,
    len_out: *mut usize,
    seq_out: *mut u64,
) -> Answer {
    // SAFETY: the caller's promise.
    let (body, len_out, seq_out) =
        unsafe { (body(handle)?, out(len_out, "len_out")?, out_or_null(seq_out, "seq_out")?) };
    let buffer = Buffer::new(buf, cap)?;
    let (engine, consumer) = H::parts(&body.reader)?;
    let fit = match what {
        // SAFETY: the caller's promise.
        Read::Look => unsafe { look_into(engine, consumer, buffer) },
        // SAFETY: the caller's promise.
        _ => reading::next_fitting(engine, consumer, what, |len| unsafe { buffer.room(len) }),
    };
    match body.gaps.note(fit)? {
        Some(Fit::Copied { seq, len }) => {
            len_out.write(len);
            put(seq_out, seq);
            Ok(mmq_status::MMQ_OK)
        }
        Some(Fit::TooSmall { len }) => {
            len_out.write(len);
            Ok(mmq_status::MMQ_BUFFER_TOO_SMALL)
        }
        None => Ok(mmq_status::MMQ_EMPTY),
    }
}

/// # Safety
///
/// The arguments are valid for [`body`] and [`out`].
pub(super) unsafe fn iter<H: Reader>(handle: *const H, iter: *mut *mut mmq_iter) -> Answer {
    // SAFETY: the caller's promise.
    let (body, iter) = unsafe { (body(handle)?, out(iter, "out")?) };
    let (engine, consumer) = H::parts_to_look(&body.reader)?;
    engine.core.check_readable()?;
    iter.write(give(IterBody::new(Ahead::new(engine, consumer)?)));
    Ok(mmq_status::MMQ_OK)
}

/// # Safety
///
/// The arguments are valid for [`body`] and [`out_or_null`].
#[inline]
pub(super) unsafe fn skip<H: Reader>(handle: *const H, seq_out: *mut u64) -> Answer {
    // SAFETY: the caller's promise.
    let (body, seq_out) = unsafe { (body(handle)?, out_or_null(seq_out, "seq_out")?) };
    let (engine, consumer) = H::parts(&body.reader)?;
    let Some(seq) = body.gaps.note(step_over(engine, consumer))? else {
        return Ok(mmq_status::MMQ_EMPTY);
    };
    put(seq_out, seq);
    Ok(mmq_status::MMQ_OK)
}

/// Converts C's time to wait: below 0 is for ever, and becomes [`Duration::MAX`], which overflows
/// the clock and so also means for ever.
pub(super) fn timeout(ms: i64) -> Duration {
    u64::try_from(ms).map_or(Duration::MAX, Duration::from_millis)
}

/// # Safety
///
/// The arguments are valid for [`body`] and [`out`].
pub(super) unsafe fn receive<H: Reader>(
    handle: *const H,
    delivery: *mut *mut mmq_delivery,
) -> Answer {
    // SAFETY: the caller's promise.
    let (body, delivery) = unsafe { (body(handle)?, out(delivery, "out")?) };
    let (engine, consumer) = H::parts(&body.reader)?;
    let received = handing_out::receive(engine, consumer);
    body.gaps.give(received, delivery, mmq_status::MMQ_EMPTY, give_delivery)
}

/// # Safety
///
/// The arguments are valid for [`body`] and [`out`].
pub(super) unsafe fn receive_waiting<H: Reader>(
    handle: *const H,
    timeout_ms: i64,
    delivery: *mut *mut mmq_delivery,
) -> Answer {
    // SAFETY: the caller's promise.
    let (body, delivery) = unsafe { (body(handle)?, out(delivery, "out")?) };
    let (engine, consumer) = H::parts(&body.reader)?;
    let received = handing_out::receive_waiting(engine, consumer, timeout(timeout_ms));
    body.gaps.give(received, delivery, mmq_status::MMQ_TIMED_OUT, give_delivery)
}

/// # Safety
///
/// `handle` is valid for [`body`].
pub(super) unsafe fn set_max_in_flight<H: Reader>(handle: *const H, messages: u32) -> Answer {
    // SAFETY: the caller's promise.
    let body = unsafe { body(handle) }?;
    let (engine, consumer) = H::parts(&body.reader)?;
    done(engine.set_max_in_flight(consumer, (messages != 0).then_some(messages)))
}

/// # Safety
///
/// The arguments are valid for [`body`] and [`out`].
pub(super) unsafe fn ready_fd<H: Reader>(handle: *const H, descriptor: *mut c_int) -> Answer {
    // SAFETY: the caller's promise.
    let (body, descriptor) = unsafe { (body(handle)?, out(descriptor, "out")?) };
    let (engine, consumer) = H::parts_to_look(&body.reader)?;
    // Fails after a close, even if the descriptor exists: C has no lifetime that would end with the
    // queue.
    engine.core.check_readable()?;
    descriptor.write(engine.ready_fd(consumer)?.as_raw_fd());
    Ok(mmq_status::MMQ_OK)
}
