//! [`HandleConsumer`]: a consumer of a queue of this process, or of another one that shares it.

use std::sync::Arc;
use std::time::Duration;

use super::client_consumer::ClientConsumer;
use super::shared_queue::{Again, Role, SharedQueue};
use crate::consumer::Consumer;
use crate::delivery::Delivery;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::message::Message;
use crate::options::Start;
use crate::redelivery::Redelivery;
use crate::threads::{Mutex, now};

/// The longest wait that one call of another process's queue asks for.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// A consumer of a queue that this process has open, or uses through its owner:
/// [`Handle::consumer`](crate::Handle::consumer).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
/// let workers = queue.consumer("workers")?;
/// queue.enqueue("resize picture 7")?;
/// let job = workers.receive()?.expect("there is one");
/// println!("{:?}", job.as_str()); // does the work
/// job.ack()?;
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug)]
pub struct HandleConsumer {
    queue: Arc<SharedQueue>,
    name: String,
    opened: Mutex<OpenedWith>,
}

/// The consumer as it was opened with what the process was to the queue then.
#[derive(Debug)]
struct OpenedWith {
    role: Arc<Role>,
    reader: EitherConsumer,
    /// What [`HandleConsumer::set_redelivery`] has set: each later owner is told so too.
    rules: Option<HandleRules>,
}

/// When messages come again.
#[derive(Debug, Clone, Copy)]
struct HandleRules {
    lease: Option<Duration>,
    backoff: Option<(Duration, Duration)>,
    max_attempts: Option<u32>,
}

#[derive(Debug, Clone)]
enum EitherConsumer {
    Own(Consumer),
    Owners(ClientConsumer),
}

impl HandleConsumer {
    pub(super) fn open(
        queue: &Arc<SharedQueue>,
        name: &str,
        start: Start,
    ) -> Result<HandleConsumer> {
        let opened = queue.with(Again::Always, |role| {
            let reader = EitherConsumer::open(role, name, start)?;
            Ok(OpenedWith { role: Arc::clone(role), reader, rules: None })
        })?;
        Ok(HandleConsumer::new(queue, name, opened))
    }

    fn new(queue: &Arc<SharedQueue>, name: &str, opened: OpenedWith) -> HandleConsumer {
        let opened = Mutex::new(opened);
        HandleConsumer { queue: Arc::clone(queue), name: name.to_owned(), opened }
    }

    /// Returns the consumer's name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// assert_eq!(queue.consumer("workers")?.name(), "workers");
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Calls `call` with the consumer of the queue's present owner.
    fn with<R>(
        &self,
        again: Again,
        call: impl Fn(&Arc<Role>, &EitherConsumer) -> Result<R>,
    ) -> Result<R> {
        self.queue.with(again, |role| {
            let mut opened = self.opened.lock();
            if !Arc::ptr_eq(&opened.role, role) {
                // It existed. If somebody has removed it meanwhile, it begins at the oldest.
                let reader = EitherConsumer::open(role, &self.name, Start::Oldest)?;
                if let Some(rules) = opened.rules {
                    reader.set_redelivery(rules)?;
                }
                (opened.role, opened.reader) = (Arc::clone(role), reader);
            }
            let reader = opened.reader.clone();
            drop(opened);
            call(role, &reader)
        })
    }

    /// Takes the next message: [`Consumer::dequeue`]. `None`: there is none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// let reader = queue.consumer("reader")?;
    /// queue.enqueue("a message")?;
    /// assert_eq!(reader.peek()?.unwrap().as_str(), Ok("a message"));
    /// assert_eq!(reader.dequeue()?.unwrap().as_str(), Ok("a message"));
    /// reader.seek(0)?;
    /// assert!(reader.dequeue()?.is_some());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`ClientConsumer::dequeue`].
    pub fn dequeue(&self) -> Result<Option<Message>> {
        self.with(Again::IfUndone, |_, reader| match reader {
            EitherConsumer::Own(consumer) => consumer.dequeue(),
            EitherConsumer::Owners(consumer) => consumer.dequeue(),
        })
    }

    /// Returns the next message without taking it: [`Consumer::peek`].
    ///
    /// # Errors
    ///
    /// Those of [`ClientConsumer::peek`].
    pub fn peek(&self) -> Result<Option<Message>> {
        self.with(Again::Always, |_, reader| match reader {
            EitherConsumer::Own(consumer) => consumer.peek(),
            EitherConsumer::Owners(consumer) => consumer.peek(),
        })
    }

    /// Receives the next message, to be acknowledged when the work is done: [`Consumer::receive`].
    /// `None`: there is none.
    ///
    /// # Errors
    ///
    /// Those of [`ClientConsumer::receive`].
    pub fn receive(&self) -> Result<Option<Delivery>> {
        self.receive_timeout(Duration::ZERO)
    }

    /// As [`receive`](Self::receive), but waits up to `timeout` for a message, also over the end of
    /// an owner.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// use std::time::Duration;
    ///
    /// let workers = queue.consumer("workers")?;
    /// queue.enqueue("resize picture 7")?;
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
        let deadline = now().checked_add(timeout);
        self.with(Again::Always, |_, reader| {
            let left =
                deadline.map_or(LONGEST_WAIT, |deadline| deadline.saturating_duration_since(now()));
            match reader {
                EitherConsumer::Own(consumer) => consumer.receive_timeout(left),
                EitherConsumer::Owners(consumer) => consumer.receive_timeout(left),
            }
        })
    }

    /// Receives up to `max` messages; none when there is none. A client gets up to 64.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// queue.enqueue_batch(&["a", "b", "c"])?;
    /// let jobs = queue.consumer("workers")?.receive_batch(100)?;
    /// assert_eq!(jobs.len(), 3);
    /// mmq::Delivery::ack_batch(jobs)?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`receive`](Self::receive).
    pub fn receive_batch(&self, max: usize) -> Result<Vec<Delivery>> {
        self.with(Again::Always, |_, reader| match reader {
            EitherConsumer::Own(consumer) => consumer.receive_batch(max),
            EitherConsumer::Owners(consumer) => consumer.receive_batch(max),
        })
    }

    /// Moves to the message `seq`: [`Consumer::seek`].
    ///
    /// # Errors
    ///
    /// Those of [`ClientConsumer::seek`].
    pub fn seek(&self, seq: u64) -> Result<()> {
        self.with(Again::Always, |_, reader| match reader {
            EitherConsumer::Own(consumer) => consumer.seek(seq),
            EitherConsumer::Owners(consumer) => consumer.seek(seq),
        })
    }

    /// Makes a new consumer called `name` at this one's place: [`Consumer::fork`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// let trial = queue.consumer("workers")?.fork("trial")?;
    /// assert_eq!(trial.name(), "trial");
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`ClientConsumer::fork`]; [`Error::Disconnected`] when the new consumer may have
    /// been made.
    pub fn fork(&self, name: &str) -> Result<HandleConsumer> {
        let forked = self.with(Again::IfUndone, |role, reader| {
            let reader = match reader {
                EitherConsumer::Own(consumer) => EitherConsumer::Own(consumer.fork(name)?),
                EitherConsumer::Owners(consumer) => EitherConsumer::Owners(consumer.fork(name)?),
            };
            Ok(OpenedWith { role: Arc::clone(role), reader, rules: None })
        })?;
        Ok(HandleConsumer::new(&self.queue, name, forked))
    }

    /// Sets when messages come again that were handed out and not acknowledged:
    /// [`ClientConsumer::set_redelivery`]. The rules end with the owner; this handle sets them
    /// again with the next one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::open_or_connect(dir.path(), &mmq::Options::new())?;
    /// queue.consumer("workers")?.set_redelivery(None, None, 5)?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`ClientConsumer::set_redelivery`].
    pub fn set_redelivery(
        &self,
        lease: impl Into<Option<Duration>>,
        backoff: impl Into<Option<(Duration, Duration)>>,
        max_attempts: impl Into<Option<u32>>,
    ) -> Result<()> {
        let (lease, backoff, max_attempts) = (lease.into(), backoff.into(), max_attempts.into());
        let rules = HandleRules { lease, backoff, max_attempts };
        self.with(Again::Always, |_, reader| reader.set_redelivery(rules))?;
        self.opened.lock().rules = Some(rules);
        Ok(())
    }
}

impl EitherConsumer {
    fn open(role: &Role, name: &str, start: Start) -> Result<EitherConsumer> {
        match role {
            Role::Owner(queue) if name.is_empty() => {
                let default = Arc::clone(queue.engine().default_consumer()?);
                Ok(EitherConsumer::Own(Consumer::new(Arc::clone(queue.engine()), default)))
            }
            Role::Owner(queue) => queue.consumer_at(name, start).map(EitherConsumer::Own),
            Role::Client(client) => client.consumer_at(name, start).map(EitherConsumer::Owners),
        }
    }

    fn set_redelivery(&self, rules: HandleRules) -> Result<()> {
        let HandleRules { lease, backoff, max_attempts } = rules;
        match self {
            EitherConsumer::Own(consumer) => {
                let mut rules = Redelivery::new();
                rules = lease.map_or(rules.clone(), |lease| rules.lease(lease));
                rules = backoff.map_or(rules.clone(), |(first, max)| rules.backoff(first, max));
                rules = max_attempts.map_or(rules.clone(), |most| rules.max_attempts(most));
                consumer.set_redelivery(rules)
            }
            EitherConsumer::Owners(consumer) => {
                consumer.set_redelivery(lease, backoff, max_attempts)
            }
        }
    }
}
