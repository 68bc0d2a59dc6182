//! The consumer that keeps the oldest segment of a full queue.

/// The consumer that keeps a queue's oldest segment: [`Error::Full`](crate::Error::Full).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let queue = mmq::Queue::open(dir.path())?;
/// if let Err(mmq::Error::Full { held_by: Some(slowest), .. }) = queue.enqueue("a message") {
///     eprintln!("full: {:?} has yet to read message {}", slowest.consumer, slowest.seq);
/// }
/// # Ok::<(), mmq::Error>(())
/// ```
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
    ///
    /// ```
    /// // For the tests of a program that handles a full queue.
    /// let held_by = mmq::HeldBy::new("audit", 17);
    /// assert_eq!((&*held_by.consumer, held_by.seq), ("audit", 17));
    /// ```
    #[must_use]
    pub fn new(consumer: impl Into<String>, seq: u64) -> HeldBy {
        HeldBy { consumer: consumer.into(), seq }
    }
}
