//! A queue's figures, id, directory and times.

use std::path::Path;
use std::time::{Duration, SystemTime};

#[cfg(doc)]
use crate::consumer::Consumer;
use crate::queue::Queue;
use crate::stats::{ConsumerStats, Stats};
use crate::storage::Storage;

impl Queue {
    /// Returns figures of the queue, read one by one while other threads work.
    ///
    /// Producers and consumers wait at most while this call reads a few words. Messages [in
    /// flight](Consumer::receive) count as waiting until they are acknowledged.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
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

    /// Returns the queue's id: random bytes, chosen when the queue was created, the same at every
    /// opening. Together with a sequence number it identifies one message among those of all
    /// queues. A copy of the directory has the same id; [`copy_to`](Self::copy_to) can choose
    /// another.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.engine.core.index.queue_id
    }

    /// Returns the queue's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.engine.core.storage.path()
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
        let begun = self.engine.segment_begun(seq)?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(begun))
    }
}
