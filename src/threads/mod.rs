//! Synchronization of the queue's threads.
//!
//! | file | what it holds | what it does |
//! |---|---|---|
//! | `waiting` | the line of waiting threads and futures | wakes them in order |
//! | `ready` | a consumer's descriptor | makes it readable while there is news |
//! | `worker` | a worker's thread and its requests | starts, wakes and stops it |
//! | `requests` | the requests to the storage and the delivery worker | |
//! | `ranks` | the order of locks | checks it in tests |
//! | `padded` | data on its own cache lines | |
//! | `real` | locks, atomics, threads, clock | (tests use those of a schedule) |
//!
//! Every folder that is part of one open queue takes its locks, condition variables, atomics,
//! threads and clock from here. In tests each use of them is a step of a schedule, if one runs the
//! calling thread: a seed chooses which thread runs next (`src/tests/schedule/`).

pub(crate) mod padded;
pub(crate) mod ranks;
pub(crate) mod ready;
#[cfg(not(test))]
mod real;
pub(crate) mod requests;
pub(crate) mod waiting;
pub(crate) mod worker;

#[cfg(not(test))]
pub(crate) use self::real::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Condvar, JoinHandle, Mutex, MutexGuard,
    OnceLock, RwLock, Thread, current, fence, is_waited_for, now, park, park_timeout, spawn,
    yield_now,
};
#[cfg(test)]
pub(crate) use crate::tests::schedule::{
    atomics::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, OnceLock, fence},
    locks::{Condvar, Mutex, MutexGuard, RwLock, is_waited_for},
    threads::{JoinHandle, Thread, current, now, park, park_timeout, spawn, yield_now},
};
