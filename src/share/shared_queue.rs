//! What a process is to a queue: its owner, or a client of it; and how that changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::client::Client;
use super::connection::{check_same, id_in, is_passing};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::queue::Queue;
use crate::threads::{OwnMutex, now, park_timeout};

/// How long a handle tries to become the owner or a client of the next one.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it tries where an owner does not share the queue, or has just closed it.
const LOCKED: Duration = Duration::from_millis(300);
/// The pause between two tries: the first one, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// What this process is to the queue.
#[derive(Debug)]
pub(super) enum Role {
    Owner(Queue),
    Client(Client),
}

#[derive(Debug)]
enum HandleState {
    Open(Arc<Role>),
    /// As long as a close goes on there is a role.
    Closed(Weak<Role>),
}

#[derive(Debug)]
pub(super) struct SharedQueue {
    dir: PathBuf,
    options: Options,
    queue_id: [u8; 16],
    state: OwnMutex<HandleState>,
}

/// Whether a call can be done again that may have been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    Always,
    /// Only when it has certainly not been done.
    IfUndone,
}

impl Role {
    fn queue_id(&self) -> [u8; 16] {
        match self {
            Role::Owner(queue) => queue.id(),
            Role::Client(client) => client.queue_id(),
        }
    }

    /// Opens the queue or connects to its owner. Between an owner's end and the next one's socket
    /// neither may work, so this tries for a while.
    fn take(dir: &Path, options: &Options) -> Result<Role> {
        let (began, mut pause) = (now(), PAUSES.0);
        loop {
            let opened = match options.open(dir) {
                // Where no socket can be, the queue is of use all the same: to this process.
                Err(Error::Io { op: "share", .. }) => options.clone().shared(false).open(dir),
                opened => opened,
            };
            let locked = match opened {
                Ok(queue) => return Ok(Role::Owner(queue)),
                Err(error @ Error::Locked { .. }) => error,
                Err(error) => return Err(error),
            };
            let (refused, patience) = match Client::connect(dir) {
                Ok(client) => return Ok(Role::Client(client)),
                Err(Error::Locked { .. }) => (locked, LOCKED),
                Err(error @ Error::NotShared { .. }) => {
                    let patience = if is_passing(&error) { PATIENCE } else { LOCKED };
                    (error, patience)
                }
                Err(error) => return Err(error),
            };
            if now().saturating_duration_since(began) >= patience {
                return Err(refused);
            }
            park_timeout(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}

impl SharedQueue {
    pub(super) fn open(dir: &Path, options: Options) -> Result<SharedQueue> {
        let role = Role::take(dir, &options)?;
        // Whatever happens to it, no other queue is made in its place.
        let options = options.create(false);
        let queue_id = role.queue_id();
        let state = OwnMutex::new(HandleState::Open(Arc::new(role)));
        // The process may change its directory.
        let dir = std::path::absolute(dir).map_err(|error| Error::io("find", dir, error))?;
        Ok(SharedQueue { dir, options, queue_id, state })
    }

    #[cfg(feature = "forward")]
    pub(super) fn queue_id(&self) -> [u8; 16] {
        self.queue_id
    }

    pub(super) fn path(&self) -> &Path {
        &self.dir
    }

    pub(super) fn close(&self) -> Result<()> {
        let Some(role) = self.closing() else { return Ok(()) };
        match &*role {
            // Other threads may be within calls of it, which end now. A second close waits there.
            Role::Owner(queue) => queue.end(),
            Role::Client(client) => {
                client.end();
                Ok(())
            }
        }
    }

    /// Marks it as closed. Returns the role to end: none when it has gone, and in a forked child.
    fn closing(&self) -> Option<Arc<Role>> {
        let mut state = self.state.lock().ok()?;
        let role = match &*state {
            HandleState::Open(role) => Arc::clone(role),
            HandleState::Closed(role) => return role.upgrade(),
        };
        *state = HandleState::Closed(Arc::downgrade(&role));
        Some(role)
    }

    pub(super) fn role(&self) -> Result<Arc<Role>> {
        match &*self.state.lock()? {
            HandleState::Open(role) => Ok(Arc::clone(role)),
            HandleState::Closed(_) => Err(Error::closed(&self.dir)),
        }
    }

    /// Calls `call` with what this process is to the queue; after the owner's end once more.
    pub(super) fn with<R>(
        &self,
        again: Again,
        mut call: impl FnMut(&Arc<Role>) -> Result<R>,
    ) -> Result<R> {
        loop {
            let role = self.role()?;
            match (call(&role), &*role) {
                (Err(Error::Disconnected { in_doubt, path }), _) => {
                    let renewed = self.renew(&role);
                    // Whether or not there is another owner, nobody knows if this was done.
                    if in_doubt && again == Again::IfUndone {
                        return Err(Error::Disconnected { path, in_doubt });
                    }
                    renewed?;
                }
                // The owner closes the queue, and did nothing.
                (Err(Error::Closed), Role::Client(_)) => self.renew(&role)?,
                (answer, _) => return answer,
            }
        }
    }

    /// Opens the queue or connects again, unless another thread has done so since `lost`.
    fn renew(&self, lost: &Arc<Role>) -> Result<()> {
        let mut state = self.state.lock()?;
        match &*state {
            HandleState::Open(role) if Arc::ptr_eq(role, lost) => {}
            HandleState::Open(_) => return Ok(()),
            HandleState::Closed(_) => return Err(Error::closed(&self.dir)),
        }
        // An opening writes to the files.
        id_in(&self.dir).map_or(Ok(()), |found| check_same(&self.dir, self.queue_id, found))?;
        let role = Role::take(&self.dir, &self.options)?;
        check_same(&self.dir, self.queue_id, role.queue_id())?;
        *state = HandleState::Open(Arc::new(role));
        Ok(())
    }
}
