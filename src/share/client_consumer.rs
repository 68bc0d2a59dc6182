//! [`ClientConsumer`]: a consumer of a queue that another process has open.

use std::sync::Arc;
use std::time::Duration;

use super::connection::{AnswerFrame, Connection};
use super::fields::{Fields, put_milliseconds, put_optional, put_u32, put_u64};
use super::frame::Call;
use super::output::read_message;
use super::remote_delivery::RemoteDelivery;
use crate::delivery::Delivery;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::message::Message;

/// A consumer of a queue that another process has open: [`Client::consumer`](crate::Client).
///
/// Each message of a consumer goes to one reader, in whichever process. What a process has in
/// flight when its connection ends goes back to the queue at once, and counts as an attempt.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
/// let client = mmq::Client::connect(dir.path())?;
/// let workers = client.consumer("workers")?;
/// client.enqueue("resize picture 7")?;
/// let job = workers.receive()?.expect("there is one");
/// println!("{:?}", job.as_str()); // does the work
/// job.ack()?;
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ClientConsumer {
    connection: Arc<Connection>,
    /// Its number on the connection; 0 for the default consumer.
    number: u16,
    name: Arc<str>,
}

impl ClientConsumer {
    pub(super) fn new(connection: &Arc<Connection>, number: u16, name: &str) -> ClientConsumer {
        ClientConsumer { connection: Arc::clone(connection), number, name: name.into() }
    }

    /// Returns the consumer's name; the default consumer has none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// assert_eq!(client.consumer("workers")?.name(), "workers");
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the next message: [`Consumer::dequeue`](crate::Consumer::dequeue). `None`: there is
    /// none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// client.enqueue("a message")?;
    /// let message = client.default_consumer().dequeue()?.expect("there is one");
    /// assert_eq!(message.as_str(), Ok("a message"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Gap`] once for messages that are missing, [`Error::NotFound`] once the consumer was
    /// removed, [`Error::Closed`] and [`Error::Disconnected`] when the owner has gone. A message
    /// that the owner had sent is lost with the connection then: [`receive`](Self::receive) loses
    /// none.
    pub fn dequeue(&self) -> Result<Option<Message>> {
        self.dequeue_timeout(Duration::ZERO)
    }

    /// As [`dequeue`](Self::dequeue), but waits up to `timeout` for a message.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// use std::time::Duration;
    /// assert!(client.default_consumer().dequeue_timeout(Duration::from_millis(20))?.is_none());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`dequeue`](Self::dequeue).
    pub fn dequeue_timeout(&self, timeout: Duration) -> Result<Option<Message>> {
        let mut body = Vec::new();
        put_milliseconds(&mut body, Some(timeout));
        let answer = self.connection.ask(Call::Dequeue, self.number, &body)?;
        self.message(answer)
    }

    /// Returns the next message without taking it: [`Consumer::peek`](crate::Consumer::peek).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// client.enqueue("a message")?;
    /// assert_eq!(client.default_consumer().peek()?.unwrap().as_str(), Ok("a message"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`dequeue`](Self::dequeue).
    pub fn peek(&self) -> Result<Option<Message>> {
        let answer = self.connection.ask(Call::Peek, self.number, &[])?;
        self.message(answer)
    }

    /// Receives the next message, to be acknowledged when the work is done:
    /// [`Consumer::receive`](crate::Consumer::receive). `None`: there is none.
    ///
    /// # Errors
    ///
    /// Those of [`dequeue`](Self::dequeue); no message is lost.
    pub fn receive(&self) -> Result<Option<Delivery>> {
        self.receive_timeout(Duration::ZERO)
    }

    /// As [`receive`](Self::receive), but waits up to `timeout` for a message.
    ///
    /// Other threads may use the connection meanwhile, also to acknowledge.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// use std::time::Duration;
    ///
    /// let workers = client.consumer("workers")?;
    /// owner.enqueue("resize picture 7")?;
    /// while let Some(job) = workers.receive_timeout(Duration::from_millis(20))? {
    ///     job.ack()?;
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`receive`](Self::receive).
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Delivery>> {
        Ok(self.receive_many(1, timeout)?.pop())
    }

    /// Receives up to `max` messages, and up to 64; none when there is none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// client.enqueue_batch(["a", "b", "c"])?;
    /// let jobs = client.default_consumer().receive_batch(100)?;
    /// assert_eq!(jobs.len(), 3);
    /// mmq::Delivery::ack_batch(jobs)?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`receive`](Self::receive).
    pub fn receive_batch(&self, max: usize) -> Result<Vec<Delivery>> {
        self.receive_many(max, Duration::ZERO)
    }

    fn receive_many(&self, max: usize, timeout: Duration) -> Result<Vec<Delivery>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut body = Vec::new();
        put_u32(&mut body, u32::try_from(max).unwrap_or(u32::MAX));
        put_milliseconds(&mut body, Some(timeout));
        let answers = self.connection.ask_for_all(Call::Receive, self.number, &body)?;
        let delivered = answers.into_iter().filter(AnswerFrame::is_ok);
        delivered.map(|answer| self.delivery(answer)).collect()
    }

    /// Moves to the message `seq`: [`Consumer::seek`](crate::Consumer::seek).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// client.enqueue_batch(["a", "b"])?;
    /// let reader = client.consumer("reader")?;
    /// reader.seek(1)?;
    /// assert_eq!(reader.dequeue()?.unwrap().as_str(), Ok("b"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when the queue does not hold that message; those of
    /// [`peek`](Self::peek).
    pub fn seek(&self, seq: u64) -> Result<()> {
        let mut body = Vec::new();
        put_u64(&mut body, seq);
        self.connection.ask(Call::Seek, self.number, &body).map(drop)
    }

    /// Sets when messages come again that were handed out and not acknowledged, as
    /// [`Consumer::set_redelivery`](crate::Consumer::set_redelivery) does, for all readers of this
    /// consumer. Where dead letters go is the owner's.
    ///
    /// `backoff`: the first delay and the longest.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// use std::time::Duration;
    /// let lease = Duration::from_secs(60);
    /// client.consumer("workers")?.set_redelivery(lease, None, 5)?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] as for [`Redelivery`](crate::Redelivery); those of
    /// [`peek`](Self::peek).
    pub fn set_redelivery(
        &self,
        lease: impl Into<Option<Duration>>,
        backoff: impl Into<Option<(Duration, Duration)>>,
        max_attempts: impl Into<Option<u32>>,
    ) -> Result<()> {
        let mut body = Vec::new();
        let (first, longest) = backoff.into().unzip();
        for time in [lease.into(), first, longest] {
            put_milliseconds(&mut body, time);
        }
        put_optional(&mut body, max_attempts.into().map(u64::from));
        self.connection.ask(Call::SetRedelivery, self.number, &body).map(drop)
    }

    /// Makes a new consumer called `name` at this one's place:
    /// [`Consumer::fork`](crate::Consumer::fork).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let owner = mmq::Options::new().shared(true).open(dir.path())?;
    /// # let client = mmq::Client::connect(dir.path())?;
    /// let trial = client.consumer("workers")?.fork("trial")?;
    /// assert_eq!(trial.name(), "trial");
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a bad name or one that is taken; those of
    /// [`peek`](Self::peek).
    pub fn fork(&self, name: &str) -> Result<ClientConsumer> {
        let answer = self.connection.ask(Call::Fork, self.number, name.as_bytes())?;
        let number = self.connection.read(&answer, |mut fields| fields.u16())?;
        Ok(ClientConsumer::new(&self.connection, number, name))
    }

    fn message(&self, answer: AnswerFrame) -> Result<Option<Message>> {
        if !answer.is_ok() {
            return Ok(None);
        }
        let (what, at) = self.connection.read(&answer, |Fields(body)| read_message(body))?;
        let mut bytes = answer.body;
        bytes.drain(..at);
        Ok(Some(Message::owned(what.seq, bytes).with_origin(what.origin)))
    }

    fn delivery(&self, answer: AnswerFrame) -> Result<Delivery> {
        let (what, at) = self.connection.read(&answer, |Fields(body)| read_message(body))?;
        let mut bytes = answer.body;
        bytes.drain(..at);
        let message = Message::owned(what.seq, bytes).with_origin(what.origin);
        let remote = RemoteDelivery::new(&self.connection, what.delivery);
        Ok(Delivery::of_owner(message, what.attempts, remote))
    }
}
