//! Status codes, their texts, and this thread's last error.

use std::cell::RefCell;
use std::ffi::c_int;
use std::fmt::{self, Write};

use crate::error::Error;

/// The result of a call. 0 is success, 1 to 15 are ordinary results, 16 and above are errors. The
/// numbers never change; later versions may add some, so treat an unknown number from 16 on as an
/// error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum mmq_status {
    /// The call succeeded.
    MMQ_OK = 0,
    /// There is no message (or no gap) to return.
    MMQ_EMPTY = 1,
    /// The buffer is too small for the message: the call wrote the message's length and consumed
    /// nothing.
    MMQ_BUFFER_TOO_SMALL = 2,
    /// No message arrived in time.
    MMQ_TIMED_OUT = 3,
    /// Messages are missing here and will never be delivered. One read reports it, and the next one
    /// continues behind them: do not end a loop of reads here. See mmq_last_gap.
    MMQ_GAP = 4,
    /// An argument is invalid: NULL where it is not allowed, a handle that is closed or of another
    /// kind, an unknown number for an enum, a bad consumer name.
    MMQ_INVALID_ARGUMENT = 16,
    /// An option has an invalid value; mmq_last_error names it. mmq_open checks the options.
    MMQ_INVALID_OPTION = 17,
    /// The message is longer than this queue, or any queue, can hold.
    MMQ_MESSAGE_TOO_LARGE = 18,
    /// There is no room: a limit of the queue is reached, or the disk is full. Nothing was changed;
    /// the call works again when there is space.
    MMQ_FULL = 19,
    /// The queue is open already, in this process or in another.
    MMQ_LOCKED = 20,
    /// There is no queue, consumer or message with that name or number.
    MMQ_NOT_FOUND = 21,
    /// A later version of mmq wrote the files. The call left them unchanged.
    MMQ_UNSUPPORTED_FORMAT = 22,
    /// A system call failed; mmq_last_error names the call and the file.
    MMQ_IO = 23,
    /// An earlier flush failed: the queue rejects writes until it is opened again. Reads still
    /// work.
    MMQ_POISONED = 24,
    /// The queue was closed: the program can only free its consumers' handles.
    MMQ_CLOSED = 25,
    /// The queue was opened before a fork, and this is the child: it cannot use its parent's queue.
    MMQ_FORKED = 26,
    /// The lease of the delivery had ended: another worker gets, or got, its message. Nothing was
    /// changed.
    MMQ_EXPIRED = 27,
    /// mmq_interrupt ended the call's wait: nothing was changed, and the program may repeat the
    /// call.
    MMQ_INTERRUPTED = 28,
    /// The directory holds files, but none of a queue. The call left it unchanged; mmq_last_error
    /// names one of the files.
    MMQ_NOT_A_QUEUE = 29,
    /// The library built with forwarding only (mmq_forward.h): forwarding has ended, and a person
    /// must act. mmq_last_error says why. No message is lost.
    MMQ_FAR_SIDE = 30,
    /// A bug in mmq: a panic, or an invariant that does not hold. The queue can still be used;
    /// please report mmq_last_error's text.
    MMQ_PANIC = 31,
    /// No owner of the queue answers: no process has it open, or it serves enough clients already,
    /// or not this user. mmq_last_error says which.
    MMQ_NOT_SHARED = 32,
    /// The connection to the queue's owner has ended, because its process died or closed the queue.
    /// mmq_last_error says whether the call may have been done.
    MMQ_DISCONNECTED = 33,
}

/// An `mmq_status` from C, unchecked.
pub(super) type raw_status = c_int;

impl mmq_status {
    pub(super) const ALL: [mmq_status; 23] = [
        mmq_status::MMQ_OK,
        mmq_status::MMQ_EMPTY,
        mmq_status::MMQ_BUFFER_TOO_SMALL,
        mmq_status::MMQ_TIMED_OUT,
        mmq_status::MMQ_GAP,
        mmq_status::MMQ_INVALID_ARGUMENT,
        mmq_status::MMQ_INVALID_OPTION,
        mmq_status::MMQ_MESSAGE_TOO_LARGE,
        mmq_status::MMQ_FULL,
        mmq_status::MMQ_LOCKED,
        mmq_status::MMQ_NOT_FOUND,
        mmq_status::MMQ_UNSUPPORTED_FORMAT,
        mmq_status::MMQ_IO,
        mmq_status::MMQ_POISONED,
        mmq_status::MMQ_CLOSED,
        mmq_status::MMQ_FORKED,
        mmq_status::MMQ_EXPIRED,
        mmq_status::MMQ_INTERRUPTED,
        mmq_status::MMQ_NOT_A_QUEUE,
        mmq_status::MMQ_FAR_SIDE,
        mmq_status::MMQ_PANIC,
        mmq_status::MMQ_NOT_SHARED,
        mmq_status::MMQ_DISCONNECTED,
    ];

    pub(super) fn text(self) -> &'static std::ffi::CStr {
        match self {
            mmq_status::MMQ_OK => c"success",
            mmq_status::MMQ_EMPTY => c"the queue is empty",
            mmq_status::MMQ_BUFFER_TOO_SMALL => c"the buffer is too small for the message",
            mmq_status::MMQ_TIMED_OUT => c"no message came in time",
            mmq_status::MMQ_GAP => c"messages are missing and will never come",
            mmq_status::MMQ_INVALID_ARGUMENT => c"invalid argument",
            mmq_status::MMQ_INVALID_OPTION => c"invalid option",
            mmq_status::MMQ_MESSAGE_TOO_LARGE => c"the message is too large",
            mmq_status::MMQ_FULL => c"the queue or the disk is full",
            mmq_status::MMQ_LOCKED => c"the queue is open already",
            mmq_status::MMQ_NOT_FOUND => c"not found",
            mmq_status::MMQ_UNSUPPORTED_FORMAT => c"the files are of a later format version",
            mmq_status::MMQ_IO => c"the operating system refused a call",
            mmq_status::MMQ_POISONED => c"the queue refuses writes because a flush failed",
            mmq_status::MMQ_CLOSED => c"the queue is closed",
            mmq_status::MMQ_FORKED => c"the queue was opened before a fork",
            mmq_status::MMQ_EXPIRED => c"the lease of the delivery has ended",
            mmq_status::MMQ_INTERRUPTED => c"the wait was interrupted",
            mmq_status::MMQ_NOT_A_QUEUE => c"the directory holds files and is not a queue",
            mmq_status::MMQ_FAR_SIDE => c"forwarding has ended: a person must act",
            mmq_status::MMQ_PANIC => c"a bug in mmq",
            mmq_status::MMQ_NOT_SHARED => c"no owner of the queue answers",
            mmq_status::MMQ_DISCONNECTED => c"the connection to the queue's owner has ended",
        }
    }

    /// Returns the status for an error. No wildcard: a new error needs a decision here.
    pub(super) fn of(error: &Error) -> mmq_status {
        let has_number = |status: &mmq_status| *status as i32 == i32::from(error.status());
        mmq_status::ALL.into_iter().find(has_number).unwrap_or(mmq_status::MMQ_PANIC)
    }
}

/// The longest error text kept: room for the longest path and the words around it.
const TEXT_LEN: usize = 5120;

/// An error text in memory of fixed length. C gets copies, never a pointer to it.
struct Text {
    len: usize,
    bytes: [u8; TEXT_LEN],
}

impl Write for Text {
    /// Appends as much of `text` as fits, cut between characters.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = TEXT_LEN - self.len;
        let end = floor_char_boundary(text, room);
        self.bytes[self.len..self.len + end].copy_from_slice(&text.as_bytes()[..end]);
        self.len += end;
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Returns the last boundary between characters at or before `index`. (`str::floor_char_boundary`,
/// which the oldest supported compiler lacks.)
pub(super) fn floor_char_boundary(text: &str, index: usize) -> usize {
    (0..=index.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

thread_local! {
    static LAST_ERROR: RefCell<Text> =
        const { RefCell::new(Text { len: 0, bytes: [0; TEXT_LEN] }) };
}

/// Makes `what` this thread's last error.
#[cold]
pub(super) fn remember(what: &dyn fmt::Display) {
    LAST_ERROR.with(|text| {
        // It is already borrowed only if a `Display` called back while its text is written; none
        // does.
        if let Ok(mut text) = text.try_borrow_mut() {
            text.len = 0;
            let _ = write!(text, "{what}");
        }
    });
}

/// Runs `look` with this thread's last error text.
pub(super) fn last_error(look: impl FnOnce(&str) -> usize) -> usize {
    LAST_ERROR.with(|text| match text.try_borrow() {
        Ok(text) => look(&String::from_utf8_lossy(&text.bytes[..text.len])),
        Err(_) => 0,
    })
}
