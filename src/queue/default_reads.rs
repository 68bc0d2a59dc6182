//! The queue's own reads, through its default consumer.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::consume::step::Read;
use crate::consumer::{Consumer, check_name};
use crate::delivery::{self, Delivery};
use crate::engine::ahead::Ahead;
use crate::engine::reading;
use crate::error::{Error, Gap, Result};
use crate::iter::Iter;
use crate::message::Message;
use crate::queue::Queue;
use crate::redelivery::Redelivery;

impl Queue {
    /// Returns the next message, which stays in the queue; `None` when there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Gap`], once, when messages are missing here: the next call continues behind them.
    /// [`Error::Io`].
    #[inline]
    #[doc(alias = "PeekString")]
    pub fn peek(&self) -> Result<Option<Message>> {
        reading::next(&self.engine, self.engine.default_consumer()?, Read::Look)
    }

    /// Takes the next message; `None` when there is none.
    ///
    /// # Durability
    ///
    /// After the death of the process no read returns the message again. After a power cut, reads
    /// may return messages again that were taken since the last flush.
    ///
    /// # Errors
    ///
    /// [`Error::Gap`], once, when messages are missing here: the next call continues behind them. A
    /// loop that ends with `?` at a gap leaves the rest unread: see
    /// [`past_gaps`](crate::past_gaps). [`Error::Io`].
    #[inline]
    #[doc(alias = "DequeueString")]
    pub fn dequeue(&self) -> Result<Option<Message>> {
        reading::next(&self.engine, self.engine.default_consumer()?, Read::Take)
    }

    /// Copies the next message, which stays in the queue, into a buffer, replacing its content;
    /// returns the sequence number. Allocates nothing once the buffer is large enough. After an
    /// error the buffer may be empty.
    ///
    /// # Errors
    ///
    /// As [`peek`](Self::peek).
    #[inline]
    pub fn peek_into(&self, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
        reading::next_into(&self.engine, self.engine.default_consumer()?, Read::Look, buffer)
    }

    /// Takes the next message and copies it into a buffer, replacing its content; returns the
    /// sequence number. Allocates nothing once the buffer is large enough. After an error the
    /// buffer may be empty.
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn dequeue_into(&self, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
        reading::next_into(&self.engine, self.engine.default_consumer()?, Read::Take, buffer)
    }

    /// Takes up to `max` messages without waiting for more to arrive.
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue), when no message was taken. The next call returns an error
    /// behind the first message.
    pub fn dequeue_batch(&self, max: usize) -> Result<Vec<Message>> {
        reading::batch(&self.engine, self.engine.default_consumer()?, max)
    }

    /// Takes the next message, and waits for one up to `timeout`; `None` when none arrived. Does
    /// not poll.
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue); [`Error::Closed`] when the queue is closed meanwhile.
    pub fn dequeue_timeout(&self, timeout: Duration) -> Result<Option<Message>> {
        reading::next_waiting(&self.engine, self.engine.default_consumer()?, timeout)
    }

    /// Skips the next message and returns its sequence number. Neither reads nor checks the
    /// payload.
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn skip(&self) -> Result<Option<u64>> {
        reading::skip(&self.engine, self.engine.default_consumer()?)
    }

    /// Delivers the next message, which the program [acknowledges](Delivery::ack) when its work is
    /// done: [`Consumer::receive`](Consumer::receive) for the queue's own (default) consumer.
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn receive(&self) -> Result<Option<Delivery>> {
        delivery::receive(&self.engine, self.engine.default_consumer()?)
    }

    /// Calls `work` with each message and acknowledges the message when `work` returns `Ok`:
    /// [`Consumer::for_each`](Consumer::for_each) for the queue's own (default) consumer.
    ///
    /// # Errors
    ///
    /// As [`Consumer::for_each`](Consumer::for_each).
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
    pub fn for_each<E: From<Error>>(
        &self,
        work: impl FnMut(&Delivery) -> Result<(), E>,
        on_gap: impl FnMut(Gap),
    ) -> Result<(), E> {
        delivery::for_each(&self.engine, self.engine.default_consumer()?, work, on_gap)
    }

    /// Delivers the next message, and waits for one up to `timeout` (see
    /// [`receive`](Self::receive)). Does not poll.
    ///
    /// # Errors
    ///
    /// As [`dequeue_timeout`](Self::dequeue_timeout).
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Delivery>> {
        delivery::receive_waiting(&self.engine, self.engine.default_consumer()?, timeout)
    }

    /// Sets how many messages of the queue's own (default) consumer may be in flight at a time:
    /// [`Consumer::set_max_in_flight`].
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
    /// # Errors
    ///
    /// Those of [`Consumer::set_redelivery`], and [`Error::Io`] when the default consumer cannot be
    /// made.
    pub fn set_redelivery(&self, redelivery: Redelivery) -> Result<()> {
        let rules = redelivery.rules(&self.engine)?;
        self.engine.set_redelivery(self.engine.default_consumer()?, rules)
    }

    /// Returns how many messages of the queue's own (default) consumer are in flight: received, but
    /// neither acknowledged nor returned.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.engine.in_flight()
    }

    /// Moves the queue's own (default) consumer to the message `seq`, back or forward:
    /// [`Consumer::seek`].
    ///
    /// # Errors
    ///
    /// As [`Consumer::seek`]; [`Error::Io`] when the default consumer cannot be made.
    pub fn seek(&self, seq: u64) -> Result<()> {
        self.engine.seek(self.engine.default_consumer()?, seq)
    }

    /// Creates a consumer called `name` at the position of the queue's own (default) consumer:
    /// [`Consumer::fork`].
    ///
    /// # Errors
    ///
    /// As [`Consumer::fork`].
    pub fn fork(&self, name: &str) -> Result<Consumer> {
        check_name(self.path(), name)?;
        let consumer = self.engine.fork(self.engine.default_consumer()?, name)?;
        Ok(Consumer::new(Arc::clone(&self.engine), consumer))
    }

    /// Returns a descriptor that is readable while a message or an unreported gap waits for the
    /// queue's own (default) consumer, and once the queue is closed: see [`Consumer::ready_fd`].
    ///
    /// # Errors
    ///
    /// As [`Consumer::ready_fd`].
    pub fn ready_fd(&self) -> Result<BorrowedFd<'_>> {
        self.engine.ready_fd(self.engine.default_consumer_state())
    }

    /// Returns a future that takes the next message. It waits without a thread, on any executor.
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
        crate::Recv::new(self.default_reader())
    }

    /// Returns a future of the next delivery, which waits for a message (see
    /// [`receive`](Self::receive)).
    ///
    /// # Errors
    ///
    /// The future yields those of [`recv`](Self::recv).
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn recv_delivery(&self) -> crate::RecvDelivery {
        crate::RecvDelivery::new(self.default_reader())
    }

    /// Returns a stream that takes all messages from the next one on.
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn messages(&self) -> crate::Messages {
        crate::Messages::new(self.default_reader())
    }

    /// Returns a stream that [receives](Self::receive) all messages from the next one on.
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn deliveries(&self) -> crate::Deliveries {
        crate::Deliveries::new(self.default_reader())
    }

    /// Returns an iterator over the messages from the next one on, which consumes nothing. It
    /// returns `None` at the end of the queue; a later call continues with new messages. It returns
    /// gaps as errors between the messages; [`Iter::past_gaps`] removes them. Before the default
    /// consumer's first read it begins at the oldest message in the queue. It keeps no message in
    /// the queue.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], and [`Error::Io`] from the files.
    pub fn iter(&self) -> Iter {
        Iter::new(Ahead::new(&self.engine, self.engine.default_consumer_state()))
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

    /// Returns a future that [enqueues](Self::enqueue) the message. Where `enqueue` would block its
    /// thread, for room ([`OnFull::Wait`](crate::OnFull::Wait)) or for a flush
    /// ([`flush_every_ops`](crate::Options::flush_every_ops)), the future waits.
    ///
    /// The poll that finds room enqueues the message. Several waiting futures may get room in any
    /// order.
    ///
    /// # Durability
    ///
    /// As of [`enqueue`](Self::enqueue), once the future is ready.
    ///
    /// # Errors
    ///
    /// The future yields those of [`enqueue`](Self::enqueue).
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// async fn put(queue: &mmq::Queue) -> mmq::Result<()> {
    ///     let seq = queue.enqueue_async("a message").await?;
    ///     println!("{seq} is in the queue");
    ///     queue.flush_async().await
    /// }
    /// pollster::block_on(put(&queue))
    /// # }
    /// ```
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn enqueue_async<M: AsRef<[u8]>>(&self, message: M) -> crate::Enqueue<M> {
        let too_long = self.check_len(message.as_ref().len() as u64).err();
        crate::Enqueue::new(&self.engine, message, too_long)
    }

    /// Returns a future that [flushes](Self::flush). A thread of the queue does the work; futures
    /// that wait at the same time share one flush.
    ///
    /// # Durability
    ///
    /// As of [`flush`](Self::flush): what was enqueued and taken before the first poll survives a
    /// power cut once the future is ready.
    ///
    /// # Errors
    ///
    /// The future yields those of [`flush`](Self::flush), and [`Error::Closed`] when the queue is
    /// closed meanwhile (the close flushes, and returns the error if that failed).
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn flush_async(&self) -> crate::Flush {
        crate::Flush::new(&self.engine)
    }

    #[cfg(feature = "async")]
    fn default_reader(&self) -> Result<crate::futures::ReaderParts> {
        let consumer = self.engine.default_consumer()?;
        Ok((Arc::clone(&self.engine), Arc::clone(consumer)))
    }
}
