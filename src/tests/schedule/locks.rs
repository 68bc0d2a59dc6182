//! Locks and condition variables as `crate::threads` has them, each use of which is a step of the
//! schedule that runs the calling thread. Where none does they are the real ones.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::Instant;

use super::{child, here, is_scheduled, ranks, step};
use crate::threads::ranks::Rank;

pub(crate) struct Mutex<T> {
    inner: parking_lot::Mutex<T>,
    /// Where it stands in the order of locks, if it has a place there.
    rank: Option<Rank>,
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// There but while a call has released the lock.
    guard: Option<parking_lot::MutexGuard<'a, T>>,
    /// Where it was taken.
    at: &'static Location<'static>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex { inner: parking_lot::Mutex::new(value), rank: None }
    }

    pub(super) fn with_rank(rank: Rank, value: T) -> Mutex<T> {
        Mutex { rank: Some(rank), ..Mutex::new(value) }
    }

    /// It is held from now on.
    fn held(&self, at: &'static Location<'static>) {
        if let Some(rank) = self.rank {
            ranks::push(self.key(), rank, at);
        }
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        if let Some(rank) = self.rank {
            ranks::check(rank);
        }
        child::check();
        step();
        let guard = MutexGuard { mutex: self, guard: Some(self.take()), at: Location::caller() };
        self.held(guard.at);
        guard
    }

    fn take(&self) -> parking_lot::MutexGuard<'_, T> {
        if !is_scheduled() {
            return self.inner.lock();
        }
        loop {
            if let Some(guard) = self.inner.try_lock() {
                return guard;
            }
            here(|schedule, me| schedule.wait(me, self.key(), None));
        }
    }

    #[track_caller]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        step();
        let at = Location::caller();
        let guard = self.inner.try_lock()?;
        self.held(at);
        Some(MutexGuard { mutex: self, guard: Some(guard), at })
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Whether another thread of the schedule waits for the lock.
pub(crate) fn is_waited_for<T>(guard: &MutexGuard<'_, T>) -> bool {
    is_scheduled() && here(|schedule, _| schedule.is_waited_for(guard.mutex.key()))
}

/// Two steps, without the lock. (Where no schedule runs it waits for the lock of `parking_lot`,
/// which does not promise what the product's own does.)
pub(crate) fn touch<T>(lock: &Mutex<T>) {
    step();
    if !is_scheduled() {
        drop(lock.inner.lock());
    }
    step();
}

impl<T> MutexGuard<'_, T> {
    fn release(&mut self) {
        self.guard = None;
        if self.mutex.rank.is_some() {
            ranks::pop(self.mutex.key());
        }
        if is_scheduled() {
            here(|schedule, _| schedule.wake(self.mutex.key(), usize::MAX));
        }
    }

    fn take_again(&mut self) {
        self.guard = Some(self.mutex.take());
        self.mutex.held(self.at);
    }

    pub(crate) fn unlocked<R>(guard: &mut Self, work: impl FnOnce() -> R) -> R {
        guard.release();
        step();
        let done = work();
        guard.take_again();
        done
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("the lock is held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("the lock is held")
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.release();
        step();
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_scheduled(guard, None);
    }

    /// True when the time is over.
    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> bool {
        self.wait_scheduled(guard, Some(until))
    }

    fn wait_scheduled<T>(&self, guard: &mut MutexGuard<'_, T>, until: Option<Instant>) -> bool {
        if !is_scheduled() {
            let inner = guard.guard.as_mut().expect("the lock is held");
            return match until {
                None => {
                    self.0.wait(inner);
                    false
                }
                Some(until) => self.0.wait_until(inner, until).timed_out(),
            };
        }
        // The lock is released and the wait begun in one step.
        guard.release();
        let is_woken = here(|schedule, me| {
            let until = until.map(|until| schedule.nanos_at(until));
            schedule.wait(me, self.key(), until)
        });
        guard.take_again();
        !is_woken
    }

    pub(crate) fn notify_all(&self) {
        step();
        if is_scheduled() {
            here(|schedule, _| schedule.wake(self.key(), usize::MAX));
        }
        self.0.notify_all();
        step();
    }
}

#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(parking_lot::RwLock<T>);

pub(crate) struct ReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    guard: Option<parking_lot::RwLockReadGuard<'a, T>>,
}

pub(crate) struct WriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    guard: Option<parking_lot::RwLockWriteGuard<'a, T>>,
}

impl<T> RwLock<T> {
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[track_caller]
    fn take<G>(&self, wait: impl Fn() -> G, attempt: impl Fn() -> Option<G>) -> G {
        child::check();
        step();
        if !is_scheduled() {
            return wait();
        }
        loop {
            if let Some(guard) = attempt() {
                return guard;
            }
            here(|schedule, me| schedule.wait(me, self.key(), None));
        }
    }

    fn release(&self) {
        if is_scheduled() {
            here(|schedule, _| schedule.wake(self.key(), usize::MAX));
        }
        step();
    }

    #[track_caller]
    pub(crate) fn read(&self) -> ReadGuard<'_, T> {
        let guard = self.take(|| self.0.read(), || self.0.try_read());
        ReadGuard { lock: self, guard: Some(guard) }
    }

    pub(crate) fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        step();
        self.0.try_read().map(|guard| ReadGuard { lock: self, guard: Some(guard) })
    }

    #[track_caller]
    pub(crate) fn write(&self) -> WriteGuard<'_, T> {
        let guard = self.take(|| self.0.write(), || self.0.try_write());
        WriteGuard { lock: self, guard: Some(guard) }
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("the lock is held")
    }
}

impl<T> Drop for ReadGuard<'_, T> {
    fn drop(&mut self) {
        self.guard = None;
        self.lock.release();
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("the lock is held")
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("the lock is held")
    }
}

impl<T> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        self.guard = None;
        self.lock.release();
    }
}
