//! Every raw pointer: mapped memory, the references to it, and copying in and out of it.
//!
//! A **window** is a range of mapped bytes (in tests, of heap bytes). Each [`Window`] is a counted
//! reference to one; dropping the last reference unmaps it.
//!
//! Access is bounds-checked in every build. The queue's own rules no check can see; the `SAFETY`
//! comments here rely on them:
//!
//! 1. bytes at and behind the tail, and those of a segment not yet in use, belong to one writer at
//!    a time;
//! 2. bytes before the tail do not change until their segment is recycled, and it is recycled only
//!    when [`Window::references`] shows that no other reference to its windows is left;
//! 3. words that change while other threads read them are reached only through the `load_` and
//!    `store_` functions and `put_fragment`;
//! 4. no other process changes the files under a running queue: the owner lock keeps other queues
//!    away. A foreign program that writes into them anyway does the harm it does to any mapped
//!    file.
//!
//! So no byte is copied or lent while a thread writes it, and lent bytes never overlap bytes being
//! written.

#![expect(unsafe_code, reason = "mapped memory is reached through raw pointers, all of them here")]

mod backwards;
mod bytes;
pub(crate) mod checksum;
mod copy_and_check;
mod fork;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod futex;
#[cfg(test)]
mod heap;
mod payload;
mod references;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod shared_extents;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use backwards::before_zeros;
pub(crate) use fork::{ForkGuard, PerProcess};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use futex::{Condvar, Mutex, MutexGuard};
#[cfg(test)]
pub(crate) use heap::HeapMemory;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use payload::Payload;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use shared_extents::shares_extents;
pub(crate) use window::{CAN_DETACH, Window};

/// The length of a memory page in bytes.
pub(crate) fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
