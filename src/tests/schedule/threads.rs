//! Threads and the clock as `crate::threads` has them. A schedule has its own clock.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::core::{join_key, park_key};
use super::{HERE, Run, Schedule, here, is_scheduled, step};
use crate::threads::own;

/// No step: a schedule runs no thread that waits for another process.
pub(crate) use std::thread::yield_now;

thread_local! {
    static STOPPED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// By the schedule's clock, if one runs the calling thread; or when the test has
/// [stopped](stop_clock) it.
pub(crate) fn now() -> Instant {
    step();
    if is_scheduled() {
        here(|schedule, _| schedule.now())
    } else {
        STOPPED.get().unwrap_or_else(Instant::now)
    }
}

/// For the calling thread, which no schedule runs, it is `at` from now on; or the clock goes again.
pub(crate) fn stop_clock(at: Option<Instant>) {
    STOPPED.set(at);
}

#[derive(Clone)]
pub(crate) enum Thread {
    System(std::thread::Thread),
    Scheduled(Arc<Schedule>, usize),
}

impl fmt::Debug for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Thread::System(thread) => thread.fmt(f),
            Thread::Scheduled(_, number) => write!(f, "thread {number}"),
        }
    }
}

impl Thread {
    pub(crate) fn unpark(&self) {
        step();
        match self {
            Thread::System(thread) => thread.unpark(),
            Thread::Scheduled(schedule, thread) => {
                schedule.core.lock().slots[*thread].token = true;
                schedule.wake(park_key(*thread), 1);
            }
        }
        step();
    }
}

pub(crate) fn current() -> Thread {
    if !is_scheduled() {
        return Thread::System(std::thread::current());
    }
    HERE.with_borrow(|here| match here {
        Some((schedule, me)) => Thread::Scheduled(Arc::clone(schedule), *me),
        None => Thread::System(std::thread::current()),
    })
}

pub(crate) fn park() {
    park_until(None);
}

pub(crate) fn park_timeout(most: Duration) {
    park_until(Some(most));
}

fn park_until(most: Option<Duration>) {
    if !is_scheduled() {
        return most.map_or_else(std::thread::park, std::thread::park_timeout);
    }
    step();
    here(|schedule, me| {
        let mut core = schedule.core.lock();
        if std::mem::take(&mut core.slots[me].token) {
            return;
        }
        let until = most.map(|most| {
            core.now.saturating_add(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX))
        });
        drop(core);
        schedule.wait(me, park_key(me), until);
        schedule.core.lock().slots[me].token = false;
    });
}

#[derive(Debug)]
pub(crate) enum JoinHandle {
    System(own::JoinHandle),
    Scheduled(Thread),
}

impl JoinHandle {
    pub(crate) fn is_current(&self) -> bool {
        match self {
            JoinHandle::System(handle) => handle.is_current(),
            JoinHandle::Scheduled(Thread::Scheduled(_, thread)) => {
                is_scheduled() && here(|_, me| me == *thread)
            }
            JoinHandle::Scheduled(_) => false,
        }
    }

    pub(crate) fn join(self) {
        match self {
            JoinHandle::System(handle) => handle.join(),
            JoinHandle::Scheduled(Thread::Scheduled(schedule, thread)) => loop {
                step();
                if schedule.core.lock().slots[thread].run == Run::Ended {
                    return;
                }
                here(|schedule, me| schedule.wait(me, join_key(thread), None));
            },
            JoinHandle::Scheduled(Thread::System(_)) => {}
        }
    }
}

pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
    if !is_scheduled() {
        return own::spawn(name, body).map(JoinHandle::System);
    }
    step();
    let handle = HERE.with_borrow(|here| {
        let (schedule, _) = here.as_ref()?;
        let thread = schedule.add(name.to_owned(), body);
        Some(JoinHandle::Scheduled(Thread::Scheduled(Arc::clone(schedule), thread)))
    });
    step();
    handle.ok_or_else(|| io::ErrorKind::Other.into())
}
