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
    /// # Errors
    ///
    /// The future yields those of [`dequeue`](Self::dequeue), and [`Error::Closed`] when the queue
    /// is closed meanwhile.
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
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn recv_delivery(&self) -> crate::RecvDelivery {
        crate::RecvDelivery::new(self.default_reader())
    }

    /// Returns a stream that takes all messages from the next one on.
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn messages(&self) -> crate::Messages {
        crate::Messages::new(self.default_reader())
    }

    /// Returns a stream that [receives](Self::receive) all messages from the next one on.
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
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn flush_async(&self) -> crate::Flush {
        crate::Flush::new(&self.engine)
    }

    fn default_reader(&self) -> Result<crate::futures::ReaderParts> {
        let consumer = self.engine.default_consumer()?;
        Ok((Arc::clone(&self.engine), Arc::clone(consumer)))
    }
}
