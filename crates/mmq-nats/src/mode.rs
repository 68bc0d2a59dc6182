//! How messages are stored.

/// How messages are stored: exactly once in each mode.
///
/// ```
/// # use mmq_nats::NatsStream;
/// let far = NatsStream::new("nats://127.0.0.1:4222", "EVENTS")?.mode(mmq_nats::NatsMode::Chain);
/// # drop(far);
/// # Ok::<(), mmq::forward::Halt>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NatsMode {
    /// In atomic batches. Other subjects of the stream are free for others. It takes a server of
    /// 2.12 or later, and a stream that allows it (`nats stream edit S --allow-batch`).
    Batch,
    /// Each conditional on the last message of the whole stream, without waiting for
    /// acknowledgements. The stream takes no other subject.
    Chain,
    /// One at a time, each conditional on the last one of its subject, and with an id for the
    /// stream's window of duplicates. Slow, and never chosen by itself: for a stream with other
    /// writers that allows no batches.
    Window,
}
