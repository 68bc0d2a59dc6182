//! Whether a call is taken: the queue is open, its process the one that opened it, and no message
//! of the caller's half filled.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::State;
use crate::error::{Error, Result};
use crate::events;
use crate::storage::Storage;
use crate::storage::poison::Poison;

impl<S: Storage> State<S> {
    /// This process is a forked child of the one that opened the queue: its files, locks and
    /// threads are not here.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.fork_guard.forked()
    }

    /// Refuses a call that might wait for ever for a lock: in a child of a fork, where the thread
    /// that held it is not, and from within the closure of `enqueue_with`.
    #[inline]
    pub(crate) fn check_may_wait(&self) -> Result<()> {
        if self.index.poison.is_filling() || self.fork_guard.forked() {
            self.refuse_waiting()
        } else {
            Ok(())
        }
    }

    /// Refuses a call that reads when the queue is closed, and one that might [wait for
    /// ever](Self::check_may_wait).
    #[inline]
    pub(crate) fn check_readable(&self) -> Result<()> {
        if !self.index.poison.takes_reads() || self.fork_guard.forked() {
            return self.refuse_reading();
        }
        reached!("found open");
        Ok(())
    }

    /// As [`check_readable`](Self::check_readable) for a call that writes, which is refused also
    /// once a flush has failed.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if !self.index.poison.takes_all_calls() || self.fork_guard.forked() {
            self.refuse_writing()
        } else {
            Ok(())
        }
    }

    #[cold]
    fn refuse_waiting(&self) -> Result<()> {
        if self.fork_guard.forked() {
            return Err(Error::forked(self.storage.path()));
        }
        if self.is_filling() {
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
        // Relaxed: a thread is named by itself; whom else it names does not matter.
        self.index.poison.is_filling() && self.filler.load(Ordering::Relaxed) == this_thread()
    }

    /// Until the guard is dropped the calling thread, which holds the producers' lock, is within
    /// the closure of `enqueue_with`.
    pub(crate) fn filling(&self) -> Filling<'_> {
        self.filler.store(this_thread(), Ordering::Relaxed);
        self.index.poison.set_filling(true);
        Filling { poison: &self.index.poison, filler: &self.filler, _untold: events::hold() }
    }
}

/// The calling thread fills a message in place while this lives.
#[must_use]
pub(crate) struct Filling<'a> {
    poison: &'a Poison,
    filler: &'a AtomicUsize,
    /// The end of a call on another queue is not the end of this one.
    _untold: events::Held,
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.filler.store(0, Ordering::Relaxed);
        self.poison.set_filling(false);
    }
}

/// A number of the calling thread that no other living thread has; never zero.
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
