//! Locks, atomics, threads and the clock as they are outside of tests.

pub(crate) use std::sync::OnceLock;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
pub(crate) use std::thread::{Thread, current, park, park_timeout};

use std::io;
use std::time::Instant;

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};

#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A thread that was started, and ends on its own.
#[derive(Debug)]
pub(crate) struct JoinHandle(std::thread::JoinHandle<()>);

impl JoinHandle {
    pub(crate) fn is_current(&self) -> bool {
        self.0.thread().id() == std::thread::current().id()
    }

    /// Waits until it has ended, whether in order or by a panic.
    pub(crate) fn join(self) {
        let _ = self.0.join();
    }
}

pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(JoinHandle)
}
