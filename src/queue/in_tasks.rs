//! The queue's futures and streams.

use std::sync::Arc;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::queue::Queue;

/// # Futures and streams (feature `async`)
impl Queue {
    /// Returns a future that takes the next message. It waits without a thread, on any executor.
    ///
    /// Dropping the future before it is done changes nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # pollster::block_on(async {
    /// queue.enqueue("a message")?;
    /// let message = queue.recv().await?;
    /// assert_eq!(message.as_str(), Ok("a message"));
    /// # Ok::<(), mmq::Error>(())
    /// # })?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The future yields those of [`dequeue`](Self::dequeue), and [`Error::Closed`] when the queue
    /// is closed meanwhile.
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn recv(&self) -> crate::Recv {
        crate::Recv::new(self.default_reader())
    }

    /// Returns a future of the next delivery (see [`receive`](Self::receive)). It waits for a
    /// message, and until fewer messages than [allowed](Self::set_max_in_flight) are in flight.
    ///
    /// Dropping the future before it is done changes nothing: the message goes to another call.
    /// Dropping the [`Delivery`](crate::Delivery) that it returned gives the message back, and
    /// counts as an attempt.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # pollster::block_on(async {
    /// queue.enqueue("resize picture 7")?;
    /// let job = queue.recv_delivery().await?;
    /// println!("{:?}", job.as_str()); // does the work
    /// job.ack()?;
    /// # Ok::<(), mmq::Error>(())
    /// # })?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The future yields those of [`recv`](Self::recv).
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn recv_delivery(&self) -> crate::RecvDelivery {
        crate::RecvDelivery::new(self.default_reader())
    }

    /// Returns a stream that takes all messages from the next one on.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// // (In a task, with `StreamExt` of the crate `futures`: `messages.next().await`.)
    /// let mut messages = futures_executor::block_on_stream(queue.messages());
    /// assert_eq!(messages.next().unwrap()?.as_str(), Ok("a"));
    /// assert_eq!(messages.next().unwrap()?.as_str(), Ok("b"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn messages(&self) -> crate::Messages {
        crate::Messages::new(self.default_reader())
    }

    /// Returns a stream that [receives](Self::receive) all messages from the next one on.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue("resize picture 7")?;
    /// // (In a task, with `StreamExt` of the crate `futures`: `jobs.next().await`.)
    /// let mut jobs = futures_executor::block_on_stream(queue.deliveries());
    /// let job = jobs.next().unwrap()?;
    /// println!("{:?}", job.as_str()); // does the work
    /// job.ack()?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn deliveries(&self) -> crate::Deliveries {
        crate::Deliveries::new(self.default_reader())
    }

    /// Returns a future that [enqueues](Self::enqueue) the message. Where `enqueue` would block its
    /// thread, for room ([`OnFull::Wait`](crate::OnFull::Wait)) or for a flush
    /// ([`flush_every_ops`](crate::Options::flush_every_ops)), the future waits.
    ///
    /// The poll that finds room enqueues the message. Several waiting futures may get room in any
    /// order.
    ///
    /// Dropping the future while it waits for room changes nothing. **Exception**: a future that
    /// waits for a flush of `flush_every_ops` has enqueued its message. If it is dropped then (by
    /// `select!` or a timeout, say), the message is in the queue and may not be durable yet; to
    /// enqueue it again would make two of it. A timeout around the future asks
    /// [`Enqueue::stored`](crate::Enqueue::stored), as the example there does.
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
    ///
    /// # Durability
    ///
    /// As of [`enqueue`](Self::enqueue), once the future is ready.
    ///
    /// # Errors
    ///
    /// The future yields those of [`enqueue`](Self::enqueue).
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn enqueue_async<M: AsRef<[u8]>>(&self, message: M) -> crate::Enqueue<M> {
        let too_long = self.check_len(message.as_ref().len() as u64).err();
        crate::Enqueue::new(&self.engine, message, too_long)
    }

    /// Returns a future that [flushes](Self::flush). A thread of the queue does the work; futures
    /// that wait at the same time share one flush.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # pollster::block_on(async {
    /// let seq = queue.enqueue("order 17")?;
    /// queue.flush_async().await?; // survives a power cut
    /// assert!(queue.durable_seq() > seq);
    /// # Ok::<(), mmq::Error>(())
    /// # })?;
    /// # Ok::<(), mmq::Error>(())
    /// ```
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
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn flush_async(&self) -> crate::Flush {
        crate::Flush::new(&self.engine)
    }

    fn default_reader(&self) -> Result<crate::futures::ReaderParts> {
        let consumer = self.engine.default_consumer()?;
        Ok((Arc::clone(&self.engine), Arc::clone(consumer)))
    }
}
