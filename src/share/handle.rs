//! [`Handle`]: a queue of this process, or of another one that shares it.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

#[cfg(doc)]
use super::client::Client;
use super::handle_consumer::HandleConsumer;
#[cfg(feature = "forward")]
use super::handle_forwarded::HandleForwarded;
use super::shared_queue::{Again, Role, SharedQueue};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
#[cfg(feature = "forward")]
use crate::forward::{Destination, Forwarder};
use crate::options::{Options, Start};
#[cfg(doc)]
use crate::queue::Queue;
use crate::stats::{ConsumerStats, Stats};

/// Opens the queue in `dir` if no process has it open, and shares it; else connects to its owner.
///
/// The options are those of the process that opens the queue: a client has those of the owner. On a
/// file system that knows no sockets the queue opens without being shared.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// // In each of several processes:
/// let queue = mmq::open_or_connect(dir, &mmq::Options::new())?;
/// queue.enqueue("a message")?;
/// let workers = queue.consumer("workers")?;
/// let job = workers.receive()?.expect("there is one");
/// job.ack()?;
/// # Ok::<(), mmq::Error>(())
/// ```
///
/// # Errors
///
/// [`Error::Locked`] when another process has it open and does not share it; those of
/// [`Options::open`] and of [`Client::connect`].
pub fn open_or_connect(dir: impl AsRef<Path>, options: &Options) -> Result<Handle> {
    let options = options.clone().shared(true);
    Ok(Handle { queue: Arc::new(SharedQueue::open(dir.as_ref(), options)?) })
}

/// A queue that this process has open and shares, or uses through its owner:
/// [`open_or_connect`].
///
/// When the owner ends, in order or not, each handle opens the queue or connects to the next owner,
/// and the call goes on. Only a call that writes and may have been done already returns
/// [`Error::Disconnected`] instead.
///
/// Clones are the same handle.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let first = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
/// let second = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
/// assert!(first.is_owner() && !second.is_owner());
/// first.close()?;
/// second.enqueue("goes on")?;
/// assert!(second.is_owner());
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Handle {
    pub(super) queue: Arc<SharedQueue>,
}

impl Handle {
    /// Returns whether this process has the queue open.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.queue.role().is_ok_and(|role| matches!(&*role, Role::Owner(_)))
    }

    /// Puts a message in: [`Queue::enqueue`]. Returns its number.
    ///
    /// # Durability
    ///
    /// As of [`Client::enqueue`].
    ///
    /// # Errors
    ///
    /// Those of [`Client::enqueue`]; [`Error::Disconnected`] only when the message may be in the
    /// queue.
    pub fn enqueue(&self, message: impl AsRef<[u8]>) -> Result<u64> {
        let message = message.as_ref();
        self.queue.with(Again::IfUndone, |role| match &**role {
            Role::Owner(queue) => queue.enqueue(message),
            Role::Client(client) => client.enqueue(message),
        })
    }

    /// Puts several messages in, all or none: [`Queue::enqueue_batch`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// assert_eq!(queue.enqueue_batch(&["a", "b"])?, 0..2);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`enqueue`](Self::enqueue).
    pub fn enqueue_batch<M: AsRef<[u8]>>(&self, messages: &[M]) -> Result<Range<u64>> {
        self.queue.with(Again::IfUndone, |role| match &**role {
            Role::Owner(queue) => queue.enqueue_batch(messages),
            Role::Client(client) => client.enqueue_batch(messages),
        })
    }

    /// Makes everything durable that was put in before: [`Queue::flush`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// let seq = queue.enqueue("order 17")?;
    /// queue.flush()?;
    /// queue.wait_durable(seq)?;
    /// assert!(queue.durable_seq()? > seq);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Client::flush`].
    pub fn flush(&self) -> Result<()> {
        self.queue.with(Again::Always, |role| match &**role {
            Role::Owner(queue) => queue.flush(),
            Role::Client(client) => client.flush(),
        })
    }

    /// Waits until the message `seq` is durable: [`Queue::wait_durable`].
    ///
    /// # Errors
    ///
    /// Those of [`Client::wait_durable`].
    pub fn wait_durable(&self, seq: u64) -> Result<()> {
        self.queue.with(Again::Always, |role| match &**role {
            Role::Owner(queue) => queue.wait_durable(seq),
            Role::Client(client) => client.wait_durable(seq),
        })
    }

    /// Returns the first number that is not known to be durable.
    ///
    /// # Errors
    ///
    /// Those of [`Client::durable_seq`].
    pub fn durable_seq(&self) -> Result<u64> {
        self.queue.with(Again::Always, |role| match &**role {
            Role::Owner(queue) => Ok(queue.durable_seq()),
            Role::Client(client) => client.durable_seq(),
        })
    }

    /// Returns the queue's figures: [`Queue::stats`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// assert_eq!(queue.stats()?.messages, 0);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Client::stats`].
    pub fn stats(&self) -> Result<Stats> {
        self.queue.with(Again::Always, |role| match &**role {
            Role::Owner(queue) => Ok(queue.stats()),
            Role::Client(client) => client.stats(),
        })
    }

    /// Returns the figures of each consumer: [`Queue::consumer_stats`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// queue.consumer("workers")?;
    /// assert!(queue.consumer_stats()?.iter().any(|consumer| consumer.name == "workers"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Client::consumer_stats`].
    pub fn consumer_stats(&self) -> Result<Vec<ConsumerStats>> {
        self.queue.with(Again::Always, |role| match &**role {
            Role::Owner(queue) => Ok(queue.consumer_stats()),
            Role::Client(client) => client.consumer_stats(),
        })
    }

    /// Returns when the segment was begun in which the message `seq` begins:
    /// [`Queue::segment_time`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// let seq = queue.enqueue("a message")?;
    /// assert!(queue.segment_time(seq)?.unwrap() <= std::time::SystemTime::now());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Client::segment_time`].
    pub fn segment_time(&self, seq: u64) -> Result<Option<SystemTime>> {
        self.queue.with(Again::Always, |role| match &**role {
            Role::Owner(queue) => Ok(queue.segment_time(seq)),
            Role::Client(client) => client.segment_time(seq),
        })
    }

    /// Returns the queue's own consumer, which has no name; the first call makes it, at the oldest
    /// message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// queue.enqueue("a message")?;
    /// let own = queue.default_consumer()?;
    /// assert_eq!((own.name(), own.dequeue()?.unwrap().as_str()), ("", Ok("a message")));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Client::consumer`].
    pub fn default_consumer(&self) -> Result<HandleConsumer> {
        self.consumer("")
    }

    /// Returns the consumer `name`; the first call that names it makes it, at the oldest message.
    /// No name, `""`, is the [default consumer](Self::default_consumer)'s.
    ///
    /// # Errors
    ///
    /// Those of [`Client::consumer`].
    pub fn consumer(&self, name: &str) -> Result<HandleConsumer> {
        self.consumer_at(name, Start::Oldest)
    }

    /// Returns the consumer `name`; a new one begins at `start`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// queue.enqueue("before")?;
    /// assert!(queue.consumer_at("news", mmq::Start::End)?.peek()?.is_none());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Client::consumer_at`].
    pub fn consumer_at(&self, name: &str, start: Start) -> Result<HandleConsumer> {
        HandleConsumer::open(&self.queue, name, start)
    }

    /// Forwards the messages of the queue to `destination` as the consumer `consumer`, as
    /// [`Forwarder::new`] does, whichever process has the queue open, and when that changes.
    ///
    /// ```
    /// use mmq::forward::{Destination, Halt};
    ///
    /// fn forward(queue: &mmq::Handle, far: impl Destination) -> Result<(), Halt> {
    ///     queue.forwarder("forward", far)?.once()?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`consumer`](Self::consumer).
    #[cfg(feature = "forward")]
    pub fn forwarder<D: Destination>(
        &self,
        consumer: &str,
        destination: D,
    ) -> Result<Forwarder<D>> {
        self.consumer(consumer)?;
        let (queue, queue_id) = (Arc::clone(&self.queue), self.queue.queue_id());
        let forwarded = HandleForwarded { queue, consumer: consumer.to_owned() };
        Ok(Forwarder::of(Box::new(forwarded), self.path(), queue_id, consumer, destination))
    }

    /// Removes the consumer `name`: [`Queue::remove_consumer`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// queue.consumer("trial")?;
    /// queue.remove_consumer("trial")?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Client::remove_consumer`].
    pub fn remove_consumer(&self, name: &str) -> Result<()> {
        self.queue.with(Again::IfUndone, |role| match &**role {
            Role::Owner(queue) => queue.remove_consumer(name),
            Role::Client(client) => client.remove_consumer(name),
        })
    }

    /// Returns the queue's directory.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// assert_eq!(queue.path(), dir.path());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> &Path {
        self.queue.path()
    }

    /// Closes the queue if this process has it open, and else ends the connection. Calls of other
    /// clones return [`Error::Closed`] from then on; their closes wait for this one.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::close`].
    pub fn close(self) -> Result<()> {
        self.queue.close()
    }
}
