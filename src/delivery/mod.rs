//! A message that was handed out and not yet acknowledged; `handing_out` makes them.

pub(crate) mod handing_out;

use std::fmt;
use std::ops::Deref;
use std::str::Utf8Error;
use std::sync::Arc;
use std::time::Duration;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::DeliveryToken;
use crate::engine::Engine;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::format::Origin;
use crate::message::Message;
use crate::share::remote_delivery::RemoteDelivery;
use crate::storage::FileStorage;

/// A message that waits for its acknowledgement, from
/// [`Consumer::receive`](crate::Consumer::receive): the consumer's stored place does not pass it
/// before [`ack`](Self::ack).
///
/// Dropping it unacknowledged, in a panic too, [gives it back](Self::nack): the message comes
/// again, before any other. (With a [backoff](crate::Redelivery::backoff) it comes again later, and
/// after its [last attempt](crate::Redelivery::max_attempts) it comes no more.) When the process
/// dies, every message that was not acknowledged comes again after the next opening.
///
/// Deliveries may be acknowledged in any order and from any thread. Like a [`Message`], a delivery
/// pins its arena and no lock.
///
/// ```
/// # fn main() -> mmq::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let queue = mmq::Queue::open(dir.path())?;
/// queue.enqueue("resize picture 7")?;
/// let workers = queue.consumer("workers")?;
///
/// let job = workers.receive()?.expect("there is one");
/// assert_eq!(&job[..], b"resize picture 7");
/// drop(job); // the work was not done
///
/// let job = workers.receive()?.expect("it comes again");
/// assert_eq!(job.attempts(), 2);
/// job.ack()?;
/// assert!(workers.receive()?.is_none());
/// # Ok(())
/// # }
/// ```
#[must_use = "a delivery that is dropped goes back to the queue"]
pub struct Delivery {
    message: Message,
    handed: DeliveryToken,
    /// `None` once the delivery was acknowledged or given back.
    receiver: Option<Receiver>,
}

/// Where an acknowledgement goes.
#[derive(Debug)]
enum Receiver {
    /// The queue, and the consumer that received the message.
    Here(Arc<Engine<FileStorage>>, Arc<ConsumerState<FileStorage>>),
    /// The owner of the queue, in another process.
    Owner(Box<RemoteDelivery>),
}

impl Delivery {
    /// Acknowledges the message: the work is done, and the message does not come again to this
    /// consumer.
    ///
    /// This changes nothing when the consumer was [moved](crate::Consumer::seek) after the message
    /// was handed out, or when the message was dropped or has expired meanwhile.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # queue.enqueue("resize picture 7")?;
    /// # let job = queue.receive()?.unwrap();
    /// println!("{:?}", job.as_str()); // does the work
    /// job.ack()?;
    /// assert!(queue.is_empty());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Durability
    ///
    /// As of a [dequeue](crate::Queue::dequeue): once the call has returned, the acknowledgement
    /// survives the death of the process, and once flushed, a power cut. It needs no disk space.
    ///
    /// Where an older message is still unacknowledged, the acknowledged numbers behind it are
    /// stored as ranges: for each consumer the lowest 22 at least (114 where they lie close
    /// together). Messages in further ranges come again after a crash, also when they were flushed.
    /// So do all messages acknowledged ahead of an older one by a consumer for which the index file
    /// has no row of ranges: six consumers have one, and the file cannot grow when the disk or
    /// `max_bytes` leaves no room.
    ///
    /// # Errors
    ///
    /// [`Error::Expired`] when the [lease](crate::Redelivery::lease) has ended: the message comes
    /// again, or has come to another worker. [`Error::Closed`] when the queue was closed: the
    /// message comes again after the next opening. [`Error::NotFound`] when the consumer was
    /// removed. Those of a flush that [`flush_every_ops`](crate::Options::flush_every_ops) asks
    /// for: the message is acknowledged all the same.
    pub fn ack(mut self) -> Result<()> {
        let seq = self.seq();
        // The arena is released first, so that the acknowledgement can give the segment back.
        self.message = Message::owned(seq, Vec::new());
        match self.receiver.take() {
            Some(Receiver::Here(engine, consumer)) => engine.ack(&consumer, seq, self.handed),
            Some(Receiver::Owner(owner)) => owner.ack(),
            None => Ok(()),
        }
    }

    /// Acknowledges many deliveries in one step, which is quicker than one by one. When the process
    /// dies meanwhile, some of them may come again. When `deliveries` panics, none is acknowledged:
    /// those that it has yielded are given back.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue_batch(["a", "b", "c"])?;
    /// let jobs = queue.receive_batch(100)?;
    /// jobs.iter().for_each(|job| println!("{:?}", job.as_str())); // does the work
    /// mmq::Delivery::ack_batch(jobs)?;
    /// assert!(queue.is_empty());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`ack`](Self::ack), whose durability it has: the first one. The other deliveries
    /// are acknowledged all the same, except where the queue was closed or the consumer removed.
    pub fn ack_batch(deliveries: impl IntoIterator<Item = Delivery>) -> Result<()> {
        // All are collected before the first loses its receiver: when the caller's iterator panics,
        // they are dropped, and so given back.
        Delivery::ack_all(deliveries.into_iter().collect())
    }

    fn ack_all(deliveries: Vec<Delivery>) -> Result<()> {
        let mut outcome = Ok(());
        let mut pending: Vec<(u64, DeliveryToken)> = Vec::new();
        let mut receiver: Option<(Arc<Engine<_>>, Arc<ConsumerState<_>>)> = None;
        let mut remote = Vec::new();
        for mut delivery in deliveries {
            let own = match delivery.receiver.take() {
                Some(Receiver::Here(engine, consumer)) => (engine, consumer),
                Some(Receiver::Owner(owner)) => {
                    remote.push(*owner);
                    continue;
                }
                None => continue,
            };
            if receiver.as_ref().is_none_or(|(_, consumer)| !Arc::ptr_eq(consumer, &own.1))
                && let Some((engine, consumer)) = receiver.replace(own)
            {
                outcome = outcome.and(engine.ack_batch(&consumer, &std::mem::take(&mut pending)));
            }
            pending.push((delivery.seq(), delivery.handed));
        }
        if let Some((engine, consumer)) = receiver {
            outcome = outcome.and(engine.ack_batch(&consumer, &pending));
        }
        outcome.and(RemoteDelivery::ack_all(remote))
    }

    /// Gives the message back: the work was not done, and the message goes to the front of the
    /// line, or comes again after the consumer's [backoff](crate::Redelivery::backoff). After the
    /// [last attempt](crate::Redelivery::max_attempts) it is [rejected](Self::reject) instead.
    /// Dropping the delivery does the same.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # queue.enqueue("resize picture 7")?;
    /// # let job = queue.receive()?.unwrap();
    /// job.nack();
    /// assert_eq!(queue.receive()?.unwrap().attempts(), 2);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub fn nack(self) {
        drop(self);
    }

    /// Gives the message back, to come again after `delay`. Other messages pass it meanwhile.
    ///
    /// The delay is not stored: after the next opening the message comes at once.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// use std::time::Duration;
    /// queue.enqueue_batch(["a", "b"])?;
    /// queue.receive()?.unwrap().nack_after(Duration::from_millis(20));
    /// assert_eq!(&queue.receive()?.unwrap()[..], b"b");
    /// # Ok(())
    /// # }
    /// ```
    pub fn nack_after(mut self, delay: Duration) {
        self.go_back(Some(delay));
    }

    /// Extends the [lease](crate::Redelivery::lease), for work that takes longer: it ends `by` from
    /// now. A delivery without a lease stays without.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # queue.enqueue("resize picture 7")?;
    /// # let job = queue.receive()?.unwrap();
    /// use std::time::Duration;
    ///
    /// for part in 0..3 {
    ///     job.extend(Duration::from_secs(60))?; // another minute for each part
    ///     println!("part {part}");
    /// }
    /// job.ack()?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Expired`] when the lease has ended already; those of [`ack`](Self::ack).
    pub fn extend(&self, by: Duration) -> Result<()> {
        match &self.receiver {
            Some(Receiver::Here(engine, consumer)) => {
                engine.extend(consumer, self.seq(), self.handed, by)
            }
            Some(Receiver::Owner(owner)) => owner.extend(by),
            None => Ok(()),
        }
    }

    /// Rejects the message: it comes no more. It goes to the consumer's [queue for dead
    /// letters](crate::Redelivery::dead_letters); without one it is given up, and the next read
    /// reports it as a [gap](crate::GapCause::Rejected).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # queue.enqueue("resize picture 7")?;
    /// # let job = queue.receive()?.unwrap();
    /// job.reject()?; // no try can help
    /// match queue.receive() {
    ///     Err(mmq::Error::Gap(gap)) => assert_eq!(gap.cause, mmq::GapCause::Rejected),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Durability
    ///
    /// As of an [acknowledgement](Self::ack). A dead letter is durable in the other queue before
    /// the message is acknowledged here. A message that has neither gone nor been reported when the
    /// queue is closed stays rejected for runs that set a redelivery; in others it comes again.
    /// (The first rejection counts as setting one: from then on the run has what earlier ones
    /// counted and rejected.)
    ///
    /// # Errors
    ///
    /// Those of [`ack`](Self::ack).
    pub fn reject(mut self) -> Result<()> {
        let seq = self.seq();
        self.message = Message::owned(seq, Vec::new());
        match self.receiver.take() {
            Some(Receiver::Here(engine, consumer)) => engine.reject(&consumer, seq, self.handed),
            Some(Receiver::Owner(owner)) => owner.reject(),
            None => Ok(()),
        }
    }
}

/// # The message
impl Delivery {
    /// Returns the message's sequence number.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # queue.enqueue("resize picture 7")?;
    /// # let job = queue.receive()?.unwrap();
    /// // A work that remembers the number with its result does nothing twice.
    /// println!("job {}", job.seq());
    /// # job.ack()?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.message.seq()
    }

    /// Returns the bytes as text.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # queue.enqueue("resize picture 7")?;
    /// # let job = queue.receive()?.unwrap();
    /// assert_eq!(job.as_str(), Ok("resize picture 7"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When they are not UTF-8.
    pub fn as_str(&self) -> Result<&str, Utf8Error> {
        self.message.as_str()
    }

    /// Returns how often the message was handed out since the queue was opened. The first delivery
    /// says 1.
    ///
    /// With a [redelivery](crate::Redelivery) set it counts over openings: how often the message
    /// was given back, or was in flight when the process died, and this time.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # queue.enqueue("resize picture 7")?;
    /// # let job = queue.receive()?.unwrap();
    /// match job.attempts() {
    ///     1..=4 => job.nack(), // try it again
    ///     _ => job.reject()?,
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.handed.attempts
    }

    /// Returns whether it comes from the backlog of [lanes](crate::Lanes): it was left behind, or
    /// handed out before the last jump.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let lanes = queue.consumer("link")?.lanes(mmq::LaneOptions::new())?;
    /// queue.enqueue("reading 17")?;
    /// lanes.jump()?;
    /// assert!(lanes.receive()?.expect("there is one").is_backlog());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn is_backlog(&self) -> bool {
        self.handed.is_backlog()
    }

    /// Returns where the message comes from, if it is a dead letter: [`Message::origin`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let dead_letters = queue;
    /// if let Some(letter) = dead_letters.receive()? {
    ///     if let Some(origin) = letter.origin() {
    ///         println!("message {} failed {} times", origin.seq, origin.attempts);
    ///     }
    ///     letter.ack()?;
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn origin(&self) -> Option<Origin> {
        self.message.origin()
    }
}

impl Delivery {
    pub(crate) fn new(
        message: Message,
        handed: DeliveryToken,
        engine: &Arc<Engine<FileStorage>>,
        consumer: &Arc<ConsumerState<FileStorage>>,
    ) -> Delivery {
        let (engine, consumer) = (Arc::clone(engine), Arc::clone(consumer));
        Delivery { message, handed, receiver: Some(Receiver::Here(engine, consumer)) }
    }

    /// A delivery by the owner of the queue, in another process.
    pub(crate) fn of_owner(message: Message, attempts: u32, owner: RemoteDelivery) -> Delivery {
        let handed = DeliveryToken::new(attempts, 0, 0);
        Delivery { message, handed, receiver: Some(Receiver::Owner(Box::new(owner))) }
    }

    /// Gives up the bytes, and with them the memory of the queue that they may lie in.
    pub(crate) fn release_bytes(&mut self) {
        self.message = Message::owned(self.seq(), Vec::new());
    }

    fn go_back(&mut self, delay: Option<Duration>) {
        match self.receiver.take() {
            Some(Receiver::Here(engine, consumer)) => {
                let (seq, handed) = (self.seq(), self.handed);
                self.message = Message::owned(seq, Vec::new());
                engine.nack(&consumer, seq, handed, delay);
            }
            Some(Receiver::Owner(owner)) => owner.nack(delay),
            None => {}
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.go_back(None);
    }
}

impl Deref for Delivery {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.message
    }
}

impl AsRef<[u8]> for Delivery {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

/// Shows the number, the length and the attempts, never the bytes: they may be secret or long.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("seq", &self.seq())
            .field("len", &self.len())
            .field("attempts", &self.handed.attempts)
            .finish()
    }
}
