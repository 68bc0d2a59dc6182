//! The origin of a dead letter: the queue and the message from which it was made.

use byteorder::{ByteOrder, LittleEndian};

/// Offsets in an origin.
mod origin_at {
    pub(super) const ORIGIN_ID: usize = 0;
    pub(super) const ORIGIN_SEQ: usize = 16;
    pub(super) const ORIGIN_ATTEMPTS: usize = 24;
    pub(super) const ORIGIN_SUM: usize = 28;
}
/// Bytes of the origin before the message in a dead letter's record.
pub(crate) const ORIGIN_LEN: usize = 32;

/// The message from which a dead letter was made: [`Message::origin`](crate::Message::origin).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let queue = mmq::Queue::open(dir.path())?;
/// # let dead_letters = queue;
/// let letter = dead_letters.peek()?;
/// if let Some(mmq::Origin { seq, attempts, .. }) = letter.and_then(|letter| letter.origin()) {
///     println!("message {seq} of the other queue failed {attempts} times");
/// }
/// # Ok::<(), mmq::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The id of the queue to which the message was sent: [`Queue::id`](crate::Queue::id).
    pub queue_id: [u8; 16],
    /// Its sequence number there.
    pub seq: u64,
    /// How often that queue delivered it without an acknowledgement. In a message that a forwarder
    /// sent here: why the numbers before it are missing; 0 if none is.
    pub attempts: u32,
    /// The sum of a forwarder's chain up to this message; 0 in a dead letter.
    pub(crate) sum: u32,
}

impl Origin {
    pub(crate) fn encode(&self) -> [u8; ORIGIN_LEN] {
        let mut bytes = [0; ORIGIN_LEN];
        bytes[origin_at::ORIGIN_ID..origin_at::ORIGIN_SEQ].copy_from_slice(&self.queue_id);
        LittleEndian::write_u64(&mut bytes[origin_at::ORIGIN_SEQ..], self.seq);
        LittleEndian::write_u32(&mut bytes[origin_at::ORIGIN_ATTEMPTS..], self.attempts);
        LittleEndian::write_u32(&mut bytes[origin_at::ORIGIN_SUM..], self.sum);
        holds!(Origin::decode(&bytes) == *self, "an origin that is written can be read: {self:?}");
        bytes
    }

    /// Decodes an origin. A fragment's checksum covers the bytes.
    pub(crate) fn decode(bytes: &[u8; ORIGIN_LEN]) -> Origin {
        let mut queue_id = [0; 16];
        queue_id.copy_from_slice(&bytes[origin_at::ORIGIN_ID..origin_at::ORIGIN_SEQ]);
        Origin {
            queue_id,
            seq: LittleEndian::read_u64(&bytes[origin_at::ORIGIN_SEQ..]),
            attempts: LittleEndian::read_u32(&bytes[origin_at::ORIGIN_ATTEMPTS..]),
            sum: LittleEndian::read_u32(&bytes[origin_at::ORIGIN_SUM..]),
        }
    }

    /// The payload of a dead letter's record: the origin, then `message`.
    pub(crate) fn before(&self, message: &[u8]) -> Vec<u8> {
        [&self.encode()[..], message].concat()
    }

    /// Removes the origin from the payload of a dead letter's record, which leaves the message.
    pub(crate) fn take_off(payload: &mut Vec<u8>) -> Option<Origin> {
        let origin = Origin::decode(payload.first_chunk()?);
        payload.drain(..ORIGIN_LEN);
        Some(origin)
    }
}
