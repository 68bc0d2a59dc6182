//! The queues that this process has open, and what keeps each of them locked.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};

use crate::commit::Core;
use crate::error::Error;
use crate::memory::PerProcess;
use crate::storage::Storage;

/// The opening times of the queues that this process has open. A lock holder's pid alone does not
/// identify this process: a process in another container may have the same pid.
static OPEN_HERE: PerProcess<Mutex<Vec<SystemTime>>> = PerProcess::new();

fn open_here() -> MutexGuard<'static, Vec<SystemTime>> {
    OPEN_HERE.get(Mutex::default).lock()
}

/// An entry in [`OPEN_HERE`], in milliseconds since 1970. Dropping it removes the entry.
#[derive(Debug)]
pub(super) struct OpenHere(pub(super) u64);

impl OpenHere {
    pub(super) fn new(since: u64) -> OpenHere {
        open_here().push(UNIX_EPOCH + Duration::from_millis(since));
        OpenHere(since)
    }
}

/// The error for a queue that another opener has.
pub(crate) fn locked<S: Storage>(storage: &S) -> Error {
    let (stored, since) = crate::index::holder(storage);
    // A queue whose close is over, but for messages, has no process id.
    let is_own = [0, std::process::id()].contains(&stored);
    let here = is_own && since.is_some_and(|at| open_here().contains(&at));
    // The stored number is of the holder's namespace, which may not be this one.
    let pid = if here { stored } else { storage.holder().unwrap_or(stored) };
    Error::Locked { path: storage.path().to_owned(), pid, here, since }
}

impl Drop for OpenHere {
    fn drop(&mut self) {
        let since = UNIX_EPOCH + Duration::from_millis(self.0);
        let mut held = open_here();
        if let Some(at) = held.iter().position(|held| *held == since) {
            held.swap_remove(at);
        }
    }
}

/// Keeps a queue locked after its run, and unlocks it when dropped: at the end of the close, or
/// with the last message that still shares a file ([`Window::detach`](crate::memory::Window)).
pub(super) struct Lock<S: Storage> {
    pub(super) core: Arc<Core<S>>,
    pub(super) open_here: Option<OpenHere>,
}

impl<S: Storage> Drop for Lock<S> {
    fn drop(&mut self) {
        // A forked child shares the lock with the parent, which may still need it.
        if !self.core.forked() {
            drop(self.open_here.take());
            self.core.storage.unlock();
        }
    }
}
