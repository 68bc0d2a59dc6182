//! A named place in the queue.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::Read;
use crate::delivery::{self, Delivery};
use crate::engine::Engine;
use crate::engine::ahead::Ahead;
use crate::engine::reading;
use crate::error::{Error, Gap, Result};
use crate::format::MAX_NAME_LEN;
use crate::iter::Iter;
use crate::lanes::{LaneOptions, Lanes};
use crate::message::Message;
use crate::redelivery::Redelivery;
use crate::stats::ConsumerStats;
use crate::storage::{FileStorage, Storage};

/// A consumer with a name and a place of its own: [`Queue::consumer`](crate::Queue::consumer).
///
/// Handles of the same consumer, in any number of threads, share its place: each message goes to
/// exactly one of them. Consumers of different names each see every message. The queue gives space
/// back when the slowest consumer has passed it.
///
/// A consumer does not keep its [`Queue`](crate::Queue) open. Once the queue is closed or dropped,
/// every call on the consumer answers [`Error::Closed`], also a call that waits at that moment.
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

impl Consumer {
    pub(crate) fn new(
        engine: Arc<Engine<FileStorage>>,
        consumer: Arc<ConsumerState<FileStorage>>,
    ) -> Consumer {
        Consumer { engine, consumer }
    }

    /// The consumer's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.consumer.name()
    }

    #[cfg(any(feature = "capi", feature = "forward"))]
    pub(crate) fn parts(&self) -> (&Arc<Engine<FileStorage>>, &Arc<ConsumerState<FileStorage>>) {
        (&self.engine, &self.consumer)
    }

    /// The next message, which stays in the queue; `None` when there is none.
    ///
    /// # Errors
    ///
    /// As [`Queue::peek`](crate::Queue::peek); [`Error::NotFound`] once the consumer was removed.
    #[inline]
    pub fn peek(&self) -> Result<Option<Message>> {
        reading::next(&self.engine, &self.consumer, Read::Look)
    }

    /// Takes the next message; `None` when there is none.
    ///
    /// # Durability
    ///
    /// As [`Queue::dequeue`](crate::Queue::dequeue).
    ///
    /// # Errors
    ///
    /// As [`Queue::dequeue`](crate::Queue::dequeue); [`Error::NotFound`] once the consumer was
    /// removed.
    #[inline]
    pub fn dequeue(&self) -> Result<Option<Message>> {
        reading::next(&self.engine, &self.consumer, Read::Take)
    }

    /// As [`Queue::peek_into`](crate::Queue::peek_into).
    ///
    /// # Errors
    ///
    /// As [`peek`](Self::peek).
    #[inline]
    pub fn peek_into(&self, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
        reading::next_into(&self.engine, &self.consumer, Read::Look, buffer)
    }

    /// As [`Queue::dequeue_into`](crate::Queue::dequeue_into).
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn dequeue_into(&self, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
        reading::next_into(&self.engine, &self.consumer, Read::Take, buffer)
    }

    /// As [`Queue::dequeue_batch`](crate::Queue::dequeue_batch).
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    pub fn dequeue_batch(&self, max: usize) -> Result<Vec<Message>> {
        reading::batch(&self.engine, &self.consumer, max)
    }

    /// As [`Queue::dequeue_timeout`](crate::Queue::dequeue_timeout).
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue); [`Error::Closed`] when the queue is closed meanwhile.
    pub fn dequeue_timeout(&self, timeout: Duration) -> Result<Option<Message>> {
        reading::next_waiting(&self.engine, &self.consumer, timeout)
    }

    /// As [`Queue::skip`](crate::Queue::skip).
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn skip(&self) -> Result<Option<u64>> {
        reading::skip(&self.engine, &self.consumer)
    }

    /// Hands out the next message, to be [acknowledged](Delivery::ack) when its work is done.
    /// `None` when there is no message, or when [as many as allowed](Self::set_max_in_flight) are
    /// in flight.
    ///
    /// Messages that were given back come first, the oldest before the others. The stored place
    /// stays before the first message that is not acknowledged, and the queue keeps the segments
    /// from there on. A gap counts as acknowledged once a read reported it.
    ///
    /// The other reading methods may be used beside `receive`: `dequeue` is `receive` and `ack` at
    /// once (the limit does not apply to it); `peek` and `skip` look at and take the message that
    /// `dequeue` would take. All three pass over messages in flight.
    ///
    /// # Durability
    ///
    /// Nothing is stored before the acknowledgement, except how often the message was handed out
    /// where [`set_redelivery`](Self::set_redelivery) asks for it: if the process dies or the queue
    /// is closed first, the message comes again.
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn receive(&self) -> Result<Option<Delivery>> {
        delivery::receive(&self.engine, &self.consumer)
    }

    /// Calls `work` with each message and acknowledges the message when `work` returns `Ok`, until
    /// no message is left to hand out: at-least-once work. Each gap goes to `on_gap`, in its place,
    /// and the messages behind it still come.
    ///
    /// When `work` fails or panics, the message goes back to the front of the line, and the call
    /// ends with the error or the panic. The messages before it are done; this one and those behind
    /// it still wait. A message on which `work` fails every time blocks the line until it is taken
    /// out: by [`dequeue`](Self::dequeue) or [`skip`](Self::skip), or by a `work` that looks at
    /// [`attempts`](Delivery::attempts) and returns `Ok` in the end.
    ///
    /// Several threads may call this for the same consumer and share its messages. The call does
    /// not wait: neither for messages that other threads have in flight, nor for the limit of
    /// [`set_max_in_flight`](Self::set_max_in_flight) to allow another one. To wait for messages,
    /// or to acknowledge later, use [`receive_timeout`](Self::receive_timeout) with
    /// [`past_gaps`](crate::past_gaps).
    ///
    /// # Errors
    ///
    /// Those of `work`. Those of [`receive`](Self::receive), except [`Error::Gap`], and of
    /// [`ack`](Delivery::ack), converted into the error type of `work`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// let workers = queue.consumer("workers")?;
    /// queue.enqueue("7")?;
    /// queue.enqueue("not a number")?;
    /// queue.enqueue("8")?;
    /// let mut sum = 0;
    /// let outcome = workers.for_each(|job| add(&mut sum, job), |gap| eprintln!("{gap}"));
    /// assert!(outcome.is_err());
    /// assert_eq!((sum, workers.len()), (7, 2)); // the first one is done, the other two wait
    /// # Ok(())
    /// # }
    ///
    /// fn add(sum: &mut u64, job: &mmq::Delivery) -> Result<(), Box<dyn std::error::Error>> {
    ///     *sum += job.as_str()?.parse::<u64>()?;
    ///     Ok(())
    /// }
    /// ```
    pub fn for_each<E: From<Error>>(
        &self,
        work: impl FnMut(&Delivery) -> Result<(), E>,
        on_gap: impl FnMut(Gap),
    ) -> Result<(), E> {
        delivery::for_each(&self.engine, &self.consumer, work, on_gap)
    }

    /// As [`receive`](Self::receive), but waits up to `timeout`: for a message, and until fewer
    /// messages than [allowed](Self::set_max_in_flight) are in flight. Does not poll.
    ///
    /// # Errors
    ///
    /// As [`dequeue_timeout`](Self::dequeue_timeout).
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Delivery>> {
        delivery::receive_waiting(&self.engine, &self.consumer, timeout)
    }

    /// Sets how many messages may be in flight (received, neither acknowledged nor given back) at a
    /// time, over all handles of this consumer. `None`: no limit. The limit is not stored: every
    /// opening begins with none.
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

    /// Reads this consumer in two lanes from now on: fresh messages first, and beside them what is
    /// no longer fresh. See [`Lanes`]. Called again, it changes how, and nothing else.
    ///
    /// With [`Fresh::Age`](crate::Fresh::Age) each enqueue takes the time from now on, and the
    /// queue begins a new segment each eighth of that age, until it is closed.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for an age below a millisecond, for 0 messages, a share of 0 to
    /// 0, and a rate of 0. [`Error::NotFound`] once the consumer was removed, [`Error::Closed`],
    /// and [`Error::Io`] when what an earlier run left behind cannot be looked for.
    pub fn lanes(&self, options: LaneOptions) -> Result<Lanes> {
        Lanes::open(&self.engine, &self.consumer, &options)
    }

    /// How many messages are in flight: received, neither acknowledged nor given back.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.consumer.in_flight(&self.engine.core)
    }

    /// A descriptor for `poll`, `epoll` or `kqueue`. It is readable while a message or an
    /// unreported gap waits for this consumer, and once the queue is closed. The first call makes
    /// it. Do not read from it or write to it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the system has no descriptor left, [`Error::Closed`].
    pub fn ready_fd(&self) -> Result<BorrowedFd<'_>> {
        self.engine.ready_fd(&self.consumer)
    }

    /// A future that takes the next message. It waits without a thread, on any executor.
    ///
    /// Dropping the future before it is done changes nothing.
    ///
    /// # Errors
    ///
    /// The future yields those of [`dequeue`](Self::dequeue), and [`Error::Closed`] when the queue
    /// is closed meanwhile.
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn recv(&self) -> crate::Recv {
        crate::Recv::new(Ok((Arc::clone(&self.engine), Arc::clone(&self.consumer))))
    }

    /// A future of the next delivery: as [`receive`](Self::receive), but waits.
    ///
    /// # Errors
    ///
    /// The future yields those of [`recv`](Self::recv).
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn recv_delivery(&self) -> crate::RecvDelivery {
        crate::RecvDelivery::new(Ok((Arc::clone(&self.engine), Arc::clone(&self.consumer))))
    }

    /// A stream that takes all messages from the next one on.
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn messages(&self) -> crate::Messages {
        crate::Messages::new(Ok((Arc::clone(&self.engine), Arc::clone(&self.consumer))))
    }

    /// A stream that [receives](Self::receive) all messages from the next one on.
    ///
    /// ```
    /// use futures_core::Stream;
    /// use std::{future::poll_fn, pin::Pin};
    ///
    /// async fn work(workers: mmq::Consumer) -> mmq::Result<()> {
    ///     let mut jobs = workers.deliveries();
    ///     // (With the crate `futures`: `jobs.next().await`.)
    ///     while let Some(job) = poll_fn(|context| Pin::new(&mut jobs).poll_next(context)).await {
    ///         match job {
    ///             Ok(job) => {
    ///                 println!("{:?}", job.as_str());
    ///                 job.ack()?;
    ///             }
    ///             Err(mmq::Error::Gap(gap)) => eprintln!("{gap}"),
    ///             Err(mmq::Error::Closed) => break,
    ///             Err(error) => return Err(error),
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn deliveries(&self) -> crate::Deliveries {
        crate::Deliveries::new(Ok((Arc::clone(&self.engine), Arc::clone(&self.consumer))))
    }

    /// As [`Queue::iter`](crate::Queue::iter).
    pub fn iter(&self) -> Iter {
        Iter::new(Ahead::new(&self.engine, &self.consumer))
    }

    /// How many messages wait for this consumer: those it has neither taken nor acknowledged,
    /// messages in flight included.
    ///
    /// As exact as [`Queue::len`](crate::Queue::len).
    #[must_use]
    pub fn len(&self) -> u64 {
        self.consumer.len(&self.engine.core)
    }

    /// Whether no message waits for this consumer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Figures of this consumer, read one by one while other threads go on.
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

/// Refuses a name that is not 1 to 255 bytes of UTF-8.
pub(crate) fn check_name(queue: &Path, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME_LEN {
        let reason = format!("{} bytes long: 1 to {MAX_NAME_LEN} are allowed", name.len());
        return Err(Error::invalid_argument(queue, "consumer name", reason));
    }
    Ok(())
}
