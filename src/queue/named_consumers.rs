//! Makes, lists, moves and removes consumers.

use std::sync::Arc;

use crate::consumer::Consumer;
use crate::engine::consumer_life::check_name;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::options::Start;
use crate::queue::Queue;
use crate::stats::ConsumerStats;

/// # Consumers
impl Queue {
    /// Returns the consumer called `name` (see [`consumer`](Self::consumer)), and creates a missing
    /// one at `start`, in one step: it neither misses nor reads twice a message enqueued meanwhile.
    /// An existing consumer keeps its position.
    ///
    /// While a queue has no consumer, it keeps all messages: open all consumers before the first
    /// one reads. If the first consumer starts behind the oldest message, the queue discards the
    /// messages before it; [`Stats::unclaimed`](crate::Stats::unclaimed) counts them.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue("old news")?;
    /// let reader = queue.consumer_at("reader", mmq::Start::End)?;
    /// queue.enqueue("news")?;
    /// assert_eq!(reader.dequeue()?.unwrap().as_str(), Ok("news"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`consumer`](Self::consumer); [`Error::NotFound`] for a number that no message has got
    /// yet: then it creates no consumer.
    pub fn consumer_at(&self, name: &str, start: Start) -> Result<Consumer> {
        check_name(self.path(), name)?;
        let consumer = self.engine.consumer_at(name, start)?;
        Ok(Consumer::new(Arc::clone(&self.engine), consumer))
    }

    /// Returns the names of all consumers, in order. The queue's own (default) consumer has no
    /// name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.consumer("mail")?;
    /// queue.consumer("audit")?;
    /// assert_eq!(queue.consumers(), ["audit", "mail"]);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn consumers(&self) -> Vec<String> {
        self.engine.consumer_names()
    }

    /// Returns figures of all consumers up to the same end: the queue's own (default) consumer
    /// first, once it exists (its name is empty), then the others in the order of their names.
    ///
    /// Other threads wait at most while this call reads a few words, and messages in flight count
    /// as waiting (see [`stats`](Self::stats)).
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// let mail = queue.consumer("mail")?;
    /// queue.consumer("audit")?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// mail.dequeue()?;
    /// let stats = queue.consumer_stats();
    /// let slowest = stats.iter().max_by_key(|stats| stats.messages).unwrap();
    /// assert_eq!((&*slowest.name, slowest.messages, slowest.holds_oldest), ("audit", 2, true));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn consumer_stats(&self) -> Vec<ConsumerStats> {
        self.engine.consumer_stats()
    }

    /// Removes the consumer called `name`: the queue no longer keeps messages for it. Calls through
    /// its handles return [`Error::NotFound`] from now on.
    ///
    /// The empty name removes the queue's own (default) consumer. Calls that wait in it return
    /// [`Error::NotFound`]; the next reading call creates it again, at the oldest message in the
    /// queue.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.consumer("mail")?;
    /// queue.remove_consumer("mail")?;
    /// assert!(queue.consumers().is_empty());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Durability
    ///
    /// The removal survives the death of the process, and a power cut once a flush has covered the
    /// call. Until then a power cut may bring the consumer back, at its old position. Before the
    /// call returns, it erases the consumer's acknowledgements and attempts on the disk, with one
    /// sync of the index. If it was the last consumer and the queue gave up messages before,
    /// another sync notes that the next one is not to be told of these.
    ///
    /// # Errors
    ///
    /// [`Error::NotFound`] when no consumer has that name. [`Error::Io`] when such a sync failed:
    /// the consumer is removed all the same, and the queue is as after a failed
    /// [`flush`](Self::flush).
    pub fn remove_consumer(&self, name: &str) -> Result<()> {
        if !name.is_empty() {
            check_name(self.path(), name)?;
        }
        self.engine.remove_consumer(name)
    }

    /// Moves the queue's own (default) consumer to the message `seq`, back or forward:
    /// [`Consumer::seek`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue_batch(["a", "b", "c"])?;
    /// assert_eq!(queue.dequeue_batch(3)?.len(), 3);
    /// queue.seek(1)?; // as long as its segment is there
    /// assert_eq!(queue.dequeue()?.unwrap().as_str(), Ok("b"));
    /// # Ok::<(), mmq::Error>(())
    /// ```
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
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// queue.dequeue()?;
    /// let trial = queue.fork("trial")?;
    /// assert_eq!(trial.dequeue()?.unwrap().as_str(), Ok("b"));
    /// assert_eq!(queue.len(), 1); // the queue's own consumer stands where it stood
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Consumer::fork`].
    pub fn fork(&self, name: &str) -> Result<Consumer> {
        check_name(self.path(), name)?;
        let consumer = self.engine.fork(self.engine.default_consumer()?, name)?;
        Ok(Consumer::new(Arc::clone(&self.engine), consumer))
    }
}
