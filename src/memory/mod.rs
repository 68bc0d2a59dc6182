//! Every raw pointer: mapped memory, the references to it, and copying in and out of it.
//!
//! | file | what it holds | what it does |
//! |---|---|---|
//! | `window` | `Window`: a counted reference to mapped bytes | maps, shares, detaches, unmaps |
//! | `references` | `References`: a count | tells which reference is the last |
//! | `bytes` | | reads, writes and lends the bytes of a window |
//! | `copy_and_check` | | copies bytes, with or without a checksum |
//! | `checksum` | | the sum of records and tables |
//! | `payload` | `Payload`: a message in one piece or several | |
//! | `futex` | `Mutex`, `Condvar` | locks that work in a forked child |
//! | `fork` | `ForkGuard`, `PerProcess` | detects a forked child, rebuilds values there |
//! | `mark` | | marks a directory for processes of other namespaces |
//! | `shared_extents` | | asks whether a file shares disk space with another, or has holes |
//!
//! A **window** is a range of mapped bytes (in tests, of heap bytes: `tests/heap.rs`). Each
//! [`Window`] is a counted reference to one; dropping the last reference unmaps it.
//!
//! Every build checks bounds. No check can see the queue's own rules, on which the `SAFETY`
//! comments here rely:
//!
//! 1. bytes at and behind the tail, and those of a segment not yet in use, belong to one writer at
//!    a time;
//! 2. bytes before the tail do not change until their segment is recycled, and it is recycled only
//!    when [`Window::references`] shows that no other reference to its windows is left;
//! 3. threads access words that change while others read them only through the `load_` and `store_`
//!    functions and `put_fragment`;
//! 4. no other process changes the files under a running queue: the owner lock keeps other queues
//!    away. A foreign program that writes into them anyway does the same harm as to any mapped
//!    file.
//!
//! So no thread copies or lends a byte while another writes it, and lent bytes never overlap bytes
//! being written.

#![expect(unsafe_code, reason = "mapped memory is reached through raw pointers, all of them here")]

mod bytes;
pub(crate) mod checksum;
mod copy_and_check;
mod fork;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod futex;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod mark;
mod payload;
mod references;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod shared_extents;
#[cfg(test)]
pub(crate) mod tests;
mod window;

pub(crate) use fork::{ForkGuard, PerProcess};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use futex::{Condvar, Mutex, MutexGuard, is_waited_for, touch};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use mark::{is_marked, mark, unmark};
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use payload::Payload;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use shared_extents::{has_holes, shares_extents};
#[cfg(test)]
pub(crate) use tests::heap::HeapMemory;
pub(crate) use window::{CAN_DETACH, Window};

/// The locks of `parking_lot` do not say.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn is_waited_for<T>(_: &MutexGuard<'_, T>) -> bool {
    false
}

/// Here this takes the lock, and waits for it.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn touch<T>(lock: &Mutex<T>) {
    drop(lock.lock());
}

unsafe extern "C" {
    fn getrlimit(resource: std::ffi::c_int, limit: *mut u64) -> std::ffi::c_int;
}

/// Returns RLIMIT_FSIZE, the longest that a file may get; `None` where the system refuses the
/// question. (To rustix no system does: it reads what the call left unwritten.)
pub(crate) fn file_limit() -> Option<u64> {
    let mut limits = [0; 2];
    // SAFETY: the call writes a `struct rlimit`, which is two numbers of 64 bits.
    let answer = unsafe { getrlimit(1, limits.as_mut_ptr()) };
    (answer == 0).then_some(limits[0])
}

/// The length of a memory page in bytes.
pub(crate) fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
