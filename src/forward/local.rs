//! The operations that the driver needs on a queue. Tests use a queue in memory behind it.

use std::time::{Duration, SystemTime};

use crate::error::{Error, Gap, Result};
use crate::forward::far_side::{Mark, Position};
use crate::message::Message;

/// The result of a read ahead of the place.
#[derive(Debug)]
pub(crate) enum NextRead {
    Message(Message),
    Gap(Gap),
    /// There is no further message. The next read looks again.
    Nothing,
}

/// How far the far side has acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Acknowledged {
    /// Everything below this number, but what was left out or is missing from `there` on; the
    /// *place*.
    pub(crate) until: u64,
    /// Everything below this number.
    pub(crate) there: u64,
    /// Where the far side ended right before the message `there`; `None` when that is unknown.
    pub(crate) position: Option<Position>,
    /// The sum of the [chain](chained) of messages before that one; `None` when that is unknown.
    pub(crate) chain: Option<u32>,
    /// The positions of the far side do not count messages: it was sent a pack or a report of a
    /// gap, a message was left out, or somebody else wrote there.
    pub(crate) counts_differ: bool,
    /// The far side was handed no message from this number on, as far as the row tells: a power
    /// cut takes it back.
    pub(crate) handed: u64,
}

impl Acknowledged {
    /// Everything below `until`, and nothing more is known.
    pub(crate) fn until(until: u64) -> Acknowledged {
        Acknowledged { until, there: until, handed: until, ..Acknowledged::default() }
    }

    /// Returns what the far side compares itself with.
    pub(crate) fn mark(&self) -> Option<Mark> {
        self.position.map(|position| Mark { until: self.there, position })
    }
}

/// A queue with what the forwarder stores there: how far the far side has acknowledged, and a *kept
/// place* from which on the queue keeps everything. Both are stored in order and without a sync: a
/// power cut moves each back, at most to the last flush.
pub(crate) trait Local {
    /// Returns how far the far side has acknowledged.
    fn acknowledged(&self) -> Acknowledged;

    /// Returns the place: the first unacknowledged number.
    fn place(&self) -> u64 {
        self.acknowledged().until
    }

    /// Returns the number that the next message of the queue gets.
    fn next_number(&self) -> u64;

    /// Returns the number where the forwarder began: below it the far side never acknowledged
    /// anything.
    fn began(&self) -> u64;

    /// Returns the oldest number from which on the queue has everything, or reports it as a gap.
    fn oldest(&self) -> u64;

    /// Returns the sum of the chain that has `sum` before the message `from`, over the messages
    /// before `to`. `None` when one of them is not in the queue, or damaged.
    fn chain_over(&mut self, from: u64, sum: u32, to: u64) -> Result<Option<u32>>;

    /// Begins to read at the number `from`. Reads may return earlier messages and gaps as well.
    fn read_from(&mut self, from: u64) -> Result<()>;

    /// Reads the next message or gap.
    fn read(&mut self) -> Result<NextRead>;

    /// Waits up to `wait` for a message or gap to read.
    fn wait(&mut self, wait: Duration) -> Result<()>;

    /// Stores how far the far side has acknowledged: further than before, or less far when it has
    /// lost messages.
    fn set_acknowledged(&mut self, acknowledged: Acknowledged) -> Result<()>;

    /// Returns the kept place.
    fn kept(&self) -> u64;

    /// Returns about how many bytes the queue keeps between the kept place and the place.
    fn kept_bytes(&self) -> u64;

    /// Moves the kept place forward, to `to` or behind a gap there.
    fn move_kept(&mut self, to: u64) -> Result<()>;

    /// Makes everything durable that was stored.
    fn flush(&mut self) -> Result<()>;

    /// Returns when the segment was begun in which this message is.
    fn segment_time(&self, _seq: u64) -> Result<Option<SystemTime>> {
        Ok(None)
    }

    /// Returns when the far side last acknowledged a message.
    fn acknowledged_at(&self) -> Option<SystemTime> {
        None
    }

    /// Returns the queue's limit.
    fn max_bytes(&self) -> Option<u64> {
        None
    }

    /// Learns what other threads have done to the queue, where another process has it.
    fn look(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A consumer that a forwarder reads as, in this process or through the queue's owner.
pub(crate) trait Forwarded: Send + Sync {
    /// Begins to forward. One forwarder at a time may.
    fn begin(&self) -> Result<Box<dyn Local>>;

    /// Returns whether forwarding begins again after this error: the queue's owner has ended, and
    /// there is another one.
    fn begins_again(&self, error: &Error) -> bool;
}

/// Returns the sum of a message in a chain, in which `before` is that of the message before it.
pub(super) fn chained(before: u32, bytes: &[u8]) -> u32 {
    let before = if planted!(ForwardSumOfOne) { 0 } else { before };
    crate::memory::checksum::xxh3_64(u64::from(before), bytes) as u32
}
