//! A consumer's waits in event loops and tasks.

use std::os::fd::BorrowedFd;
#[cfg(feature = "async")]
use std::sync::Arc;

use super::Consumer;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

/// # Waiting in event loops and tasks
impl Consumer {
    /// Returns a descriptor for `poll`, `epoll` or `kqueue`. It is readable while a message or an
    /// unreported gap waits for this consumer, and once the queue is closed. The first call makes
    /// it. Do not read from it or write to it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// use rustix::event::{PollFd, PollFlags, poll};
    ///
    /// queue.enqueue("a message")?;
    /// // With the descriptors of sockets, as a rule.
    /// let mut ready = [PollFd::from_borrowed_fd(workers.ready_fd()?, PollFlags::IN)];
    /// poll(&mut ready, None).unwrap();
    /// assert!(ready[0].revents().contains(PollFlags::IN));
    /// assert!(workers.dequeue()?.is_some());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the system has no descriptor left, [`Error::Closed`].
    pub fn ready_fd(&self) -> Result<BorrowedFd<'_>> {
        self.engine.ready_fd(&self.consumer)
    }

    /// Returns a future that takes the next message. It waits without a thread, on any executor.
    ///
    /// Dropping the future before it is done changes nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// # pollster::block_on(async {
    /// queue.enqueue("a message")?;
    /// let message = workers.recv().await?;
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
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn recv(&self) -> crate::Recv {
        crate::Recv::new(Ok((Arc::clone(&self.engine), Arc::clone(&self.consumer))))
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
    /// # let workers = queue.consumer("workers")?;
    /// # pollster::block_on(async {
    /// queue.enqueue("resize picture 7")?;
    /// let job = workers.recv_delivery().await?;
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
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn recv_delivery(&self) -> crate::RecvDelivery {
        crate::RecvDelivery::new(Ok((Arc::clone(&self.engine), Arc::clone(&self.consumer))))
    }

    /// Returns a stream that takes all messages from the next one on.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # let workers = queue.consumer("workers")?;
    /// queue.enqueue("a message")?;
    /// // (In a task, with `StreamExt` of the crate `futures`: `messages.next().await`.)
    /// let mut messages = futures_executor::block_on_stream(workers.messages());
    /// assert_eq!(messages.next().unwrap()?.as_str(), Ok("a message"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn messages(&self) -> crate::Messages {
        crate::Messages::new(Ok((Arc::clone(&self.engine), Arc::clone(&self.consumer))))
    }

    /// Returns a stream that [receives](Self::receive) all messages from the next one on.
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
}
