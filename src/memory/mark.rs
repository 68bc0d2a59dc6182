//! A mark on an open directory: a shared lock of its description, beside the lock of a queue.
//!
//! Whoever asks for this lock learns whether it is there, in whatever namespace its process is, and
//! takes nothing. The lock of the queue cannot be asked for: `/proc/locks` leaves out processes of
//! other namespaces, and whoever tried the lock would have it for a moment, in which an opener
//! finds the queue locked.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `struct flock` where words have 64 bits: kind, whence, start, length, process.
#[repr(C)]
struct FileLock(i16, i16, i64, i64, i32);

// A command, and the kind of a lock. Who asks for an exclusive one learns of each shared one.
const ASK: (c_int, i16) = (36, 1); // F_OFD_GETLK, F_WRLCK
const MARK: (c_int, i16) = (37, 0); // F_OFD_SETLK, F_RDLCK
const UNMARK: (c_int, i16) = (37, 2); // F_OFD_SETLK, F_UNLCK

unsafe extern "C" {
    fn fcntl(descriptor: c_int, command: c_int, ...) -> c_int;
}

/// Returns what the command leaves in the lock; `None` where the system refuses it.
fn call(directory: BorrowedFd<'_>, (command, kind): (c_int, i16)) -> Option<i16> {
    let mut lock = FileLock(kind, 0, 0, 0, 0);
    // SAFETY: the descriptor is open. Both commands read and write a `struct flock`, as `lock` is.
    let done = unsafe { fcntl(directory.as_raw_fd(), command, &raw mut lock) };
    (done == 0).then_some(lock.0)
}

/// Marks the directory, until the last descriptor of this opening goes.
pub(crate) fn mark(directory: BorrowedFd<'_>) {
    let _ = call(directory, MARK);
}

/// Takes the mark of this opening away.
pub(crate) fn unmark(directory: BorrowedFd<'_>) {
    let _ = call(directory, UNMARK);
}

/// Returns whether the directory has a mark by another opening.
pub(crate) fn is_marked(directory: BorrowedFd<'_>) -> bool {
    call(directory, ASK).is_some_and(|met| met != UNMARK.1)
}
