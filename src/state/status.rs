//! Which calls are refused: on a closed or poisoned queue, in a forked child, and from within the
//! closure of `enqueue_with`.

use std::sync::atomic::Ordering;

use super::State;
use crate::error::{Error, Result};
use crate::events;
use crate::storage::Storage;
use crate::storage::poison::Poison;
use crate::threads::AtomicUsize;
use crate::threads::ranks::{OtherQueues, other_queues};

impl<S: Storage> State<S> {
    /// Whether this process is a forked child of the one that opened the queue. A child has neither
    /// the queue's lock nor its threads.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.fork_guard.forked()
    }

    /// Refuses a call that might wait for ever for a lock: in a forked child, where the thread that
    /// held the lock does not exist, and from within the closure of `enqueue_with`, whose thread
    /// holds it.
    #[inline]
    pub(crate) fn check_may_wait(&self) -> Result<()> {
        if self.index.poison.is_filling() || self.fork_guard.forked() {
            self.refuse_waiting()
        } else {
            Ok(())
        }
    }

    /// Refuses a call that reads: on a closed queue, and where it [might wait for
    /// ever](Self::check_may_wait).
    #[inline]
    pub(crate) fn check_readable(&self) -> Result<()> {
        if !self.index.poison.takes_reads() || self.fork_guard.forked() {
            return self.refuse_reading();
        }
        reached!("found open");
        Ok(())
    }

    /// Refuses a call that writes: as [`check_readable`](Self::check_readable), and on a poisoned
    /// queue.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if !self.index.poison.takes_all_calls() || self.fork_guard.forked() {
            self.refuse_writing()
        } else {
            Ok(())
        }
    }

    /// As [`check_writable`](Self::check_writable), for a thread that
    /// [may wait](Self::check_may_wait).
    #[inline]
    pub(crate) fn check_still_writable(&self) -> Result<()> {
        if self.index.poison.takes_all_calls() { Ok(()) } else { self.refuse_writing() }
    }

    #[cold]
    fn refuse_waiting(&self) -> Result<()> {
        if self.fork_guard.forked() {
            return Err(Error::forked(self.storage.path()));
        }
        if self.is_filling() && !planted!(CallsFromWithin) {
            let reason =
                "its closure called the queue whose message it fills; call before or after";
            return Err(Error::invalid_argument(self.storage.path(), "enqueue_with", reason));
        }
        Ok(())
    }

    #[cold]
    fn refuse_reading(&self) -> Result<()> {
        self.refuse_waiting()?;
        if self.index.poison.is_closed() { Err(Error::closed(self.storage.path())) } else { Ok(()) }
    }

    #[cold]
    fn refuse_writing(&self) -> Result<()> {
        self.refuse_reading()?;
        self.index.poison.check()
    }

    /// Whether the calling thread is within the closure of `enqueue_with`.
    #[inline]
    pub(crate) fn is_filling(&self) -> bool {
        // Relaxed: only this thread ever stores its own number, so it sees that number if and only
        // if it is the filler.
        self.index.poison.is_filling() && self.filler.load(Ordering::Relaxed) == this_thread()
    }

    /// Marks the calling thread as being within the closure of `enqueue_with` until the guard is
    /// dropped. The caller holds the producers' lock.
    pub(crate) fn filling(&self) -> Filling<'_> {
        self.filler.store(this_thread(), Ordering::Relaxed);
        self.index.poison.begin_filling();
        Filling {
            poison: &self.index.poison,
            filler: &self.filler,
            _unreported: events::hold(),
            _other_queues: other_queues(),
        }
    }
}

/// While it lives, its thread is within the closure of `enqueue_with`.
#[must_use]
pub(crate) struct Filling<'a> {
    poison: &'a Poison,
    filler: &'a AtomicUsize,
    /// Holds events back: the closure may call another queue, and the end of that call must not
    /// report them under this queue's lock.
    _unreported: events::Holding,
    _other_queues: OtherQueues,
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.filler.store(0, Ordering::Relaxed);
        self.poison.end_filling();
    }
}

/// A number of the calling thread, which no other living thread has. It is never zero.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
