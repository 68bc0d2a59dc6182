//! A queue's durable mark, figures, id, directory and times.

use std::path::Path;
use std::time::SystemTime;

#[cfg(doc)]
use crate::consumer::Consumer;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::queue::Queue;
use crate::stats::Stats;
use crate::storage::Storage;

/// # Durability of single messages
impl Queue {
    /// Returns the first sequence number not yet known to be durable.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// assert_eq!(queue.durable_seq(), 0); // a power cut may take both
    /// queue.flush()?;
    /// assert_eq!(queue.durable_seq(), 2);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn durable_seq(&self) -> u64 {
        self.engine.durable_seq()
    }

    /// Makes sure that the message `seq` is durable: flushes if it is not yet. Threads that wait at
    /// the same time share one sync.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// let seq = queue.enqueue("order 17")?;
    /// queue.wait_durable(seq)?; // flushes, unless another thread just did
    /// assert!(queue.durable_seq() > seq);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`flush`](Self::flush); [`Error::NotFound`] for a number that no message has got yet;
    /// [`Error::Interrupted`] by [`interrupt`](Self::interrupt), while it waited for another
    /// thread's sync.
    pub fn wait_durable(&self, seq: u64) -> Result<()> {
        self.engine.wait_durable(seq)
    }
}

/// # Figures
impl Queue {
    /// Returns how many messages wait for the queue's own (default) consumer, messages [in
    /// flight](Consumer::receive) included. Without a default consumer: how many wait for some
    /// consumer, each counted once. Without any consumer: how many are in the queue.
    ///
    /// Without a default consumer the call may lock each consumer for a moment. [`Consumer::len`]
    /// asks about one only.
    ///
    /// The figure follows from sequence numbers, so it is exact at once after a reopening, also
    /// after the death of the process at any instruction. It includes missing messages that no read
    /// has met yet: damaged ones, and those that a power cut destroyed in the middle of a segment.
    /// Then reads return fewer messages, and the figure is exact again once a read has reported the
    /// gap.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// queue.dequeue()?;
    /// assert_eq!(queue.len(), 1);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> u64 {
        self.engine.len()
    }

    /// Returns whether no message waits: whether [`len`](Self::len) is 0. Without a default
    /// consumer that means that no message waits for any consumer.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// assert!(queue.is_empty());
    /// queue.enqueue("a message")?;
    /// assert!(!queue.is_empty());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    #[doc(alias = "IsEmpty")]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns figures of the queue, read one by one while other threads work.
    ///
    /// Producers and consumers wait at most while this call reads a few words. Messages [in
    /// flight](Consumer::receive) count as waiting until they are acknowledged.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// queue.enqueue_batch(["a", "b"])?;
    /// queue.dequeue()?;
    /// let stats = queue.stats();
    /// assert_eq!((stats.messages, stats.enqueued, stats.dequeued), (1, 2, 1));
    /// println!("{stats}");
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Returns the queue's directory.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// println!("the queue in {}", queue.path().display());
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn path(&self) -> &Path {
        self.engine.core.storage.path()
    }

    /// Returns the queue's id: random bytes, chosen when the queue was created, the same at every
    /// opening. Together with a sequence number it identifies one message among those of all
    /// queues. A copy of the directory has the same id; [`copy_to`](Self::copy_to) can choose
    /// another.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// let id: String = queue.id().iter().map(|byte| format!("{byte:02x}")).collect();
    /// assert_eq!(id.len(), 32);
    /// # Ok::<(), mmq::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.engine.core.index.queue_id
    }

    /// Returns when the segment was begun in which the message `seq` begins: the message is no
    /// older. `None` when no segment holds a message with that number.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// let seq = queue.enqueue("a message")?;
    /// assert!(queue.segment_time(seq).unwrap() <= std::time::SystemTime::now());
    /// assert_eq!(queue.segment_time(seq + 1), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn segment_time(&self, seq: u64) -> Option<SystemTime> {
        self.engine.segment_time(seq)
    }
}
