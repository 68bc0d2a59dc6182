//! The locks, atomics, threads and clock outside of tests.

pub(crate) use std::sync::OnceLock;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
pub(crate) use std::thread::{Thread, current, park, park_timeout, yield_now};

use std::io;
use std::sync::{PoisonError, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Instant;

pub(crate) use crate::memory::{Condvar, Mutex, MutexGuard, is_waited_for, touch};

#[inline]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The standard library's lock, but not poisoned by panics.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(std::sync::RwLock<T>);

impl<T> RwLock<T> {
    #[inline]
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.0.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[inline]
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that was started, and ends on its own.
#[derive(Debug)]
pub(crate) struct JoinHandle(std::thread::JoinHandle<()>);

impl JoinHandle {
    pub(crate) fn is_current(&self) -> bool {
        self.0.thread().id() == std::thread::current().id()
    }

    /// Waits until the thread has ended, normally or by a panic.
    pub(crate) fn join(self) {
        let _ = self.0.join();
    }
}

pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(JoinHandle)
}
