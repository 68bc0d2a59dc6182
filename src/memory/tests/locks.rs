//! Forks, and the locks that a forked child can use.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use crate::memory::*;

#[test]
fn in_the_process_that_asks_nothing_was_forked() {
    assert!(!ForkGuard::new().forked());
    static VALUE: PerProcess<String> = PerProcess::new();
    let address = || ptr::from_ref(VALUE.get(|| "one for all".to_owned())).addr();
    let other = thread::spawn(address);
    assert_eq!(address(), other.join().unwrap());
}

#[test]
#[cfg(unix)]
#[cfg_attr(miri, ignore = "forks")]
fn a_lock_that_is_held_at_a_fork_is_free_in_the_child() {
    use parking_lot::Mutex;
    use std::os::unix::process::CommandExt;
    static LIST: PerProcess<Mutex<u32>> = PerProcess::new();
    let list = || LIST.get(Mutex::default);
    let held = list().lock();
    let in_child = move || {
        let free =
            list().try_lock().is_some_and(|fresh| *fresh == 0) && list().try_lock().is_some();
        Err(io::Error::from_raw_os_error(if free { 77 } else { 78 }))
    };
    let mut command = std::process::Command::new("/nonexistent");
    // SAFETY: the closure allocates, which glibc allows in a forked child, and takes a lock of the
    // child's own.
    unsafe { command.pre_exec(in_child) };
    assert_eq!(command.spawn().unwrap_err().raw_os_error(), Some(77));
    assert!(list().try_lock().is_none());
    drop(held);
    assert!(list().try_lock().is_some());
}

#[test]
#[cfg(unix)]
#[cfg_attr(miri, ignore = "forks")]
fn a_forked_child_is_told_so_and_may_begin_anew() {
    use std::os::unix::process::CommandExt;
    let guard = ForkGuard::new();
    let by_pid = ForkGuard::by_process_id();
    assert!(!guard.forked() && !by_pid.forked());
    let in_child = move || {
        let anew = ForkGuard::new();
        let reported = guard.forked() && by_pid.forked();
        // The child executes no program: this error is what `spawn` returns.
        Err(io::Error::from_raw_os_error(if reported && !anew.forked() { 77 } else { 78 }))
    };
    let mut command = std::process::Command::new("/nonexistent");
    // SAFETY: the closure makes no call that is unsafe after a fork: it neither allocates nor takes
    // a lock (the guards' cells were filled above).
    unsafe { command.pre_exec(in_child) };
    assert_eq!(command.spawn().unwrap_err().raw_os_error(), Some(77));
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in the kernel")]
fn one_thread_at_a_time_holds_a_lock_and_one_that_panics_releases_it() {
    const EACH: u64 = if cfg!(debug_assertions) { 5_000 } else { 50_000 };
    // Two numbers that differ only while the lock is held.
    let lock = Mutex::new((0, 0));
    thread::scope(|scope| {
        for number in 0..4 {
            let lock = &lock;
            scope.spawn(move || {
                for turn in 0..EACH {
                    if number == 0 {
                        touch(lock);
                    }
                    let mut both: MutexGuard<'_, (u64, u64)> = lock.lock();
                    assert_eq!(both.0, both.1);
                    both.0 += 1;
                    if turn % 64 == 0 {
                        thread::yield_now();
                    }
                    both.1 += 1;
                }
            });
        }
    });
    assert_eq!(*lock.lock(), (4 * EACH, 4 * EACH));
    let dies = AssertUnwindSafe(|| {
        let _held = lock.lock();
        std::panic::resume_unwind(Box::new("with the lock"));
    });
    assert!(catch_unwind(dies).is_err());
    assert!(lock.try_lock().is_some());
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in the kernel")]
fn who_touches_a_lock_waits_for_nobody_and_who_waits_for_news_no_longer_than_allowed() {
    let (lock, news) = (Mutex::new(()), Condvar::new());
    let mut held = lock.lock();
    touch(&lock);
    assert!(lock.try_lock().is_none());
    assert!(!is_waited_for(&held));
    thread::scope(|scope| {
        scope.spawn(|| drop(lock.lock()));
        while !is_waited_for(&held) {
            thread::yield_now();
        }
        touch(&lock);
        assert!(is_waited_for(&held));
        drop(held);
    });
    held = lock.lock();
    let until = Instant::now() + Duration::from_millis(20);
    while !news.wait_until(&mut held, until) {}
    assert!(Instant::now() >= until);
    drop(held);
    assert!(lock.try_lock().is_some());
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in the kernel")]
fn no_news_is_lost_between_threads_that_wait_for_each_other() {
    const TURNS: u32 = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    thread::scope(|scope| {
        for number in 0..3 {
            let (turn, changed) = (&turn, &changed);
            scope.spawn(move || {
                let mut now = turn.lock();
                while *now < TURNS {
                    if *now % 3 == number {
                        *now += 1;
                        if number == 0 {
                            MutexGuard::unlocked(&mut now, || changed.notify_all());
                        } else {
                            changed.notify_all();
                        }
                    } else {
                        changed.wait(&mut now);
                    }
                }
                changed.notify_all();
            });
        }
    });
    assert_eq!(*turn.lock(), TURNS);
}
