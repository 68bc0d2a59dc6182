//! What the forwarder of a handle forwards.

use std::sync::Arc;
use std::time::Duration;

use super::client::Client;
use super::remote_local::RemoteLocal;
use super::shared_queue::{Again, Role, SharedQueue};
use crate::error::{Error, Result};
use crate::forward::local::{Forwarded, Local};
use crate::threads::{now, park_timeout};

/// How long an owner may take to close its queue, and how often a client looks whether it has.
const CLOSING: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// A consumer of a queue, whoever has that.
#[derive(Debug)]
pub(super) struct HandleForwarded {
    pub(super) queue: Arc<SharedQueue>,
    pub(super) consumer: String,
}

impl HandleForwarded {
    /// An owner that closes its queue takes no new connection, and still answers the client.
    fn begin_as_client(&self, client: &Client) -> Result<Box<dyn Local>> {
        let until = now() + CLOSING;
        loop {
            let queue = Arc::clone(&self.queue);
            let (path, id) = (self.queue.path(), self.queue.queue_id());
            let is_open = move || queue.role().map(drop);
            let begun = RemoteLocal::begin(path, id, &self.consumer, is_open);
            let is_refused = matches!(begun, Err(Error::NotShared { .. } | Error::Locked { .. }));
            if !is_refused || now() >= until {
                return Ok(Box::new(begun?));
            }
            client.durable_seq()?;
            park_timeout(PAUSE);
        }
    }
}

impl Forwarded for HandleForwarded {
    fn begin(&self) -> Result<Box<dyn Local>> {
        self.queue.with(Again::Always, |role| match &**role {
            Role::Owner(queue) => queue.consumer(&self.consumer)?.begin(),
            Role::Client(client) => self.begin_as_client(client),
        })
    }

    fn begins_again(&self, error: &Error) -> bool {
        match error {
            Error::Disconnected { .. } => true,
            // The owner's, unless the handle itself is closed.
            Error::Closed => self.queue.role().is_ok(),
            _ => false,
        }
    }
}
