//! What the driver needs of a queue. Tests have a queue in memory behind it.

use std::time::Duration;

use crate::error::{Gap, Result};
use crate::message::Message;

/// What a read ahead of the place comes to.
#[derive(Debug)]
pub(super) enum NextRead {
    Message(Message),
    Gap(Gap),
    /// There is nothing behind what was read. The next read looks again.
    Nothing,
}

/// A queue with the forwarder's two places in it: below the *place* everything is acknowledged, and
/// from the *kept place* on, which is not above it, everything is held. Both are stored, in order
/// and without a sync: a power cut takes them back to where they stood at the last flush, or to
/// anywhere between.
pub(super) trait Local {
    /// The first number that is not acknowledged.
    fn place(&self) -> u64;

    /// The number that the next message of the queue gets.
    fn next_number(&self) -> u64;

    /// Up to here nothing was ever acknowledged: the consumer was made here. 0 when that is not
    /// known.
    fn began(&self) -> u64;

    /// The oldest number from which on everything is held, or is reported as a gap.
    fn oldest(&self) -> u64;

    /// The checksum of a message; `None` when it is not held, or damaged.
    fn sum(&mut self, seq: u64) -> Result<Option<u32>>;

    /// Reading begins anew at the place. Gaps that the place has passed since they were reported
    /// come again from number `from` on.
    fn read_from_place(&mut self, from: u64) -> Result<()>;

    /// The next message or gap.
    fn read(&mut self) -> Result<NextRead>;

    /// Waits up to `wait` for something to read.
    fn wait(&mut self, wait: Duration) -> Result<()>;

    /// Moves the place forward over messages that were acknowledged. Where the last of them is in a
    /// gap, it may come to stand behind the gap.
    fn move_place(&mut self, to: u64) -> Result<()>;

    /// Moves the place back, to a number that is held.
    fn move_back(&mut self, to: u64) -> Result<()>;

    /// The kept place.
    fn kept(&self) -> u64;

    /// About how many bytes are held between the kept place and the place.
    fn kept_bytes(&self) -> u64;

    /// Moves the kept place forward.
    fn move_kept(&mut self, to: u64) -> Result<()>;

    /// Makes both places durable.
    fn flush(&mut self) -> Result<()>;
}

/// The CRC32C of a message.
pub(super) fn sum_of(bytes: &[u8]) -> u32 {
    !crate::memory::checksum::crc32c(!0, bytes)
}
