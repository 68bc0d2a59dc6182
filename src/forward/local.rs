//! The operations that the driver needs on a queue. Tests use a queue in memory behind it.

use std::time::Duration;

use crate::error::{Gap, Result};
use crate::message::Message;

/// The result of a read ahead of the position.
#[derive(Debug)]
pub(super) enum NextRead {
    Message(Message),
    Gap(Gap),
    /// There is no further message. The next read looks again.
    Nothing,
}

/// A queue with the forwarder's two positions: below the *place* everything is acknowledged, and
/// from the *kept place* on, which is not above it, the queue keeps everything. Both are stored, in
/// order and without a sync: a power cut moves them back, at most to the last flush.
pub(super) trait Local {
    /// Returns the first unacknowledged number.
    fn place(&self) -> u64;

    /// Returns the number that the next message of the queue gets.
    fn next_number(&self) -> u64;

    /// Returns where the consumer was created, below which nothing was ever acknowledged; 0 when
    /// that is unknown.
    fn began(&self) -> u64;

    /// Returns the oldest number from which on the queue has everything, or reports it as a gap.
    fn oldest(&self) -> u64;

    /// Returns the checksum of a message; `None` when it is not in the queue, or damaged.
    fn sum(&mut self, seq: u64) -> Result<Option<u32>>;

    /// Restarts reading at the place. Reads return gaps from number `from` on again that the place
    /// has passed since they were reported.
    fn read_from_place(&mut self, from: u64) -> Result<()>;

    /// Reads the next message or gap.
    fn read(&mut self) -> Result<NextRead>;

    /// Waits up to `wait` for a message or gap to read.
    fn wait(&mut self, wait: Duration) -> Result<()>;

    /// Moves the place forward over messages that were acknowledged. If the last of them is in a
    /// gap, the place may end behind the gap.
    fn move_place(&mut self, to: u64) -> Result<()>;

    /// Moves the place back, to a number that is in the queue.
    fn move_back(&mut self, to: u64) -> Result<()>;

    /// Returns the kept place.
    fn kept(&self) -> u64;

    /// Returns about how many bytes the queue keeps between the kept place and the place.
    fn kept_bytes(&self) -> u64;

    /// Moves the kept place forward.
    fn move_kept(&mut self, to: u64) -> Result<()>;

    /// Makes both places durable.
    fn flush(&mut self) -> Result<()>;
}

/// Returns the checksum of a message, which the far side stores with it.
pub(super) fn sum_of(bytes: &[u8]) -> u32 {
    crate::memory::checksum::xxh3_64(0, bytes) as u32
}
