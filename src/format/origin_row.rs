//! The origin of a dead letter: where it comes from.

use byteorder::{ByteOrder, LittleEndian};

/// Offsets in an origin.
mod origin_at {
    pub(super) const ORIGIN_ID: usize = 0;
    pub(super) const ORIGIN_SEQ: usize = 16;
    pub(super) const ORIGIN_ATTEMPTS: usize = 24;
}
/// Bytes of the origin before the message in a dead letter's record.
pub(crate) const ORIGIN_LEN: usize = 32;

/// Where a dead letter comes from: [`Message::origin`](crate::Message::origin).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origin {
    /// The id of the queue in which the message was put: [`Queue::id`](crate::Queue::id).
    pub queue_id: [u8; 16],
    /// Its sequence number there.
    pub seq: u64,
    /// How often it was handed out there without being acknowledged.
    pub attempts: u32,
}

impl Origin {
    pub(crate) fn encode(&self) -> [u8; ORIGIN_LEN] {
        let mut bytes = [0; ORIGIN_LEN];
        bytes[origin_at::ORIGIN_ID..origin_at::ORIGIN_SEQ].copy_from_slice(&self.queue_id);
        LittleEndian::write_u64(&mut bytes[origin_at::ORIGIN_SEQ..], self.seq);
        LittleEndian::write_u32(&mut bytes[origin_at::ORIGIN_ATTEMPTS..], self.attempts);
        bytes
    }

    /// The origin in these bytes, which a fragment's checksum covers.
    pub(crate) fn decode(bytes: &[u8; ORIGIN_LEN]) -> Origin {
        let mut queue_id = [0; 16];
        queue_id.copy_from_slice(&bytes[origin_at::ORIGIN_ID..origin_at::ORIGIN_SEQ]);
        Origin {
            queue_id,
            seq: LittleEndian::read_u64(&bytes[origin_at::ORIGIN_SEQ..]),
            attempts: LittleEndian::read_u32(&bytes[origin_at::ORIGIN_ATTEMPTS..]),
        }
    }

    /// The payload of the record of a dead letter with this `message`.
    pub(crate) fn before(&self, message: &[u8]) -> Vec<u8> {
        [&self.encode()[..], message].concat()
    }

    /// Takes the origin off the payload of a dead letter's record, which leaves the message.
    pub(crate) fn take_off(payload: &mut Vec<u8>) -> Option<Origin> {
        let origin = Origin::decode(payload.first_chunk()?);
        payload.drain(..ORIGIN_LEN);
        Some(origin)
    }
}
