//! How other threads ask the keeper's thread for work.

use crate::threads::{AtomicBool, Condvar, Mutex, OnceLock};
use std::fmt;
use std::sync::atomic::Ordering;

/// What other threads have asked the keeper for since it last looked.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    /// Settle drained segments.
    pub(crate) settle: bool,
    /// Make the next segment ready.
    pub(crate) ahead: bool,
    /// Flush what is committed, and sync full segments.
    pub(crate) flush: bool,
    /// End the thread.
    pub(crate) stop: bool,
}

/// Starts the keeper's thread; false when there is to be none.
type StartFn = Box<dyn Fn() -> bool + Send + Sync>;

/// Any thread rings it, and the keeper answers. The first ring starts the keeper's thread.
#[derive(Default)]
pub(crate) struct Bell {
    pub(crate) wishes: Mutex<Wishes>,
    pub(crate) rung: Condvar,
    /// The keeper's thread runs.
    running: AtomicBool,
    starter: OnceLock<StartFn>,
}

impl fmt::Debug for Bell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bell")
            .field("wishes", &self.wishes)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

impl Bell {
    pub(crate) fn set_starter(&self, starter: StartFn) {
        let _ = self.starter.set(starter);
    }

    /// The keeper's thread runs.
    pub(crate) fn note_begin(&self) {
        self.running.store(true, Ordering::Release);
    }

    /// The keeper's thread has ended, or is about to.
    pub(crate) fn note_end(&self) {
        self.running.store(false, Ordering::Release);
    }

    /// Whether the keeper's thread runs and was not asked to end.
    pub(crate) fn is_answered(&self) -> bool {
        self.running.load(Ordering::Acquire) && !self.wishes.lock().stop
    }

    /// Asks the keeper for something. False when there is to be no thread.
    pub(crate) fn ring(&self, wish: impl FnOnce(&mut Wishes)) -> bool {
        if !self.running.load(Ordering::Acquire) && !self.starter.get().is_some_and(|start| start())
        {
            return false;
        }
        if planted!(RungBeforeTheWish) {
            self.rung.notify_one();
            wish(&mut self.wishes.lock());
            return true;
        }
        wish(&mut self.wishes.lock());
        self.rung.notify_one();
        true
    }
}
