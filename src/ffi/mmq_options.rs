//! How a queue is opened.

use std::ffi::c_int;
use std::time::Duration;

use parking_lot::Mutex;

use super::c_handle::{CHandle, Retired, RetiredShared, body, free, give};
use super::guard::{Answer, guard, guard_or, invalid};
use super::mmq_status::mmq_status;
use crate::options::{OnFull, Options};

/// How a queue is opened. mmq_options_new makes the options, mmq_options_set_... change them,
/// mmq_open takes them.
pub struct mmq_options {
    _opaque: (),
}

impl CHandle for mmq_options {
    type Body = Mutex<Options>;
    const MAGIC: u64 = 0x6d6d_7120_6f70_7473;
    const NAME: &'static str = "options";

    fn retired<R>(with: impl FnOnce(&mut Retired<Self::Body>) -> R) -> Option<R> {
        static RETIRED: RetiredShared<Mutex<Options>> = RetiredShared::new();
        Some(RETIRED.with(with))
    }
}

/// What mmq_enqueue does when there is no room for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum mmq_on_full {
    /// Return MMQ_FULL. The default.
    MMQ_REJECT = 0,
    /// Wait until there is room.
    MMQ_WAIT = 1,
    /// Drop the oldest messages, a whole segment at a time: three quarters of max_bytes or more
    /// stay full. Every consumer that had not read them gets a gap of cause MMQ_GAP_DROPPED, and so
    /// does the queue's first consumer, if they went before it was made. A consumer made later
    /// begins behind them and gets none.
    MMQ_DROP_OLDEST = 2,
}

/// An `mmq_on_full` from C, unchecked.
type raw_on_full = c_int;

/// # Safety
///
/// `options` is valid for [`body`].
unsafe fn change(options: *mut mmq_options, how: impl FnOnce(Options) -> Options) -> Answer {
    // SAFETY: the caller's promise.
    let options = unsafe { body(options) }?;
    let mut options = options.lock();
    *options = how(options.clone());
    Ok(mmq_status::MMQ_OK)
}

/// Creates an object with the default options. Free it with mmq_options_free; a queue opened with
/// it no longer needs it.
///
/// @return The options; NULL only after a bug in mmq (see MMQ_PANIC).
#[unsafe(no_mangle)]
pub extern "C" fn mmq_options_new() -> *mut mmq_options {
    guard_or(std::ptr::null_mut(), || give(Mutex::new(Options::new())))
}

/// Frees options.
///
/// @param options From mmq_options_new, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_options_free(options: *mut mmq_options) {
    // SAFETY: the header's contract: NULL or a handle that no other thread uses now.
    guard(|| unsafe { free(options) });
}

/// Sets the size of an arena. An arena is the piece of a segment (a file with messages) that is
/// mapped into memory at a time; no segment file is longer than an arena. Default 134217728 (128
/// MiB). The size may differ at every opening. Segments are short (2 MiB) while consumers have
/// little to read, and grow with their backlog: a nearly empty queue stays small whatever its arena
/// size.
///
/// @param options Not NULL.
/// @param bytes A multiple of the OS page, 4096 to 1073741824 (checked by mmq_open).
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_options_set_arena_size(
    options: *mut mmq_options,
    bytes: u64,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe { change(options, |options| options.arena_size(bytes)) })
}

/// Sets how many arenas may be mapped at a time. Default 3. Mapped memory stays within this number
/// times the arena size, whatever the backlog.
///
/// @param options Not NULL.
/// @param arenas At least 3, or 0 for no cap (checked by mmq_open).
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_options_set_max_mapped_arenas(
    options: *mut mmq_options,
    arenas: u32,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe {
        change(options, |options| options.max_mapped_arenas((arenas != 0).then_some(arenas)))
    })
}

/// Makes the queue flush after every so many operations (messages enqueued, taken or acknowledged).
/// Default 0, off. The operation that completes the number returns once the flush is done. If the
/// flush fails, mmq_enqueue and mmq_delivery_ack return its error; a call that takes a message
/// still returns the message, and the next call that writes returns MMQ_POISONED. With 1, every
/// message is durable when mmq_enqueue returns, and consumers see it only then; threads that wait
/// at the same time share one flush.
///
/// @param options Not NULL.
/// @param operations A number of operations; 0 turns it off.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_options_set_flush_every_ops(
    options: *mut mmq_options,
    operations: u64,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe {
        change(options, |options| options.flush_every_ops((operations != 0).then_some(operations)))
    })
}

/// Makes a thread of the queue flush once in every period. Default 0, off. If such a flush fails,
/// the next call that writes reports it.
///
/// @param options Not NULL.
/// @param ms The period in milliseconds; 0 turns it off.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_options_set_flush_every_ms(
    options: *mut mmq_options,
    ms: u64,
) -> mmq_status {
    let period = (ms != 0).then_some(Duration::from_millis(ms));
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe { change(options, |options| options.flush_every(period)) })
}

/// Sets the most disk bytes that all files of the queue may take: messages, index, space allocated
/// ahead. Default 0, no limit.
///
/// @param options Not NULL.
/// @param bytes At least 65536, or 0 for no limit (checked by mmq_open).
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_options_set_max_bytes(
    options: *mut mmq_options,
    bytes: u64,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe { change(options, |options| options.max_bytes((bytes != 0).then_some(bytes))) })
}

/// Sets how much space of the file system the queue leaves free for other programs. Default 0. With
/// MMQ_DROP_OLDEST the queue drops its oldest messages to give that space back when another program
/// takes it. Once all of the queue would not be enough, it drops none, and refuses new ones.
///
/// @param options Not NULL.
/// @param bytes Bytes.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_options_set_min_free_bytes(
    options: *mut mmq_options,
    bytes: u64,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe { change(options, |options| options.min_free_bytes(bytes)) })
}

/// Sets what mmq_enqueue does when there is no room for a message. Default MMQ_REJECT.
///
/// @param options Not NULL.
/// @param policy MMQ_REJECT, MMQ_WAIT or MMQ_DROP_OLDEST.
/// @param wait_ms For MMQ_WAIT: how long to wait, in milliseconds, before returning MMQ_FULL; below
///   0: for ever. Ignored with the other policies.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT (also for an unknown policy).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_options_set_on_full(
    options: *mut mmq_options,
    policy: raw_on_full,
    wait_ms: i64,
) -> mmq_status {
    guard(|| {
        let policies =
            [mmq_on_full::MMQ_REJECT, mmq_on_full::MMQ_WAIT, mmq_on_full::MMQ_DROP_OLDEST];
        let policy = match policies.into_iter().find(|known| *known as c_int == policy) {
            Some(mmq_on_full::MMQ_REJECT) => OnFull::Reject,
            Some(mmq_on_full::MMQ_WAIT) => {
                OnFull::Wait(u64::try_from(wait_ms).ok().map(Duration::from_millis))
            }
            Some(mmq_on_full::MMQ_DROP_OLDEST) => OnFull::DropOldest,
            None => {
                return Err(invalid("policy", "not one of MMQ_REJECT, MMQ_WAIT, MMQ_DROP_OLDEST"));
            }
        };
        // SAFETY: the header's contract: NULL or a handle of this library.
        unsafe { change(options, |options| options.on_full(policy)) }
    })
}

/// Sets the maximum age of messages. The queue evicts older ones, and each consumer that had not
/// read them gets a gap of cause MMQ_GAP_EXPIRED. Default 0, never.
///
/// The queue keeps a message at least this long, and evicts it at the latest at the first check
/// after an eighth more. A thread of the queue checks every eighth of the time (at least every 30
/// s, at most every 20 ms); an opening checks, too. When the disk has no room for another segment,
/// messages in the last one live longer. A delivery in flight stays valid; if its consumer returns
/// it after its message expired, the message counts as missing, and a read reports it as a gap.
///
/// Ages follow the system's time of day. When the clock is set forward, messages may expire
/// earlier, by no more than the change. When it is set back, they may stay longer, by no more than
/// the change.
///
/// @param options Not NULL.
/// @param ms Milliseconds; 0 for no limit.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_options_set_max_age_ms(
    options: *mut mmq_options,
    ms: u64,
) -> mmq_status {
    let age = (ms != 0).then_some(Duration::from_millis(ms));
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe { change(options, |options| options.max_age(age)) })
}

/// Sets the permission bits of the queue's files: which other users may inspect it (read), or open
/// it (write). The directory gets the same bits, and x wherever there is r: 0750 for files of 0640.
/// Default 0: a new queue's files get the bits that the umask leaves of 0666, its directory those
/// of 0777, and an existing queue keeps the bits of its files, whatever the umask is. With a mode
/// the umask does not matter, and an existing queue gets the mode when it is opened; mmq_open
/// returns MMQ_IO when one of its files is another user's and has other bits.
///
/// @param options Not NULL.
/// @param bits Within 0666, with the owner's 0600, in octal: 0640; or 0 for the default (checked by
///   mmq_open).
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_options_set_mode(options: *mut mmq_options, bits: u32) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe { change(options, |options| options.mode((bits != 0).then_some(bits))) })
}

/// Sets whether mmq_open creates a missing queue, with its directory and the directories above it.
/// Default true; with false, opening it returns MMQ_NOT_FOUND.
///
/// @param options Not NULL.
/// @param create True or false.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_options_set_create(
    options: *mut mmq_options,
    create: bool,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe { change(options, |options| options.create(create)) })
}

/// Sets whether mmq_open lets other processes use the queue through this one: as clients
/// (mmq_connect, mmq::Client, Client::connect in Rust, the tool mmq). It listens on a socket in the
/// queue's directory; a thread answers each client, up to 64 at a time. Default false. mmq_open
/// returns MMQ_IO where the file system knows no sockets.
///
/// @param options Not NULL.
/// @param shared True or false.
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_options_set_shared(
    options: *mut mmq_options,
    shared: bool,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe { change(options, |options| options.shared(shared)) })
}

/// Sets the permission bits of the socket of a shared queue: which other users may use the queue.
/// Default 0600: processes of the same user, and of root. They also have to get through the
/// directory (mmq_options_set_mode).
///
/// @param options Not NULL.
/// @param bits Within 0666, with the owner's 0600, in octal: 0660 lets the group in (checked by
///   mmq_open).
/// @return MMQ_OK, MMQ_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmq_options_set_shared_mode(
    options: *mut mmq_options,
    bits: u32,
) -> mmq_status {
    // SAFETY: the header's contract: NULL or a handle of this library.
    guard(|| unsafe { change(options, |options| options.shared_mode(bits)) })
}
