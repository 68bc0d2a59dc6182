//! A forwarder's row: what it knows of the far side, and where it began.

use byteorder::{ByteOrder, LittleEndian};

use super::*;
use crate::memory::checksum::checksum;

pub(crate) const FORWARD_SLOT_LEN: usize = SECTOR / 2;
pub(crate) const FORWARD_ROW_LEN: usize = 2 * FORWARD_SLOT_LEN;
/// Rows in an extent of such rows.
#[cfg(feature = "forward")]
pub(crate) const FORWARD_ROWS: usize = 8;

/// Offsets in one slot of a forwarder's row, in bytes.
pub(crate) mod forward_at {
    pub(crate) const FORWARD_NUMBER: usize = 0;
    pub(crate) const FORWARD_UNTIL: usize = 8;
    pub(crate) const FORWARD_BEGAN: usize = 16;
    pub(crate) const FORWARD_STORE: usize = 24;
    pub(crate) const FORWARD_AT: usize = 32;
    pub(crate) const FORWARD_TIME: usize = 40;
    pub(crate) const FORWARD_HANDED: usize = 48;
    pub(crate) const FORWARD_OWNER: usize = 56;
    pub(crate) const FORWARD_CHAIN: usize = 60;
    pub(crate) const FORWARD_FLAGS: usize = 64;
    pub(crate) const FORWARD_SUM: usize = 68;
    pub(crate) const FORWARD_LEFT_OUT: usize = 72;
}
const USED: usize = forward_at::FORWARD_LEFT_OUT + 8;
/// The flag of a known position of the far side.
const HAS_POSITION: u32 = 1;
/// The flag of a known sum of the chain.
const HAS_CHAIN: u32 = 2;
/// The flag of a far side whose positions do not count messages.
const COUNTS_DIFFER: u32 = 4;

/// One slot of a forwarder's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ForwardSlot {
    pub(crate) number: u64,
    /// The consumer's row.
    pub(crate) owner: u32,
    /// The far side has acknowledged every message below this number, but those from `there` on:
    /// they are left out, or missing.
    pub(crate) until: u64,
    pub(crate) there: u64,
    /// The number at which the forwarder began: below it the far side never acknowledged anything.
    pub(crate) began: u64,
    /// Which store of the far side, and where it ended right before the message `there`.
    pub(crate) position: Option<(u64, u64)>,
    /// The sum of the chain of messages before that one.
    pub(crate) chain: Option<u32>,
    /// The positions of the far side do not count messages.
    pub(crate) counts_differ: bool,
    /// The far side was handed no message from this number on.
    pub(crate) handed: u64,
    /// When the far side last acknowledged a message, in milliseconds since 1970; 0 for never.
    pub(crate) time: u64,
}

impl ForwardSlot {
    pub(crate) fn encode(&self, seed: u32) -> [u8; USED] {
        use forward_at as at;
        let mut bytes = [0; USED];
        let (store, position) = self.position.unwrap_or_default();
        for (offset, value) in [
            (at::FORWARD_NUMBER, self.number),
            (at::FORWARD_UNTIL, self.until),
            (at::FORWARD_BEGAN, self.began),
            (at::FORWARD_STORE, store),
            (at::FORWARD_AT, position),
            (at::FORWARD_TIME, self.time),
            (at::FORWARD_HANDED, self.handed),
            (at::FORWARD_LEFT_OUT, self.until - self.there),
        ] {
            LittleEndian::write_u64(&mut bytes[offset..], value);
        }
        let flags = u32::from(self.position.is_some()) * HAS_POSITION
            + u32::from(self.chain.is_some()) * HAS_CHAIN
            + u32::from(self.counts_differ) * COUNTS_DIFFER;
        LittleEndian::write_u32(&mut bytes[at::FORWARD_OWNER..], self.owner);
        LittleEndian::write_u32(&mut bytes[at::FORWARD_CHAIN..], self.chain.unwrap_or_default());
        LittleEndian::write_u32(&mut bytes[at::FORWARD_FLAGS..], flags);
        let sum = sum_of(&bytes, seed);
        LittleEndian::write_u32(&mut bytes[at::FORWARD_SUM..], sum);
        holds!(
            ForwardSlot::decode(&bytes, self.owner, seed) == Some(*self),
            "a forwarder's slot that is written can be read: {self:?}"
        );
        bytes
    }

    /// Decodes a slot, if it validates for the consumer in the row `owner` under its `seed`.
    pub(crate) fn decode(bytes: &[u8], owner: u32, seed: u32) -> Option<ForwardSlot> {
        use forward_at as at;
        let bytes = bytes.get(..USED)?;
        let u64_at = |offset: usize| LittleEndian::read_u64(&bytes[offset..]);
        let u32_at = |offset: usize| LittleEndian::read_u32(&bytes[offset..]);
        let is_own = u32_at(at::FORWARD_OWNER) == owner;
        if !is_own || u32_at(at::FORWARD_SUM) != sum_of(bytes, seed) {
            return None;
        }
        let has = |flag: u32| u32_at(at::FORWARD_FLAGS) & flag != 0;
        let (until, handed) = (u64_at(at::FORWARD_UNTIL), u64_at(at::FORWARD_HANDED));
        let slot = ForwardSlot {
            number: u64_at(at::FORWARD_NUMBER),
            owner,
            until,
            there: until.saturating_sub(u64_at(at::FORWARD_LEFT_OUT)).min(handed),
            began: u64_at(at::FORWARD_BEGAN),
            position: has(HAS_POSITION)
                .then(|| (u64_at(at::FORWARD_STORE), u64_at(at::FORWARD_AT))),
            chain: has(HAS_CHAIN).then(|| u32_at(at::FORWARD_CHAIN)),
            counts_differ: has(COUNTS_DIFFER),
            handed,
            time: u64_at(at::FORWARD_TIME),
        };
        let numbers = [slot.number, slot.until, slot.began, slot.handed];
        numbers.into_iter().all(|it| it < LIMIT).then_some(slot)
    }
}

/// The checksum of a slot. Both halves of `FORWARD_LEFT_OUT` change its seed.
fn sum_of(slot: &[u8], seed: u32) -> u32 {
    let (sum, left_out) = (forward_at::FORWARD_SUM, &slot[forward_at::FORWARD_LEFT_OUT..]);
    let left_out = LittleEndian::read_u32(left_out) ^ LittleEndian::read_u32(&left_out[4..]);
    checksum(seed ^ left_out, &slot[..sum])
}
