//! A consumer's reads: first on the page of [`Consumer`] what most programs call.

use std::time::Duration;

use super::Consumer;
use crate::consume::step::Read;
use crate::delivery::{Delivery, handing_out};
use crate::engine::ahead::Ahead;
use crate::engine::reading;
use crate::error::{Error, Gap, Result};
use crate::iter::Iter;
use crate::message::Message;
use crate::message_batch::MessageBatch;

impl Consumer {
    /// Takes the next message; `None` when there is none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// let audit = queue.consumer("audit")?;
    /// queue.enqueue("a message")?;
    /// assert_eq!(workers.dequeue()?.unwrap().as_str(), Ok("a message"));
    /// assert!(workers.dequeue()?.is_none()); // empty is no error
    /// assert_eq!(audit.len(), 1); // the other consumer has yet to read it
    /// # Ok::<(), mmq::Error>(())
    /// ```
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

    /// Returns the next message, which stays in the queue; `None` when there is none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// queue.enqueue("a message")?;
    /// assert_eq!(workers.peek()?.unwrap().as_str(), Ok("a message"));
    /// assert_eq!(workers.len(), 1); // it is still there
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Queue::peek`](crate::Queue::peek); [`Error::NotFound`] once the consumer was removed.
    #[inline]
    pub fn peek(&self) -> Result<Option<Message>> {
        reading::next(&self.engine, &self.consumer, Read::Look)
    }

    /// Delivers the next message, which the program [acknowledges](Delivery::ack) when its work is
    /// done. `None` when there is no message, or when [as many as allowed](Self::set_max_in_flight)
    /// are in flight.
    ///
    /// Messages that were given back come first, the oldest before the others. The stored place
    /// stays before the first message that is not acknowledged, and the queue keeps the segments
    /// from there on. A gap counts as acknowledged once a read reported it.
    ///
    /// The other reading methods may be used beside `receive`: `dequeue` is `receive` and `ack` at
    /// once (the limit does not apply to it); `peek` and `skip` look at and take the message that
    /// `dequeue` would take. All three pass over messages in flight.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// queue.enqueue("resize picture 7")?;
    /// if let Some(job) = workers.receive()? {
    ///     println!("{:?}, attempt {}", job.as_str(), job.attempts()); // does the work
    ///     job.ack()?; // dropped without this, the message comes again
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
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
        handing_out::receive(&self.engine, &self.consumer)
    }

    /// Delivers up to `max` messages, without waiting for more to arrive: as many calls of
    /// [`receive`](Self::receive), in one step. [`Delivery::ack_batch`] acknowledges them in one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// queue.enqueue_batch(["a", "b", "c"])?;
    /// for job in workers.receive_batch(2)? {
    ///     println!("{:?}", job.as_str()); // does the work
    ///     job.ack()?;
    /// }
    /// assert_eq!(workers.len(), 1);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive), when no message was delivered. A gap behind the first message
    /// is returned by the next call, and so is any other error there.
    pub fn receive_batch(&self, max: usize) -> Result<Vec<Delivery>> {
        handing_out::receive_batch(&self.engine, &self.consumer, max)
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
    ///
    /// # Errors
    ///
    /// Those of `work`. Those of [`receive`](Self::receive), except [`Error::Gap`], and of
    /// [`ack`](Delivery::ack), converted into the error type of `work`.
    pub fn for_each<E: From<Error>>(
        &self,
        work: impl FnMut(&Delivery) -> Result<(), E>,
        on_gap: impl FnMut(Gap),
    ) -> Result<(), E> {
        handing_out::for_each(&self.engine, &self.consumer, work, on_gap)
    }
}

/// # More ways to read
impl Consumer {
    /// Takes the next message, and waits for one up to `timeout`: as
    /// [`Queue::dequeue_timeout`](crate::Queue::dequeue_timeout).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// use std::time::Duration;
    ///
    /// match workers.dequeue_timeout(Duration::from_millis(10))? {
    ///     Some(message) => println!("{:?}", message.as_str()),
    ///     None => println!("nothing came in ten milliseconds"),
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue); [`Error::Closed`] when the queue is closed meanwhile.
    pub fn dequeue_timeout(&self, timeout: Duration) -> Result<Option<Message>> {
        reading::next_waiting(&self.engine, &self.consumer, timeout)
    }

    /// Delivers the next message (see [`receive`](Self::receive)), and waits up to `timeout`: for a
    /// message, and until fewer messages than [allowed](Self::set_max_in_flight) are in flight.
    /// Does not poll.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// use std::time::Duration;
    ///
    /// let wait = Duration::from_millis(10);
    /// let received = mmq::past_gaps(|| workers.receive_timeout(wait), |gap| eprintln!("{gap}"))?;
    /// if let Some(job) = received {
    ///     job.ack()?;
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`dequeue_timeout`](Self::dequeue_timeout).
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Delivery>> {
        handing_out::receive_waiting(&self.engine, &self.consumer, timeout)
    }

    /// Takes up to `max` messages without waiting for more to arrive: as
    /// [`Queue::dequeue_batch`](crate::Queue::dequeue_batch).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// queue.enqueue_batch(["a", "b", "c"])?;
    /// let messages = workers.dequeue_batch(2)?;
    /// assert_eq!((messages.len(), workers.len()), (2, 1));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    pub fn dequeue_batch(&self, max: usize) -> Result<Vec<Message>> {
        reading::batch(&self.engine, &self.consumer, max)
    }

    /// Takes up to `max` messages as [`dequeue_batch`](Self::dequeue_batch) does, and copies them
    /// into `batch`, replacing its content; returns how many. The quickest way to take short
    /// messages: it allocates nothing once the batch is large enough.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// # let mut sum = 0;
    /// let mut batch = mmq::MessageBatch::new();
    /// queue.enqueue_batch(["a", "bc"])?;
    /// while workers.dequeue_batch_into(&mut batch, 64)? != 0 {
    ///     sum += batch.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    /// }
    /// assert_eq!(sum, 3);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`dequeue_batch`](Self::dequeue_batch). The batch is empty then.
    pub fn dequeue_batch_into(&self, batch: &mut MessageBatch, max: usize) -> Result<usize> {
        reading::batch_into(&self.engine, &self.consumer, batch, max)
    }

    /// Takes the next message and copies it into a buffer: as
    /// [`Queue::dequeue_into`](crate::Queue::dequeue_into).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// queue.enqueue("a message")?;
    /// let mut buffer = Vec::with_capacity(1024);
    /// assert_eq!(workers.dequeue_into(&mut buffer)?, Some(0));
    /// assert_eq!(buffer, b"a message");
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn dequeue_into(&self, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
        reading::next_into(&self.engine, &self.consumer, Read::Take, buffer)
    }

    /// Copies the next message, which stays in the queue, into a buffer: as
    /// [`Queue::peek_into`](crate::Queue::peek_into).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// queue.enqueue("a message")?;
    /// let mut buffer = Vec::with_capacity(1024);
    /// assert_eq!(workers.peek_into(&mut buffer)?, Some(0));
    /// assert_eq!((&buffer[..], workers.len()), (&b"a message"[..], 1));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`peek`](Self::peek).
    #[inline]
    pub fn peek_into(&self, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
        reading::next_into(&self.engine, &self.consumer, Read::Look, buffer)
    }

    /// Skips the next message and returns its sequence number: as
    /// [`Queue::skip`](crate::Queue::skip).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// queue.enqueue_batch(["unwanted", "wanted"])?;
    /// assert_eq!(workers.skip()?, Some(0));
    /// assert_eq!(workers.dequeue()?.unwrap().as_str(), Ok("wanted"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn skip(&self) -> Result<Option<u64>> {
        reading::skip(&self.engine, &self.consumer)
    }

    /// Returns an iterator over the messages from the next one on, which consumes nothing: as
    /// [`Queue::iter`](crate::Queue::iter).
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// for message in workers.iter().past_gaps(|gap| eprintln!("{gap}")) {
    ///     println!("{:?}", message?.as_str());
    /// }
    /// assert_eq!(workers.len(), 2); // both are still there
    /// # Ok::<(), mmq::Error>(())
    /// ```
    pub fn iter(&self) -> Iter {
        Iter::new(Ahead::new(&self.engine, &self.consumer))
    }
}
