//! How the rest of a queue tells the keeper's thread that there is something to do behind the
//! callers.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

/// What the keeper was asked for since it last looked.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    /// Hand drained segments on.
    pub(crate) settle: bool,
    /// Make the next segment ready.
    pub(crate) ahead: bool,
    /// Flush what is committed, and sync what is full.
    pub(crate) flush: bool,
    pub(crate) stop: bool,
}

type Starter = Box<dyn Fn() -> bool + Send + Sync>;

/// Rung by anybody, answered by the keeper, whose thread starts with the first ring.
#[derive(Default)]
pub(crate) struct Bell {
    pub(crate) wishes: Mutex<Wishes>,
    pub(crate) rung: Condvar,
    running: AtomicBool,
    /// Starts the thread; false when there is to be none.
    starter: OnceLock<Starter>,
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
    pub(crate) fn set_starter(&self, starter: Starter) {
        let _ = self.starter.set(starter);
    }

    pub(crate) fn set_running(&self, running: bool) {
        self.running.store(running, Ordering::Release);
    }

    /// There is a thread, and it is to go on.
    pub(crate) fn is_answered(&self) -> bool {
        self.running.load(Ordering::Acquire) && !self.wishes.lock().stop
    }

    /// Has the keeper do something soon; false when there is no thread for it.
    pub(crate) fn ring(&self, wish: impl FnOnce(&mut Wishes)) -> bool {
        if !self.running.load(Ordering::Acquire) && !self.starter.get().is_some_and(|start| start())
        {
            return false;
        }
        wish(&mut self.wishes.lock());
        self.rung.notify_one();
        true
    }
}
