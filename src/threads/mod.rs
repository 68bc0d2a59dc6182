//! Where threads meet: waiters for messages, descriptors, and what the two workers are asked for.
//!
//! Every folder that is part of one open queue takes its locks, condition variables, atomics,
//! threads and clock from here. In tests each use of them is a step of a schedule, if one runs the
//! calling thread: a seed says which thread goes on (`src/tests/schedule/`).

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
    OnceLock, RwLock, Thread, current, fence, now, park, park_timeout, spawn,
};
#[cfg(test)]
pub(crate) use crate::tests::schedule::{
    atomics::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, OnceLock, fence},
    locks::{Condvar, Mutex, MutexGuard, RwLock},
    threads::{JoinHandle, Thread, current, now, park, park_timeout, spawn},
};
