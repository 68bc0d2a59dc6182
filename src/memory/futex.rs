//! Locks and condition variables on the futexes of Linux, which keep all their state in themselves.
//!
//! The locks of `parking_lot` keep waiting threads in one table of the process. A forked child
//! inherits that table, with threads in it that the child does not have and with parts of it locked
//! forever, so a queue that the child opens might hang. A lock from here that a child makes shares
//! nothing with the parent.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use parking_lot::lock_api::{self, GuardNoSend, RawMutex};
use rustix::thread::futex::{Flags, Timespec, wait, wake};

pub(crate) type Mutex<T> = lock_api::Mutex<RawLock, T>;
pub(crate) type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawLock, T>;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Locked, and threads may wait for it: the thread that unlocks it wakes one.
const WAITED_FOR: u32 = 2;

/// How often a thread checks a locked lock before it sleeps. Threads hold most locks for a shorter
/// time than two system calls take.
const LOOKS: u32 = 100;

/// The lock of a [`Mutex`]: one of the words above.
#[derive(Debug)]
pub(crate) struct RawLock(AtomicU32);

// SAFETY: a thread holds the lock from the moment at which it changes the word from FREE until
// `unlock` makes it FREE again. No other thread finds FREE meanwhile. Acquire at the first and
// release at the second: the next thread that takes the lock sees everything written under it.
// (`unlock` acquires for `touch`.)
unsafe impl RawMutex for RawLock {
    const INIT: RawLock = RawLock(AtomicU32::new(FREE));
    type GuardMarker = GuardNoSend;

    #[inline(always)]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended();
        }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        if self.0.swap(FREE, Ordering::AcqRel) == WAITED_FOR {
            wake_threads(&self.0, 1);
        }
    }
}

/// Whether another thread sleeps until this one unlocks, or did a moment ago.
#[inline]
pub(crate) fn is_waited_for<T>(guard: &MutexGuard<'_, T>) -> bool {
    // SAFETY: the lock is only looked at.
    let lock = unsafe { MutexGuard::mutex(guard).raw() };
    lock.0.load(Ordering::Relaxed) == WAITED_FOR
}

/// Meets the threads that hold the lock, without it: this thread from now on sees what those before
/// it did under the lock, and those after it, once they have unlocked, what this one did before.
#[inline]
pub(crate) fn touch<T>(lock: &Mutex<T>) {
    // SAFETY: the word stays as it is. Every change of it reads the one before it.
    unsafe { lock.raw() }.0.fetch_or(0, Ordering::AcqRel);
}

impl RawLock {
    /// Waits until this thread has the lock.
    #[cold]
    fn lock_contended(&self) {
        for _ in 0..LOOKS {
            match self.0.load(Ordering::Relaxed) {
                FREE if self.try_lock() => return,
                WAITED_FOR => break,
                _ => std::hint::spin_loop(),
            }
        }
        // This thread cannot know whether others wait too, so it takes the lock as WAITED_FOR.
        while self.0.swap(WAITED_FOR, Ordering::Acquire) != FREE {
            sleep(&self.0, WAITED_FOR, None);
        }
    }
}

/// Works like `parking_lot::Condvar`, but a thread may wake without a reason.
#[derive(Debug, Default)]
pub(crate) struct Condvar {
    /// Changes whenever a thread notifies waiters.
    news: AtomicU32,
    /// How many threads wait. Each counts itself under the mutex, so a thread that changes their
    /// condition under the mutex sees them here.
    waiters: AtomicU32,
}

impl Condvar {
    pub(crate) const fn new() -> Condvar {
        Condvar { news: AtomicU32::new(0), waiters: AtomicU32::new(0) }
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.sleep(guard, None);
    }

    /// Waits until another thread notifies, or until `until`; then returns true.
    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> bool {
        !self.sleep(guard, Some(until))
    }

    fn sleep<T>(&self, guard: &mut MutexGuard<'_, T>, until: Option<Instant>) -> bool {
        self.waiters.fetch_add(1, Ordering::Relaxed);
        let seen = self.news.load(Ordering::Relaxed);
        // A thread that notifies from here on changes `news`, so the system call returns at once.
        let in_time = MutexGuard::unlocked(guard, || sleep(&self.news, seen, until));
        self.waiters.fetch_sub(1, Ordering::Relaxed);
        in_time
    }

    /// Wakes all waiters. Costs one load when no thread waits.
    pub(crate) fn notify_all(&self) {
        if self.waiters.load(Ordering::Relaxed) != 0 {
            self.news.fetch_add(1, Ordering::Relaxed);
            wake_threads(&self.news, i32::MAX as u32);
        }
    }
}

/// Sleeps while the word is `value`, unless another thread wakes this one. Returns false at
/// `until`.
fn sleep(word: &AtomicU32, value: u32, until: Option<Instant>) -> bool {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let left = left.map(|left| Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    wait(word, Flags::PRIVATE, value, left.as_ref()) != Err(rustix::io::Errno::TIMEDOUT)
}

#[cold]
fn wake_threads(word: &AtomicU32, count: u32) {
    // It cannot fail: the word is this process's memory.
    let _ = wake(word, Flags::PRIVATE, count);
}
