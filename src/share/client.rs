//! [`Client`]: a queue that another process has open.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::client_consumer::ClientConsumer;
use super::client_writer::ClientWriter;
use super::connection::Connection;
use super::fields::{Fields, put_u32, put_u64};
use super::figures_in_frames::{read_consumers, read_stats};
use super::frame::{Call, MAX_BODY};
#[cfg(feature = "forward")]
use super::remote_local::ClientForwarded;
use crate::error::{Error, Result};
#[cfg(all(doc, feature = "forward"))]
use crate::forward::ForwardEnd;
#[cfg(feature = "forward")]
use crate::forward::{Destination, Forwarder};
use crate::options::Start;
use crate::stats::{ConsumerStats, Stats};

/// A queue that another process has open and [shares](crate::Options::shared).
///
/// The calls do what those of [`Queue`](crate::Queue) and [`Consumer`](crate::Consumer) do, with
/// the same errors: the owner's process does the work, and answers. Any number of threads may use a
/// client at the same time.
///
/// ```
/// # fn main() -> mmq::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// # let owner = mmq::Options::new().shared(true).open(dir)?;
/// let client = mmq::Client::connect(dir)?;
/// client.enqueue("a message")?;
/// let message = client.default_consumer().dequeue()?.unwrap();
/// assert_eq!(message.as_str(), Ok("a message"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Client {
    connection: Arc<Connection>,
}

/// A process that uses a shared queue: [`Client::connected`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
/// # let client = mmq::Client::connect(dir.path())?;
/// for mmq::ConnectedClient { pid, .. } in client.connected()? {
///     println!("process {pid} uses the queue");
/// }
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectedClient {
    /// Its process; 0 where the system does not say.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// When it connected.
    pub since: SystemTime,
}

impl Client {
    /// Connects to the process that has the queue in `dir` open.
    ///
    /// # Errors
    ///
    /// [`Error::NotShared`] when no process has it open, or its owner serves 64 clients already, or
    /// not this user; [`Error::Locked`] when its owner does not share it; [`Error::NotFound`] when
    /// there is no such directory.
    pub fn connect(dir: impl AsRef<Path>) -> Result<Client> {
        Ok(Client { connection: Arc::new(Connection::open(dir.as_ref())?) })
    }

    /// Returns an error for a message that no owner takes from a client.
    pub(crate) fn check_len(&self, len: u64) -> Result<()> {
        self.connection.check_len(len)
    }

    /// Puts a message in: [`Queue::enqueue`](crate::Queue::enqueue). Returns its number.
    ///
    /// # Durability
    ///
    /// Once the call has returned the message survives the death of both processes; it survives a
    /// power cut once a flush has passed it, as the owner's options say.
    ///
    /// # Errors
    ///
    /// Those of the owner's enqueue, such as [`Error::Full`]. [`Error::MessageTooLarge`] for more
    /// than 16 MiB. [`Error::Disconnected`] when the owner has gone: where it says `in_doubt`, the
    /// message may or may not be in the queue.
    pub fn enqueue(&self, message: impl AsRef<[u8]>) -> Result<u64> {
        let message = message.as_ref();
        self.check_len(message.len() as u64)?;
        let answer = self.connection.ask(Call::Enqueue, 0, message)?;
        self.connection.read(&answer, |mut fields| fields.u64())
    }

    /// Puts several messages in, all or none, as
    /// [`Queue::enqueue_batch`](crate::Queue::enqueue_batch).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// assert_eq!(client.enqueue_batch(["a", "b", "c"])?, 0..3);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`enqueue`](Self::enqueue), where the limit of 16 MiB is that of the whole batch.
    pub fn enqueue_batch<M: AsRef<[u8]>>(
        &self,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Range<u64>> {
        let (mut count, mut lens, mut bytes) = (0, Vec::new(), Vec::new());
        for message in messages {
            let message = message.as_ref();
            self.check_len(bytes.len() as u64 + message.len() as u64)?;
            put_u32(&mut lens, message.len() as u32);
            bytes.extend_from_slice(message);
            count += 1;
        }
        let mut body = Vec::with_capacity(4 + lens.len() + bytes.len());
        put_u32(&mut body, count);
        body.extend_from_slice(&lens);
        body.extend_from_slice(&bytes);
        if body.len() as u64 > MAX_BODY {
            let (path, max) = (self.path().to_owned(), MAX_BODY);
            return Err(Error::MessageTooLarge {
                path,
                len: body.len() as u64,
                max,
                max_bytes: None,
            });
        }
        let answer = self.connection.ask(Call::EnqueueBatch, 0, &body)?;
        self.connection.read(&answer, |mut fields| Ok(fields.u64()?..fields.u64()?))
    }

    /// Returns a writer that puts many messages in without waiting for each answer.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// let mut writer = client.writer()?;
    /// (0..1_000).try_for_each(|number| writer.enqueue(format!("reading {number}")))?;
    /// writer.wait()?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect): it has a connection of its own.
    pub fn writer(&self) -> Result<ClientWriter> {
        Ok(ClientWriter::new(Connection::open_of(self.path(), self.queue_id())?))
    }

    /// Makes everything durable that was put in before: [`Queue::flush`](crate::Queue::flush).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// let seq = client.enqueue("order 17")?;
    /// client.flush()?;
    /// assert!(client.durable_seq()? > seq);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the owner's flush, and [`Error::Disconnected`].
    pub fn flush(&self) -> Result<()> {
        self.connection.ask(Call::Flush, 0, &[]).map(drop)
    }

    /// Waits until the message `seq` is durable, as
    /// [`Queue::wait_durable`](crate::Queue::wait_durable).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// client.wait_durable(client.enqueue("order 17")?)?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] for a number that no message has yet; those of [`flush`](Self::flush).
    pub fn wait_durable(&self, seq: u64) -> Result<()> {
        let mut body = Vec::new();
        put_u64(&mut body, seq);
        self.connection.ask(Call::WaitDurable, 0, &body).map(drop)
    }

    /// Returns the first number that is not known to be durable.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] and [`Error::Disconnected`] when the owner has gone.
    pub fn durable_seq(&self) -> Result<u64> {
        let answer = self.connection.ask(Call::DurableSeq, 0, &[])?;
        self.connection.read(&answer, |mut fields| fields.u64())
    }

    /// Returns the queue's figures: [`Queue::stats`](crate::Queue::stats).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// client.enqueue("a message")?;
    /// assert_eq!(client.stats()?.messages, 1);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`durable_seq`](Self::durable_seq).
    pub fn stats(&self) -> Result<Stats> {
        let answer = self.connection.ask(Call::Stats, 0, &[])?;
        self.connection.read(&answer, |Fields(body)| read_stats(body))
    }

    /// Returns the figures of each consumer: [`Queue::consumer_stats`](crate::Queue).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// client.consumer("workers")?;
    /// assert!(client.consumer_stats()?.iter().any(|consumer| consumer.name == "workers"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`durable_seq`](Self::durable_seq).
    pub fn consumer_stats(&self) -> Result<Vec<ConsumerStats>> {
        let answer = self.connection.ask(Call::Consumers, 0, &[])?;
        self.connection.read(&answer, |Fields(body)| read_consumers(body))
    }

    /// Returns the names of the consumers.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// client.consumer("workers")?;
    /// assert!(client.consumers()?.contains(&"workers".to_owned()));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`durable_seq`](Self::durable_seq).
    pub fn consumers(&self) -> Result<Vec<String>> {
        Ok(self.consumer_stats()?.into_iter().map(|consumer| consumer.name).collect())
    }

    /// Returns the consumer `name`; the first call that names it makes it, at the oldest message.
    /// No name, `""`, is the default consumer's.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a name of more than 255 bytes; those of
    /// [`durable_seq`](Self::durable_seq).
    pub fn consumer(&self, name: &str) -> Result<ClientConsumer> {
        self.consumer_at(name, Start::Oldest)
    }

    /// Returns the consumer `name`; a new one begins at `start`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// client.enqueue("before")?;
    /// let news = client.consumer_at("news", mmq::Start::End)?;
    /// assert!(news.peek()?.is_none());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] for a start at a message that the queue does not hold; those of
    /// [`consumer`](Self::consumer).
    pub fn consumer_at(&self, name: &str, start: Start) -> Result<ClientConsumer> {
        let number = self.connection.open_consumer(name, start)?;
        Ok(ClientConsumer::new(&self.connection, number, name))
    }

    /// Returns the default consumer, which has no name. Its first read makes it.
    #[must_use]
    pub fn default_consumer(&self) -> ClientConsumer {
        ClientConsumer::new(&self.connection, 0, "")
    }

    /// Forwards the messages of the queue to `destination` as the consumer `consumer`, as
    /// [`Forwarder::new`] does where the process has the queue open. When the owner ends, the
    /// forwarder ends with [`ForwardEnd::Closed`] or [`Error::Disconnected`].
    ///
    /// ```
    /// use mmq::forward::{Destination, Halt};
    ///
    /// fn forward(client: &mmq::Client, far: impl Destination) -> Result<(), Halt> {
    ///     client.forwarder("forward", far).once()?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// None here: those of [`consumer`](Self::consumer) when it runs.
    #[cfg(feature = "forward")]
    #[must_use]
    pub fn forwarder<D: Destination>(&self, consumer: &str, destination: D) -> Forwarder<D> {
        let (path, queue_id) = (self.connection.path(), self.connection.queue_id);
        let (path_of, name) = (path.to_owned(), consumer.to_owned());
        let forwarded = ClientForwarded { path: path_of, queue_id, consumer: name };
        Forwarder::of(Box::new(forwarded), path, queue_id, consumer, destination)
    }

    /// Ends the connection: calls of other threads, too.
    pub(super) fn end(&self) {
        self.connection.end();
    }

    pub(super) fn queue_id(&self) -> [u8; 16] {
        self.connection.queue_id
    }

    /// Removes the consumer `name`: [`Queue::remove_consumer`](crate::Queue::remove_consumer).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// client.consumer("trial")?;
    /// client.remove_consumer("trial")?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when there is none; those of [`durable_seq`](Self::durable_seq).
    pub fn remove_consumer(&self, name: &str) -> Result<()> {
        self.connection.ask(Call::RemoveConsumer, 0, name.as_bytes()).map(drop)
    }

    /// Returns who uses the queue through its owner, this client included.
    ///
    /// # Errors
    ///
    /// Those of [`durable_seq`](Self::durable_seq).
    pub fn connected(&self) -> Result<Vec<ConnectedClient>> {
        let answer = self.connection.ask(Call::Clients, 0, &[])?;
        self.connection.read(&answer, |mut fields| {
            (0..fields.u32()?)
                .map(|_| {
                    let (pid, uid, since) = (fields.u64()?, fields.u64()?, fields.u64()?);
                    let since = UNIX_EPOCH.checked_add(Duration::from_millis(since));
                    let since = since.unwrap_or(UNIX_EPOCH);
                    Ok(ConnectedClient { pid: pid as u32, uid: uid as u32, since })
                })
                .collect()
        })
    }

    /// Returns when the segment was begun in which the message `seq` begins:
    /// [`Queue::segment_time`](crate::Queue::segment_time).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// let seq = client.enqueue("a message")?;
    /// assert_eq!(client.segment_time(seq)?, owner.segment_time(seq));
    /// assert_eq!(client.segment_time(seq + 1)?, None);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`durable_seq`](Self::durable_seq).
    pub fn segment_time(&self, seq: u64) -> Result<Option<SystemTime>> {
        self.connection.segment_time(seq)
    }

    /// Returns the queue's directory.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// let client = mmq::Client::connect(dir.path())?;
    /// assert_eq!(client.path(), dir.path());
    /// assert_eq!(client.id(), owner.id());
    /// assert_eq!(client.owner_pid(), std::process::id());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> &Path {
        self.connection.path()
    }

    /// Returns the queue's id: [`Queue::id`](crate::Queue::id).
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.connection.queue_id
    }

    /// Returns the process that has the queue open.
    #[must_use]
    pub fn owner_pid(&self) -> u32 {
        self.connection.owner_pid
    }
}
