//! A row of attempts: a consumer's delivered messages, and their counts of failed attempts.

use byteorder::{ByteOrder, LittleEndian};

use super::consumer_row::{put_short, take_short};
use super::*;
use crate::memory::checksum::crc32c;

pub(crate) const ATTEMPTS_SLOT_LEN: usize = SECTOR / 2;
pub(crate) const ATTEMPTS_ROW_LEN: usize = 2 * ATTEMPTS_SLOT_LEN;
/// The number of consumers of a queue that can have such a row.
pub(crate) const ATTEMPTS_ROWS: usize = 4;
/// Set in the count of a message that must not be delivered again.
pub(crate) const REJECTED: u32 = 1 << 31;
/// Set in the count of a message that was delivered although it is not below the mark.
pub(crate) const LISTED: u32 = 1 << 30;

/// Offsets in one slot of a row of attempts, in bytes.
pub(crate) mod attempts_at {
    pub(crate) const ATTEMPTS_NUMBER: usize = 0;
    pub(crate) const ATTEMPTS_BELOW: usize = 8;
    pub(crate) const ATTEMPTS_ALONE: usize = 16;
    pub(crate) const ATTEMPTS_FROM: usize = 24;
    pub(crate) const ATTEMPTS_OWNER: usize = 32;
    pub(crate) const ATTEMPTS_LEN: usize = 36;
    pub(crate) const ATTEMPTS_CRC: usize = 40;
    pub(crate) const ATTEMPTS_COUNTS: usize = 44;
}

/// One slot of a row of attempts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Attempts {
    pub(crate) number: u64,
    /// The consumer's row.
    pub(crate) owner: u32,
    /// Messages below this number may have been delivered; the others have not (see `LISTED`).
    pub(crate) below: u64,
    /// The message that was delivered while no other was in flight.
    pub(crate) alone: Option<u64>,
    /// Messages by number, ascending, each with its number of deliveries without an
    /// acknowledgement.
    pub(crate) counts: Vec<(u64, u32)>,
}

impl Attempts {
    /// Encodes as many of the counts as fit, the lowest numbers first. Returns the encoded length,
    /// and the first message whose count did not fit.
    pub(crate) fn encode(
        &self,
        counts: impl Iterator<Item = (u64, u32)>,
        seed: u32,
        bytes: &mut [u8; ATTEMPTS_SLOT_LEN],
    ) -> (usize, Option<u64>) {
        use attempts_at as at;
        let mut len = at::ATTEMPTS_COUNTS;
        let (mut bounds, mut left_out) = (None, None);
        for (seq, count) in counts {
            let (from, end) = bounds.unwrap_or((seq, seq));
            let behind = u32::try_from(seq - end)
                .ok()
                .and_then(|distance| put_short(bytes, len, distance))
                .and_then(|len| put_short(bytes, len, count));
            let Some(behind) = behind else {
                left_out = Some(seq);
                break;
            };
            len = behind;
            bounds = Some((from, seq));
        }
        LittleEndian::write_u64(&mut bytes[at::ATTEMPTS_NUMBER..], self.number);
        LittleEndian::write_u64(&mut bytes[at::ATTEMPTS_BELOW..], self.below);
        let alone = self.alone.map_or(0, |seq| seq + 1);
        LittleEndian::write_u64(&mut bytes[at::ATTEMPTS_ALONE..], alone);
        let from = bounds.map_or(0, |(from, _)| from);
        LittleEndian::write_u64(&mut bytes[at::ATTEMPTS_FROM..], from);
        LittleEndian::write_u32(&mut bytes[at::ATTEMPTS_OWNER..], self.owner);
        let counts_len = (len - at::ATTEMPTS_COUNTS) as u32;
        LittleEndian::write_u32(&mut bytes[at::ATTEMPTS_LEN..], counts_len);
        let crc = Attempts::crc(bytes, len, seed);
        LittleEndian::write_u32(&mut bytes[at::ATTEMPTS_CRC..], crc);
        holds!(
            Attempts::decode(bytes, self.owner, seed).is_some_and(|read| {
                (read.number, read.below, read.alone) == (self.number, self.below, self.alone)
                    && read.counts.last().map(|(seq, _)| *seq) == bounds.map(|(_, seq)| seq)
            }),
            "counts that are written can be read, number {} of consumer {}",
            self.number,
            self.owner
        );
        (len, left_out)
    }

    /// Decodes a slot, if it validates for the consumer in the row `owner` under its `seed`.
    pub(crate) fn decode(bytes: &[u8], owner: u32, seed: u32) -> Option<Attempts> {
        use attempts_at as at;
        let bytes = bytes.get(..ATTEMPTS_SLOT_LEN)?;
        let len = LittleEndian::read_u32(&bytes[at::ATTEMPTS_LEN..]) as usize;
        let len = at::ATTEMPTS_COUNTS.checked_add(len)?;
        if len > ATTEMPTS_SLOT_LEN || LittleEndian::read_u32(&bytes[at::ATTEMPTS_OWNER..]) != owner
        {
            return None;
        }
        let crc = LittleEndian::read_u32(&bytes[at::ATTEMPTS_CRC..]);
        if crc != Attempts::crc(bytes, len, seed) {
            return None;
        }
        let u64_at = |offset: usize| LittleEndian::read_u64(&bytes[offset..]);
        let mut counts = Vec::new();
        let mut seq = u64_at(at::ATTEMPTS_FROM);
        let mut rest = &bytes[at::ATTEMPTS_COUNTS..len];
        while !rest.is_empty() {
            seq = seq.checked_add(take_short(&mut rest)?).filter(|seq| *seq < LIMIT)?;
            counts.push((seq, u32::try_from(take_short(&mut rest)?).ok()?));
        }
        let (number, below) = (u64_at(at::ATTEMPTS_NUMBER), u64_at(at::ATTEMPTS_BELOW));
        let alone = u64_at(at::ATTEMPTS_ALONE).checked_sub(1);
        let sound = number < LIMIT && below <= LIMIT && alone.is_none_or(|seq| seq < LIMIT);
        sound.then_some(Attempts { number, owner, below, alone, counts })
    }

    /// Counts one more failed attempt of the message.
    pub(crate) fn count_once_more(&mut self, seq: u64) {
        match self.counts.binary_search_by_key(&seq, |(seq, _)| *seq) {
            // (The count stays below the bit of a rejection.)
            Ok(at) => {
                let count = &mut self.counts[at].1;
                *count = (*count + 1).min(*count | !REJECTED);
            }
            Err(at) => self.counts.insert(at, (seq, 1)),
        }
    }

    fn crc(bytes: &[u8], len: usize, seed: u32) -> u32 {
        let head = crc32c(seed, &bytes[..attempts_at::ATTEMPTS_CRC]);
        !crc32c(head, &bytes[attempts_at::ATTEMPTS_COUNTS..len])
    }
}
