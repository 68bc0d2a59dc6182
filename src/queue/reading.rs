//! A queue's own reads: those of its default consumer.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::consume::standing::Read;
use crate::consumer::{Consumer, check_name};
use crate::delivery::{self, Delivery};
use crate::engine::ahead::Ahead;
use crate::engine::reading;
use crate::error::{Error, Gap, Result};
use crate::iter::Iter;
use crate::message::Message;
use crate::queue::Queue;

impl Queue {
    /// The next message, which stays in the queue; `None` when there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Gap`], once, when messages are missing here: the next call goes on behind them.
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
    /// A message that was returned does not come again after the death of the process. After a
    /// power cut, messages taken since the last flush may come again.
    ///
    /// # Errors
    ///
    /// [`Error::Gap`], once, when messages are missing here: the next call goes on behind them. A
    /// loop that ends with `?` at a gap leaves the rest unread: see
    /// [`past_gaps`](crate::past_gaps). [`Error::Io`].
    #[inline]
    #[doc(alias = "DequeueString")]
    pub fn dequeue(&self) -> Result<Option<Message>> {
        reading::next(&self.engine, self.engine.default_consumer()?, Read::Take)
    }

    /// As [`peek`](Self::peek), into a buffer whose content is replaced; returns the sequence
    /// number. No allocation once the buffer is large enough. With an error the buffer may come
    /// back empty.
    ///
    /// # Errors
    ///
    /// As [`peek`](Self::peek).
    #[inline]
    pub fn peek_into(&self, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
        reading::next_into(&self.engine, self.engine.default_consumer()?, Read::Look, buffer)
    }

    /// As [`dequeue`](Self::dequeue), into a buffer whose content is replaced; returns the sequence
    /// number. No allocation once the buffer is large enough. With an error the buffer may come
    /// back empty.
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn dequeue_into(&self, buffer: &mut Vec<u8>) -> Result<Option<u64>> {
        reading::next_into(&self.engine, self.engine.default_consumer()?, Read::Take, buffer)
    }

    /// Takes up to `max` messages, as many as there are, without waiting.
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue), when no message was taken. An error behind the first message
    /// comes with the next call.
    pub fn dequeue_batch(&self, max: usize) -> Result<Vec<Message>> {
        reading::batch(&self.engine, self.engine.default_consumer()?, max)
    }

    /// Takes the next message, and waits for it up to `timeout`; `None` when none came. Does not
    /// poll.
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue); [`Error::Closed`] when the queue is closed meanwhile.
    pub fn dequeue_timeout(&self, timeout: Duration) -> Result<Option<Message>> {
        reading::next_waiting(&self.engine, self.engine.default_consumer()?, timeout)
    }

    /// Takes the next message without delivering it and returns its sequence number. The payload is
    /// neither read nor checked.
    ///
    /// # Errors
    ///
    /// As [`dequeue`](Self::dequeue).
    #[inline]
    pub fn skip(&self) -> Result<Option<u64>> {
        reading::skip(&self.engine, self.engine.default_consumer()?)
    }

    /// Hands out the next message, to be [acknowledged](Delivery::ack) when its work is done:
    /// [`Consumer::receive`](Consumer::receive) for the queue's own (default) consumer.
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

    /// As [`receive`](Self::receive), but waits up to `timeout` for a message. Does not poll.
    ///
    /// # Errors
    ///
    /// As [`dequeue_timeout`](Self::dequeue_timeout).
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Delivery>> {
        delivery::receive_waiting(&self.engine, self.engine.default_consumer()?, timeout)
    }

    /// As [`Consumer::set_max_in_flight`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`] for 0, [`Error::Io`] when the default consumer cannot be made.
    pub fn set_max_in_flight(&self, messages: impl Into<Option<u32>>) -> Result<()> {
        self.engine.set_max_in_flight(self.engine.default_consumer()?, messages.into())
    }

    /// How many messages of the queue's own (default) consumer are in flight: received, neither
    /// acknowledged nor given back.
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

    /// Makes a new consumer called `name` at the place of the queue's own (default) consumer:
    /// [`Consumer::fork`].
    ///
    /// # Errors
    ///
    /// As [`Consumer::fork`].
    pub fn fork(&self, name: &str) -> Result<Consumer> {
        check_name(self.path(), name)?;
        let standing = self.engine.fork(self.engine.default_consumer()?, name)?;
        Ok(Consumer::new(Arc::clone(&self.engine), standing))
    }

    /// A descriptor that is readable while a message or an untold gap waits for the queue's own
    /// (default) consumer, and once the queue is closed: see [`Consumer::ready_fd`].
    ///
    /// # Errors
    ///
    /// As [`Consumer::ready_fd`].
    pub fn ready_fd(&self) -> Result<BorrowedFd<'_>> {
        self.engine.ready_fd(self.engine.default_consumer()?)
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
        crate::Recv::new(self.default_reader())
    }

    /// A future of the next delivery: as [`receive`](Self::receive), but waits.
    ///
    /// # Errors
    ///
    /// The future yields those of [`recv`](Self::recv).
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn recv_delivery(&self) -> crate::RecvDelivery {
        crate::RecvDelivery::new(self.default_reader())
    }

    /// A stream that takes all messages from the next one on.
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn messages(&self) -> crate::Messages {
        crate::Messages::new(self.default_reader())
    }

    /// Looks at the messages from the next one on and consumes nothing. The iterator returns `None`
    /// at the end of the queue, and goes on when asked again after new messages came. Gaps come as
    /// errors between the messages; [`Iter::past_gaps`] takes them out.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the default consumer cannot be made, [`Error::Closed`].
    pub fn iter(&self) -> Iter {
        Iter::new(
            self.engine.default_consumer().and_then(|standing| Ahead::new(&self.engine, standing)),
        )
    }

    #[cfg(feature = "async")]
    fn default_reader(&self) -> Result<crate::futures::ReaderParts> {
        let standing = self.engine.default_consumer()?;
        Ok((Arc::clone(&self.engine), Arc::clone(standing)))
    }
}
