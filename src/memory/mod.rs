//! Every raw pointer: mapped memory, its references, and copying in and out of it.
//!
//! A **window** is a range of mapped bytes (of heap bytes in tests). It lives as long as a
//! [`Window`] on it; the last one to be dropped unmaps it.
//!
//! Access is bounds-checked in every build. What no check can see is the queue's own protocol, on
//! which the `SAFETY` comments here rely:
//!
//! 1. bytes at and behind the tail, and of a segment that is nobody's yet, belong to one writer at
//!    a time;
//! 2. bytes before the tail do not change until their segment is recycled, and it is recycled only
//!    when [`Window::references`] shows that nobody else holds a window;
//! 3. words that change while others look at them are reached through the `load_` and `store_`
//!    functions and `put_fragment` alone;
//! 4. nobody outside changes the files under a running queue: the owner lock keeps other queues
//!    away, and a foreign program that writes into them anyway is as harmful as with any mapped
//!    file.
//!
//! So no byte is ever copied or lent while it is being written, and lent bytes never overlap bytes
//! being written.

#![expect(unsafe_code, reason = "mapped memory is reached through raw pointers, all of them here")]

mod bytes;
pub(crate) mod checksum;
mod copy;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod extents;
mod fork;
#[cfg(test)]
mod heap;
#[cfg(test)]
mod tests;
mod window;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use extents::shares_extents;
pub(crate) use fork::ForkGuard;
#[cfg(test)]
pub(crate) use heap::HeapMemory;
pub(crate) use window::{CAN_DETACH, Window};

/// The OS page in bytes.
pub(crate) fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
