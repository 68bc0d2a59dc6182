//! [`Consumer`]: a named place in the queue.
//!
//! | file | what it does |
//! |---|---|
//! | `own_reads` | reads |
//! | `own_waits` | waits in event loops and tasks |
//! | `mod` | sets the rules for work; name, place and figures |

// In this order rustdoc shows their methods, and then those of this file.
mod own_reads;

mod own_waits;

use std::sync::Arc;

use crate::consume::consumer_state::ConsumerState;
use crate::engine::Engine;
use crate::engine::consumer_life::check_name;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::lanes::{LaneOptions, Lanes};
use crate::redelivery::Redelivery;
use crate::stats::ConsumerStats;
use crate::storage::{FileStorage, Storage};

/// A named reader of a queue, with a place of its own: [`Queue::consumer`](crate::Queue::consumer).
///
/// Handles of the same consumer, in any number of threads, share its place: each message goes to
/// exactly one of them. Consumers of different names each see every message. The queue gives space
/// back when the slowest consumer has passed it.
///
/// A consumer does not keep its [`Queue`](crate::Queue) open. Once the queue is closed or dropped,
/// every call on the consumer returns [`Error::Closed`], also a call that waits at that moment.
///
/// ```
/// # fn main() -> mmq::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let queue = mmq::Queue::open(dir.path())?;
/// queue.enqueue("event")?;
/// let audit = queue.consumer("audit")?;
/// let mail = queue.consumer("mail")?;
/// assert_eq!(audit.dequeue()?.unwrap().as_str(), Ok("event"));
/// assert_eq!(mail.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Consumer {
    engine: Arc<Engine<FileStorage>>,
    consumer: Arc<ConsumerState<FileStorage>>,
}

/// # Rules for work
impl Consumer {
    /// Sets how many messages may be [in flight](Self::in_flight) at a time, over all handles of
    /// this consumer. `None`: no limit. The limit is not stored: every opening begins with none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// workers.set_max_in_flight(1)?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// let job = workers.receive()?.expect("there is one");
    /// assert!(workers.receive()?.is_none()); // as long as that one is in flight
    /// job.ack()?;
    /// assert!(workers.receive()?.is_some());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for 0, [`Error::NotFound`] once the consumer was removed,
    /// [`Error::Closed`].
    pub fn set_max_in_flight(&self, messages: impl Into<Option<u32>>) -> Result<()> {
        self.engine.set_max_in_flight(&self.consumer, messages.into())
    }

    /// Sets when messages come again that were handed out and not acknowledged: leases, delays,
    /// most attempts, dead letters. See [`Redelivery`]. The rules are not stored, the attempts are.
    ///
    /// Deliveries that are in flight keep the lease that they have.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// use std::time::Duration;
    ///
    /// let (first, longest) = (Duration::from_secs(1), Duration::from_secs(600));
    /// workers.set_redelivery(mmq::Redelivery::new().backoff(first, longest).max_attempts(5))?;
    /// queue.enqueue("resize picture 7")?;
    /// workers.receive()?.expect("there is one").nack();
    /// assert!(workers.receive()?.is_none()); // it comes again in a second
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a lease below a millisecond, a first delay above the longest,
    /// no attempt at all, and for dead letters that would come back to this queue, directly or over
    /// others. [`Error::NotFound`] once the consumer was removed, [`Error::Closed`]. Nothing has
    /// changed then.
    pub fn set_redelivery(&self, redelivery: Redelivery) -> Result<()> {
        let rules = redelivery.rules(&self.engine)?;
        self.engine.set_redelivery(&self.consumer, rules)
    }

    /// Returns how many messages are in flight: received, neither acknowledged nor given back. A
    /// [rejected](crate::Delivery::reject) message counts until it is in the queue for dead
    /// letters, or a read has reported it as a gap.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// queue.enqueue("resize picture 7")?;
    /// let job = workers.receive()?.expect("there is one");
    /// assert_eq!(workers.in_flight(), 1);
    /// job.ack()?;
    /// assert_eq!(workers.in_flight(), 0);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.consumer.in_flight(&self.engine.core)
    }

    /// Reads this consumer in two lanes from now on: fresh messages first, and beside them what is
    /// no longer fresh. See [`Lanes`]. Called again, it changes how, and nothing else.
    ///
    /// With [`Fresh::Age`](crate::Fresh::Age) each enqueue takes the time from now on, and the
    /// queue begins a new segment each eighth of that age, until it is closed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// use mmq::{Fresh, LaneOptions};
    ///
    /// let link = queue.consumer("link")?;
    /// let lanes = link.lanes(LaneOptions::new().fresh_within(Fresh::Messages(1_000)))?;
    /// queue.enqueue("reading 17")?;
    /// let reading = lanes.receive()?.expect("there is one");
    /// assert!(!reading.is_backlog());
    /// reading.ack()?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for an age below a millisecond, for 0 messages, a share of 0 to
    /// 0, and a rate of 0. [`Error::NotFound`] once the consumer was removed, [`Error::Closed`],
    /// and [`Error::Io`] when what an earlier run left behind cannot be looked for.
    pub fn lanes(&self, options: LaneOptions) -> Result<Lanes> {
        Lanes::open(&self.engine, &self.consumer, &options)
    }
}

/// # Name, place and figures
impl Consumer {
    /// Returns the consumer's name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// assert_eq!(workers.name(), "workers");
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        self.consumer.name()
    }

    /// Returns how many messages wait for this consumer: those it has neither taken nor
    /// acknowledged, messages in flight included.
    ///
    /// As exact as [`Queue::len`](crate::Queue::len).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// workers.dequeue()?;
    /// assert_eq!(workers.len(), 1);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> u64 {
        self.consumer.len(&self.engine.core)
    }

    /// Returns whether no message waits for this consumer.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// assert!(workers.is_empty());
    /// queue.enqueue("a message")?;
    /// assert!(!workers.is_empty());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns figures of this consumer, read one by one while other threads work.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// let workers = queue.consumer("workers")?;
    /// queue.enqueue_batch(["a", "b", "c"])?;
    /// let job = workers.receive()?.unwrap();
    /// let stats = workers.stats();
    /// assert_eq!((stats.messages, stats.in_flight, stats.next_seq), (3, 1, 0));
    /// job.ack()?;
    /// assert_eq!((workers.stats().messages, workers.stats().next_seq), (2, 1));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn stats(&self) -> ConsumerStats {
        self.engine.stats_of(&self.consumer)
    }

    /// Moves to the message `seq`, back or forward. The number after the last one leads to the end
    /// of the queue, a number within a gap to that gap.
    ///
    /// Deliveries received before are called off: to acknowledge them or to give them back changes
    /// nothing any more. Where acknowledgements or attempts are stored, the calling thread erases
    /// them on the disk first, with one sync of the index.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// queue.enqueue_batch(["a", "b", "c"])?;
    /// assert_eq!(workers.dequeue_batch(3)?.len(), 3);
    /// workers.seek(1)?; // as long as its segment is there
    /// assert_eq!(workers.dequeue()?.unwrap().as_str(), Ok("b"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The place stays in each case. [`Error::NotFound`] when the queue does not hold that message,
    /// or not any more. [`Error::Io`] or [`Error::Poisoned`] when the acknowledgements of messages
    /// behind the place cannot be erased on the disk: they go on counting, but those messages may
    /// come again after the next opening.
    pub fn seek(&self, seq: u64) -> Result<()> {
        self.engine.seek(&self.consumer, seq)
    }

    /// Makes a new consumer called `name` at this one's place. Messages that this one has not
    /// acknowledged come to the new one too.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// workers.dequeue()?;
    /// let trial = workers.fork("trial")?;
    /// assert_eq!(trial.dequeue()?.unwrap().as_str(), Ok("b"));
    /// assert_eq!(workers.len(), 1); // this consumer stands where it stood
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for a bad name or one that is taken, [`Error::Io`] when there is
    /// no room for another consumer.
    #[doc(alias = "FromConsumer")]
    pub fn fork(&self, name: &str) -> Result<Consumer> {
        check_name(self.engine.core.storage.path(), name)?;
        let consumer = self.engine.fork(&self.consumer, name)?;
        Ok(Consumer::new(Arc::clone(&self.engine), consumer))
    }
}

impl Consumer {
    pub(crate) fn new(
        engine: Arc<Engine<FileStorage>>,
        consumer: Arc<ConsumerState<FileStorage>>,
    ) -> Consumer {
        Consumer { engine, consumer }
    }

    #[cfg(any(feature = "capi", feature = "forward"))]
    pub(crate) fn parts(&self) -> (&Arc<Engine<FileStorage>>, &Arc<ConsumerState<FileStorage>>) {
        (&self.engine, &self.consumer)
    }
}
