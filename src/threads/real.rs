//! The locks, atomics, threads and clock outside of tests.

pub(crate) use std::sync::OnceLock;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
pub(crate) use std::thread::{Thread, current, park, park_timeout, yield_now};

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
