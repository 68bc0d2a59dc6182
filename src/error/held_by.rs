//! The consumer that keeps the oldest segment of a full queue.

/// The consumer that keeps a queue's oldest segment: [`Error::Full`](crate::Error::Full).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldBy {
    /// The consumer's name; empty for the queue's own (default) consumer.
    pub consumer: String,
    /// The message at the consumer's position: the next one it reads, or one that it received and
    /// has neither acknowledged nor returned.
    pub seq: u64,
}

impl HeldBy {
    /// Names the consumer that keeps the oldest segment, for the message `seq`.
    #[must_use]
    pub fn new(consumer: impl Into<String>, seq: u64) -> HeldBy {
        HeldBy { consumer: consumer.into(), seq }
    }
}
