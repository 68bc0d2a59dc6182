//! Messages that were taken together.

use std::fmt;

/// Messages that [`Queue::dequeue_batch_into`](crate::Queue::dequeue_batch_into) took: their bytes
/// lie one behind the other in one piece of memory, which the next call uses again.
///
/// ```
/// # fn main() -> mmq::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let queue = mmq::Queue::open(dir.path())?;
/// queue.enqueue_batch(["a", "b", "c"])?;
/// let mut batch = mmq::MessageBatch::new();
/// while queue.dequeue_batch_into(&mut batch, 2)? != 0 {
///     for (seq, bytes) in batch.iter() {
///         println!("{seq}: {bytes:?}");
///     }
/// }
/// assert!(batch.is_empty() && batch.get(0).is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct MessageBatch {
    bytes: Vec<u8>,
    /// Of each message, its sequence number, and where its bytes end.
    ends: Vec<(u64, usize)>,
}

impl MessageBatch {
    /// Returns a batch without messages. It takes memory when messages come.
    ///
    /// ```
    /// let batch = mmq::MessageBatch::new();
    /// assert_eq!(batch.len(), 0);
    /// ```
    #[must_use]
    pub fn new() -> MessageBatch {
        MessageBatch::default()
    }

    /// Counts the messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the sequence number and the bytes of the message `at`, counted from 0.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<(u64, &[u8])> {
        let (seq, end) = *self.ends.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
        Some((seq, &self.bytes[start..end]))
    }

    /// Iterates over the sequence numbers and the bytes, in the order in which they were put in.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, &[u8])> {
        let mut start = 0;
        self.ends
            .iter()
            .map(move |(seq, end)| (*seq, &self.bytes[std::mem::replace(&mut start, *end)..*end]))
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The bytes, to which a read appends those of the next message.
    #[inline(always)]
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Notes that the bytes from the last message on are the message `seq`.
    #[inline(always)]
    pub(crate) fn note(&mut self, seq: u64) {
        self.ends.push((seq, self.bytes.len()));
    }
}

impl fmt::Debug for MessageBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
