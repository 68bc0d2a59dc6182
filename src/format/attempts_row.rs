//! A row of attempts: a consumer's delivered messages, and their counts of failed attempts.

use std::collections::BTreeMap;
use std::ops::Range;

use byteorder::{ByteOrder, LittleEndian};

use super::consumer_row::{put_short, take_short};
use super::*;
use crate::memory::checksum::checksum;

pub(crate) const ATTEMPTS_SLOT_LEN: usize = SECTOR / 2;
pub(crate) const ATTEMPTS_ROW_LEN: usize = 2 * ATTEMPTS_SLOT_LEN;
/// The number of consumers of a queue that can have such a row.
pub(crate) const ATTEMPTS_ROWS: usize = 4;
/// Set in the count of a message that must not be delivered again.
pub(crate) const REJECTED: u32 = 1 << 31;
/// Set in the count of a message that is in flight.
pub(crate) const IN_FLIGHT: u32 = 1 << 30;
/// No slot has room for more counts.
const MOST_COUNTS: usize = (ATTEMPTS_SLOT_LEN - attempts_at::ATTEMPTS_COUNTS) / 2;

/// Offsets in one slot of a row of attempts, in bytes.
pub(crate) mod attempts_at {
    pub(crate) const ATTEMPTS_NUMBER: usize = 0;
    pub(crate) const ATTEMPTS_BELOW: usize = 8;
    pub(crate) const ATTEMPTS_FROM: usize = 16;
    pub(crate) const ATTEMPTS_OWNER: usize = 24;
    pub(crate) const ATTEMPTS_LEN: usize = 28;
    pub(crate) const ATTEMPTS_SUM: usize = 32;
    pub(crate) const ATTEMPTS_COUNTS: usize = 36;
}

/// One slot of a row of attempts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Attempts {
    pub(crate) number: u64,
    /// The consumer's row.
    pub(crate) owner: u32,
    /// Of the messages below this number that are not done, those without a count are in flight.
    pub(crate) below: u64,
    /// Messages by number, ascending, each with its number of deliveries without an
    /// acknowledgement, and perhaps `REJECTED` or `IN_FLIGHT`. (In the file these two are the
    /// lowest bits, so that a low count takes one byte.)
    pub(crate) counts: Vec<(u64, u32)>,
}

impl Attempts {
    /// Encodes as many of the counts as fit, the lowest numbers first. Returns the encoded length,
    /// and whether all of them fit.
    pub(crate) fn encode(
        &self,
        counts: impl Iterator<Item = (u64, u32)>,
        seed: u32,
        bytes: &mut [u8; ATTEMPTS_SLOT_LEN],
    ) -> (usize, bool) {
        use attempts_at as at;
        let mut len = at::ATTEMPTS_COUNTS;
        let (mut bounds, mut all_fit) = (None, true);
        for (seq, count) in counts {
            let (from, end) = bounds.unwrap_or((seq, seq));
            let behind = u32::try_from(seq - end)
                .ok()
                .and_then(|distance| put_short(bytes, len, distance))
                .and_then(|len| put_short(bytes, len, count.rotate_left(2)));
            let Some(behind) = behind else {
                all_fit = false;
                break;
            };
            len = behind;
            bounds = Some((from, seq));
        }
        LittleEndian::write_u64(&mut bytes[at::ATTEMPTS_NUMBER..], self.number);
        LittleEndian::write_u64(&mut bytes[at::ATTEMPTS_BELOW..], self.below);
        let from = bounds.map_or(0, |(from, _)| from);
        LittleEndian::write_u64(&mut bytes[at::ATTEMPTS_FROM..], from);
        LittleEndian::write_u32(&mut bytes[at::ATTEMPTS_OWNER..], self.owner);
        let counts_len = (len - at::ATTEMPTS_COUNTS) as u32;
        LittleEndian::write_u32(&mut bytes[at::ATTEMPTS_LEN..], counts_len);
        let sum = Attempts::sum(bytes, len, seed);
        LittleEndian::write_u32(&mut bytes[at::ATTEMPTS_SUM..], sum);
        holds!(
            Attempts::decode(bytes, self.owner, seed).is_some_and(|read| {
                (read.number, read.below) == (self.number, self.below)
                    && read.counts.last().map(|(seq, _)| *seq) == bounds.map(|(_, seq)| seq)
            }),
            "counts that are written can be read, number {} of consumer {}",
            self.number,
            self.owner
        );
        (len, all_fit)
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
        let sum = LittleEndian::read_u32(&bytes[at::ATTEMPTS_SUM..]);
        if sum != Attempts::sum(bytes, len, seed) {
            return None;
        }
        let u64_at = |offset: usize| LittleEndian::read_u64(&bytes[offset..]);
        let mut counts = Vec::new();
        let mut seq = u64_at(at::ATTEMPTS_FROM);
        let mut rest = &bytes[at::ATTEMPTS_COUNTS..len];
        while !rest.is_empty() {
            seq = seq.checked_add(take_short(&mut rest)?).filter(|seq| *seq < LIMIT)?;
            let count = u32::try_from(take_short(&mut rest)?).ok()?;
            counts.push((seq, count.rotate_right(2)));
        }
        let (number, below) = (u64_at(at::ATTEMPTS_NUMBER), u64_at(at::ATTEMPTS_BELOW));
        let sound = number < LIMIT && below <= LIMIT;
        sound.then_some(Attempts { number, owner, below, counts })
    }

    /// Ends the run that left this slot: nothing is in flight any more. After a death each message
    /// that was in flight has failed one more attempt: it `died_with` these messages not done.
    pub(crate) fn end_run(&mut self, died_with: Option<impl Iterator<Item = Range<u64>>>) {
        // (Collecting would sort first, which takes 7 KB of code.)
        let mut counts = BTreeMap::new();
        counts.extend(self.counts.drain(..));
        if let Some(open) = died_with {
            let open = open.flat_map(|open| open.start..open.end.min(self.below));
            let uncounted = open.filter(|seq| !counts.contains_key(seq)).take(MOST_COUNTS);
            let uncounted: Vec<u64> = uncounted.collect();
            counts.extend(uncounted.into_iter().map(|seq| (seq, IN_FLIGHT)));
            for count in counts.values_mut() {
                if *count & (REJECTED | IN_FLIGHT) == IN_FLIGHT {
                    *count = (*count + 1).min(2 * IN_FLIGHT - 1);
                }
            }
        }
        let ended = counts.into_iter().map(|(seq, count)| (seq, count & !IN_FLIGHT));
        self.counts = ended.filter(|(_, count)| *count != 0).collect();
        self.below = 0;
    }

    fn sum(bytes: &[u8], len: usize, seed: u32) -> u32 {
        let head = checksum(seed, &bytes[..attempts_at::ATTEMPTS_SUM]);
        checksum(head, &bytes[attempts_at::ATTEMPTS_COUNTS..len])
    }
}
