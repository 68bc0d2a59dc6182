//! The queue's own reads, through its default consumer.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::consume::step::Read;
#[cfg(doc)]
use crate::consumer::Consumer;
use crate::delivery::{Delivery, handing_out};
use crate::engine::ahead::Ahead;
use crate::engine::reading;
use crate::error::{Error, Gap, Result};
use crate::iter::Iter;
use crate::message::Message;
use crate::message_batch::MessageBatch;
use crate::queue::Queue;
use crate::redelivery::Redelivery;

/// # More ways to read
///
/// These calls, like [`dequeue`](Self::dequeue) and [`peek`](Self::peek), read through the queue's
/// default consumer, which has no name. The first read creates it; [`iter`](Self::iter) does not.
impl Queue {
    /// Takes the next message, and waits for one up to `timeout`; `None` when none arrived. Does
    /// not poll.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// use std::time::Duration;
    ///
    /// match queue.dequeue_timeout(Duration::from_millis(10))? {
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
        reading::next_waiting(&self.engine, self.engine.default_consumer()?, timeout)
    }

    /// Takes up to `max` messages, without waiting for more to arrive: quicker than one by one. The
    /// call stores the consumer's place once, at its end: a process that dies before gets all of
    /// them again. Where another thread waits for the
    /// consumer, the call may return fewer messages than there are.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue_batch(["a", "b", "c"])?;
    /// let messages = queue.dequeue_batch(100)?;
    /// assert_eq!((messages.len(), messages[2].as_str()), (3, Ok("c")));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue), when no message was taken. A gap behind the first message is
    /// returned by the next call, and so is any other error there.
    pub fn dequeue_batch(&self, max: usize) -> Result<Vec<Message>> {
        reading::batch(&self.engine, self.engine.default_consumer_state(), max)
    }

    /// Takes up to `max` messages as [`dequeue_batch`](Self::dequeue_batch) does, and copies them
    /// into `batch`, replacing its content; returns how many. The quickest way to take short
    /// messages: it allocates nothing once the batch is large enough.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let mut sum = 0;
    /// let mut batch = mmq::MessageBatch::new();
    /// queue.enqueue_batch(["a", "bc"])?;
    /// while queue.dequeue_batch_into(&mut batch, 64)? != 0 {
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
        reading::batch_into(&self.engine, self.engine.default_consumer_state(), batch, max)
    }

    /// Takes the next message and copies it into a buffer, replacing its content; returns the
    /// sequence number. Allocates nothing once the buffer is large enough. After an error the
    /// buffer may be empty.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// let mut buffer = Vec::with_capacity(1024);
    /// assert_eq!(queue.dequeue_into(&mut buffer)?, Some(0));
    /// assert_eq!(queue.dequeue_into(&mut buffer)?, Some(1));
    /// assert_eq!(buffer, b"b");
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn dequeue_into(&self, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
        reading::next_into(&self.engine, self.engine.default_consumer_state(), Read::Take, buffer)
    }

    /// Copies the next message, which stays in the queue, into a buffer, replacing its content;
    /// returns the sequence number. Allocates nothing once the buffer is large enough. After an
    /// error the buffer may be empty.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue("a message")?;
    /// let mut buffer = Vec::with_capacity(1024);
    /// assert_eq!(queue.peek_into(&mut buffer)?, Some(0));
    /// assert_eq!((&buffer[..], queue.len()), (&b"a message"[..], 1));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`peek`](Self::peek).
    #[inline]
    pub fn peek_into(&self, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
        reading::next_into(&self.engine, self.engine.default_consumer_state(), Read::Look, buffer)
    }

    /// Skips the next message and returns its sequence number. Neither reads nor checks the
    /// payload.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue_batch(["unwanted", "wanted"])?;
    /// assert_eq!(queue.skip()?, Some(0));
    /// assert_eq!(queue.dequeue()?.unwrap().as_str(), Ok("wanted"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn skip(&self) -> Result<Option<u64>> {
        reading::skip(&self.engine, self.engine.default_consumer_state())
    }

    /// Returns an iterator over the messages from the next one on, which consumes nothing. It
    /// returns `None` at the end of the queue; a later call continues with new messages. It returns
    /// gaps as errors between the messages; [`Iter::past_gaps`] removes them. Before the default
    /// consumer's first read it begins at the oldest message in the queue. It keeps no message in
    /// the queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// for message in queue.iter().past_gaps(|gap| eprintln!("{gap}")) {
    ///     println!("{:?}", message?.as_str());
    /// }
    /// assert_eq!(queue.len(), 2); // both are still there
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], and [`Error::Io`] from the files.
    pub fn iter(&self) -> Iter {
        Iter::new(Ahead::new(&self.engine, self.engine.default_consumer_state()))
    }
}

/// # At-least-once work
impl Queue {
    /// Delivers the next message, which the program [acknowledges](Delivery::ack) when its work is
    /// done: [`Consumer::receive`](Consumer::receive) for the queue's own (default) consumer.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue("resize picture 7")?;
    /// if let Some(job) = queue.receive()? {
    ///     println!("{:?}", job.as_str()); // does the work
    ///     job.ack()?; // dropped without this, the message comes again
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn receive(&self) -> Result<Option<Delivery>> {
        handing_out::receive(&self.engine, self.engine.default_consumer_state())
    }

    /// Delivers up to `max` messages, without waiting for more to arrive: as many calls of
    /// [`receive`](Self::receive), in one step. [`Delivery::ack_batch`] acknowledges them in one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue_batch(["a", "b", "c"])?;
    /// for job in queue.receive_batch(2)? {
    ///     println!("{:?}", job.as_str()); // does the work
    ///     job.ack()?;
    /// }
    /// assert_eq!(queue.len(), 1);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive), when no message was delivered. A gap behind the first message
    /// is returned by the next call, and so is any other error there.
    pub fn receive_batch(&self, max: usize) -> Result<Vec<Delivery>> {
        handing_out::receive_batch(&self.engine, self.engine.default_consumer_state(), max)
    }

    /// Delivers the next message, and waits for one up to `timeout` (see
    /// [`receive`](Self::receive)). Does not poll.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// use std::time::Duration;
    ///
    /// if let Some(job) = queue.receive_timeout(Duration::from_millis(10))? {
    ///     println!("{:?}", job.as_str());
    ///     job.ack()?;
    /// }
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`dequeue_timeout`](Self::dequeue_timeout).
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Delivery>> {
        handing_out::receive_waiting(&self.engine, self.engine.default_consumer()?, timeout)
    }

    /// Calls `work` with each message and acknowledges the message when `work` returns `Ok`:
    /// [`Consumer::for_each`](Consumer::for_each) for the queue's own (default) consumer.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue("a letter")?;
    /// queue.for_each(|letter| send(letter), |gap| eprintln!("{gap}"))?;
    /// assert!(queue.is_empty());
    /// # Ok(())
    /// # }
    ///
    /// fn send(letter: &[u8]) -> std::io::Result<()> {
    ///     println!("{}", String::from_utf8_lossy(letter));
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Consumer::for_each`](Consumer::for_each).
    pub fn for_each<E: From<Error>>(
        &self,
        work: impl FnMut(&Delivery) -> Result<(), E>,
        on_gap: impl FnMut(Gap),
    ) -> Result<(), E> {
        handing_out::for_each(&self.engine, self.engine.default_consumer()?, work, on_gap)
    }

    /// Sets how many messages of the queue's own (default) consumer may be in flight at a time:
    /// [`Consumer::set_max_in_flight`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.set_max_in_flight(1)?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// let job = queue.receive()?.expect("there is one");
    /// assert!(queue.receive()?.is_none()); // as long as that one is in flight
    /// job.ack()?;
    /// assert!(queue.receive()?.is_some());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for 0, [`Error::Io`] when the default consumer cannot be made.
    pub fn set_max_in_flight(&self, messages: impl Into<Option<u32>>) -> Result<()> {
        self.engine.set_max_in_flight(self.engine.default_consumer()?, messages.into())
    }

    /// Sets when the queue's own (default) consumer receives messages again that it did not
    /// acknowledge: [`Consumer::set_redelivery`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// use std::time::Duration;
    ///
    /// let lease = Duration::from_secs(60);
    /// queue.set_redelivery(mmq::Redelivery::new().lease(lease).max_attempts(5))?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Consumer::set_redelivery`], and [`Error::Io`] when the default consumer cannot be
    /// made.
    pub fn set_redelivery(&self, redelivery: Redelivery) -> Result<()> {
        let rules = redelivery.rules(&self.engine)?;
        self.engine.set_redelivery(self.engine.default_consumer()?, rules)
    }

    /// Returns how many messages of the queue's own (default) consumer are in flight:
    /// [`Consumer::in_flight`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue("resize picture 7")?;
    /// let job = queue.receive()?.expect("there is one");
    /// assert_eq!(queue.in_flight(), 1);
    /// job.ack()?;
    /// assert_eq!(queue.in_flight(), 0);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.engine.in_flight()
    }
}

/// # Waiting in threads and event loops
impl Queue {
    /// Returns a descriptor that is readable while a message or an unreported gap waits for the
    /// queue's own (default) consumer, and once the queue is closed: see [`Consumer::ready_fd`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// use rustix::event::{PollFd, PollFlags, poll};
    ///
    /// queue.enqueue("a message")?;
    /// // With the descriptors of sockets, as a rule.
    /// let mut ready = [PollFd::from_borrowed_fd(queue.ready_fd()?, PollFlags::IN)];
    /// poll(&mut ready, None).unwrap();
    /// assert!(ready[0].revents().contains(PollFlags::IN));
    /// assert!(queue.dequeue()?.is_some());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Consumer::ready_fd`].
    pub fn ready_fd(&self) -> Result<BorrowedFd<'_>> {
        self.engine.ready_fd(self.engine.default_consumer_state())
    }

    /// Ends all waits, and leaves the queue open: every waiting call that began before this one
    /// returns [`Error::Interrupted`]. A call that begins later waits again.
    ///
    /// It ends the waits of readers (with a timeout, or by a future or stream, which the program
    /// may poll again), of producers ([`OnFull::Wait`](crate::OnFull::Wait)) and of
    /// [`wait_durable`](Self::wait_durable); descriptors become readable. No message is lost: one
    /// that arrives at the same time stays for the next read. The call does not affect a thread
    /// that has not begun to wait, so set the flag that tells it to stop first.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::time::Duration;
    ///
    /// let queue = mmq::Queue::open(dir.path())?;
    /// let (stop, stopped) = (AtomicBool::new(false), AtomicBool::new(false));
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         while !stop.load(Ordering::SeqCst) {
    ///             match queue.dequeue_timeout(Duration::MAX) {
    ///                 Ok(Some(message)) => println!("{:?}", message.as_str()),
    ///                 Ok(None) | Err(mmq::Error::Interrupted) => {}
    ///                 Err(error) => eprintln!("{error}"),
    ///             }
    ///         }
    ///         stopped.store(true, Ordering::SeqCst);
    ///     });
    ///     stop.store(true, Ordering::SeqCst);
    ///     // The thread may be between its look at the flag and its wait: once may be too early.
    ///     while !stopped.load(Ordering::SeqCst) {
    ///         queue.interrupt();
    ///         std::thread::sleep(Duration::from_millis(1));
    ///     }
    /// });
    /// # queue.close()
    /// # }
    /// ```
    pub fn interrupt(&self) {
        self.engine.core.interrupt();
    }
}
