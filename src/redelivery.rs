//! When messages that were handed out come again.

use std::sync::Arc;
use std::time::Duration;

use crate::consume::redelivery_state::{DeadLetters, Rules};
use crate::engine::Engine;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::format::Origin;
use crate::queue::Queue;
use crate::storage::{FileStorage, Storage};

/// The rules by which messages come again that a worker received and did not acknowledge, and by
/// which they come no more: [`Consumer::set_redelivery`](crate::Consumer::set_redelivery).
///
/// Without any of this a message that is given back comes again at once and for ever, and one that
/// is kept is never another worker's.
///
/// ```
/// # fn main() -> mmq::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use mmq::{Queue, Redelivery};
/// use std::{sync::Arc, time::Duration};
///
/// let failed = Arc::new(Queue::open(dir.path().join("failed"))?);
/// let queue = Queue::open(dir.path().join("jobs"))?;
/// queue.enqueue("a job that never works")?;
/// let workers = queue.consumer("workers")?;
/// workers.set_redelivery(
///     Redelivery::new()
///         .lease(Duration::from_secs(60))
///         .backoff(Duration::from_millis(1), Duration::from_secs(60))
///         .max_attempts(3)
///         .dead_letters(Arc::clone(&failed)),
/// )?;
/// for attempt in 1..=3 {
///     let job = workers.receive_timeout(Duration::from_secs(10))?.unwrap();
///     assert_eq!(job.attempts(), attempt);
///     job.nack();
/// }
/// let letter = failed.dequeue_timeout(Duration::from_secs(10))?.unwrap();
/// assert_eq!(letter.as_str(), Ok("a job that never works"));
/// # Ok(())
/// # }
/// ```
///
/// # Attempts are stored
///
/// From [`set_redelivery`](crate::Consumer::set_redelivery) on, the queue stores before it delivers
/// a message that the message is in flight, and how often it was given back. The death of the
/// process counts as one attempt of each message that was in flight, of every consumer. So a
/// message whose work ends the process each time is rejected after
/// [`max_attempts`](Redelivery::max_attempts) deaths. The messages that are in flight beside it
/// each time lose as many attempts: allow more of them than an innocent message may meet such
/// deaths, or do dangerous work in a process of its own with
/// [`set_max_in_flight(1)`](crate::Consumer::set_max_in_flight). A close counts against no message,
/// nor does a power cut, which may also take counts back.
///
/// Four consumers of a queue have a row in the index for this. Those of a fifth are not counted
/// over openings (an event says so). A row has room for at least 36 messages that were tried fewer
/// than 32 times and are not done, and for 110 where their numbers lie close together. Counts
/// beyond that, those of the highest numbers, are kept in memory only: an opening begins these anew
/// (an event says so).
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Redelivery {
    lease: Option<Duration>,
    backoff: Option<(Duration, Duration)>,
    max_attempts: Option<u32>,
    dead_letters: Option<Arc<OtherQueue>>,
}

impl Redelivery {
    /// Begins with no lease, no delay, any number of attempts.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.set_redelivery(mmq::Redelivery::new())?; // from now on attempts are stored
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub fn new() -> Redelivery {
        Redelivery::default()
    }

    /// Sets a lease: a delivery that is neither acknowledged nor given back within `lease` goes
    /// back by itself, as if it had been given back then. To acknowledge it later is
    /// [`Error::Expired`]. [`Delivery::extend`](crate::Delivery::extend) gives it more time. At
    /// least a millisecond.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// use std::time::Duration;
    ///
    /// queue.set_redelivery(mmq::Redelivery::new().lease(Duration::from_millis(5)))?;
    /// queue.enqueue("resize picture 7")?;
    /// let slow = queue.receive()?.expect("there is one");
    /// let again = queue.receive_timeout(Duration::from_secs(60))?.expect("it comes again");
    /// assert_eq!(again.seq(), slow.seq());
    /// assert!(matches!(slow.ack(), Err(mmq::Error::Expired)));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub fn lease(mut self, lease: Duration) -> Redelivery {
        self.lease = Some(lease);
        self
    }

    /// Sets delays: a message that was given back comes again after `first` after the first
    /// attempt, twice as long after each further one, at most `max`. Other messages pass it
    /// meanwhile.
    ///
    /// Delays are not stored: after an opening all messages come at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// use std::time::Duration;
    ///
    /// let (first, longest) = (Duration::from_secs(60), Duration::from_secs(3600));
    /// queue.set_redelivery(mmq::Redelivery::new().backoff(first, longest))?;
    /// queue.enqueue("resize picture 7")?;
    /// queue.receive()?.expect("there is one").nack();
    /// assert!(queue.receive()?.is_none()); // it comes again in a minute
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub fn backoff(mut self, first: Duration, max: Duration) -> Redelivery {
        self.backoff = Some((first, max));
        self
    }

    /// Sets how often a message is handed out: after `attempts` times in vain it is
    /// [rejected](crate::Delivery::reject). At least 1.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.set_redelivery(mmq::Redelivery::new().max_attempts(1))?;
    /// queue.enqueue("a job that never works")?;
    /// queue.receive()?.expect("there is one").nack();
    /// match queue.receive() {
    ///     Err(mmq::Error::Gap(gap)) => println!("{gap}"), // without dead letters it is given up
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub fn max_attempts(mut self, attempts: u32) -> Redelivery {
        self.max_attempts = Some(attempts);
        self
    }

    /// Sends rejected messages to `queue`. A thread of this queue's own puts each in, flushes, and
    /// only then acknowledges it here: it is there at least once, also after a power cut. Until
    /// then it stays in flight. While `queue` is full, busy, closed or refuses to write, the
    /// message stays, and is tried again after the [backoff](Self::backoff), or each second. One
    /// that is too large for `queue` comes as a gap instead,
    /// [`GapCause::Rejected`](crate::GapCause::Rejected). A dead letter says [where it comes
    /// from](crate::Message::origin).
    ///
    /// A close of this queue first sends what is rejected and can go, and begins with no more after
    /// five seconds; what is left goes after the next opening.
    ///
    /// The queue is kept open until the consumer gets another `Redelivery`, is removed, or its
    /// queue is closed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use mmq::{Queue, Redelivery};
    /// use std::{sync::Arc, time::Duration};
    ///
    /// let failed = Arc::new(Queue::open(dir.path().join("failed"))?);
    /// let queue = Queue::open(dir.path().join("jobs"))?;
    /// queue.set_redelivery(Redelivery::new().dead_letters(Arc::clone(&failed)))?;
    /// let seq = queue.enqueue("no job")?;
    /// queue.receive()?.expect("there is one").reject()?;
    /// let letter = failed.dequeue_timeout(Duration::from_secs(60))?.expect("it came");
    /// assert_eq!(letter.origin().expect("a dead letter has one").seq, seq);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub fn dead_letters(mut self, queue: Arc<Queue>) -> Redelivery {
        let engine = Arc::clone(queue.engine());
        self.dead_letters = Some(Arc::new(OtherQueue { engine, _kept_open: Some(queue) }));
        self
    }

    /// As [`dead_letters`](Self::dead_letters), but the queue is not kept open.
    #[cfg(feature = "capi")]
    pub(crate) fn dead_letters_to(mut self, engine: &Arc<Engine<FileStorage>>) -> Redelivery {
        self.dead_letters = Some(Arc::new(OtherQueue::of(engine)));
        self
    }

    /// The rules for a consumer of the queue that `engine` runs.
    pub(crate) fn rules(self, engine: &Engine<FileStorage>) -> Result<Rules> {
        let dead_letters = self.dead_letters.map(|to| to as Arc<dyn DeadLetters>);
        let Redelivery { lease, backoff, max_attempts, .. } = self;
        let rules = Rules { lease, backoff, max_attempts, dead_letters };
        rules.check(engine.core.storage.path())?;
        Ok(rules)
    }
}

/// The queue for the dead letters of a consumer.
#[derive(Debug)]
pub(crate) struct OtherQueue<S: Storage = FileStorage> {
    engine: Arc<Engine<S>>,
    /// An engine alone does not keep its queue from being closed.
    _kept_open: Option<Arc<Queue>>,
}

impl<S: Storage> OtherQueue<S> {
    /// Does not keep the queue from being closed.
    #[cfg(any(test, feature = "capi"))]
    pub(crate) fn of(engine: &Arc<Engine<S>>) -> OtherQueue<S> {
        OtherQueue { engine: Arc::clone(engine), _kept_open: None }
    }
}

impl<S: Storage> DeadLetters for OtherQueue<S> {
    fn put(&self, payload: &[u8], origin: &Origin) -> Result<()> {
        self.engine.enqueue_dead_letter(payload, origin).map(drop)
    }

    fn flush(&self) -> Result<()> {
        // For the committed tail it would wait for a producer.
        let flushed = self.engine.core.flush_for_tasks(None);
        self.engine.core.wake_owed();
        flushed
    }

    fn check(&self) -> Result<()> {
        self.engine.core.check_not_forked()
    }

    fn id(&self) -> usize {
        self.engine.id()
    }

    fn dead_letters(&self) -> Vec<Arc<dyn DeadLetters>> {
        self.engine.dead_letters()
    }
}
