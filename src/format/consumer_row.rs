//! A consumer in the index file: its name, its place, and its acknowledgements out of order.

use byteorder::{ByteOrder, LittleEndian};

use super::*;
use super::{NumberRange, Spot};
use crate::memory::checksum::{checksum, checksum_words};

pub(crate) const NAME_ROW_LEN: usize = 256;
/// Length of a pair of places, and of a copy.
pub(crate) const PLACE_PAIR_LEN: usize = 2 * PLACE_SLOT_LEN;
pub(crate) const PLACE_SLOT_LEN: usize = 32;
/// Bytes of an extent for one consumer: name, pair and copy.
pub(crate) const CONSUMER_ROW_LEN: usize = NAME_ROW_LEN + 2 * PLACE_PAIR_LEN;
pub(crate) const CONSUMER_ROWS: usize = 64;
pub(crate) const ACKS_ROW_LEN: usize = 2 * ACKS_SLOT_LEN;
pub(crate) const ACKS_ROWS: usize = 6;
pub(crate) const ACKS_SLOT_LEN: usize = SECTOR / 2;
pub(crate) const MAX_NAME_LEN: usize = 255;
/// The longest name that fits into the copy of a consumer's place.
pub(crate) const MAX_SHORT_NAME_LEN: usize = PLACE_PAIR_LEN - place_at::PLACE_NAME - 1;

/// Offsets in the name of a consumer, in bytes.
pub(crate) mod name_at {
    pub(crate) const NAME_LEN: usize = 0;
    pub(crate) const NAME: usize = 1;
}
pub(crate) mod place_at {
    pub(crate) const PLACE_NUMBER: usize = 0;
    pub(crate) const PLACE_POSITION: usize = 8;
    pub(crate) const PLACE_SEQ: usize = 16;
    pub(crate) const PLACE_SUM: usize = 24;
    pub(crate) const PLACE_NAME: usize = 28;
}

/// Offsets in one slot of a row of acknowledgements, in bytes.
pub(crate) mod acks_at {
    pub(crate) const ACKS_NUMBER: usize = 0;
    pub(crate) const ACKS_FROM: usize = 8;
    pub(crate) const ACKS_OWNER: usize = 16;
    pub(crate) const ACKS_LEN: usize = 20;
    pub(crate) const ACKS_SUM: usize = 24;
    pub(crate) const ACKS_RANGES: usize = 28;
}

/// A consumer's position in the queue, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) number: u64,
    pub(crate) position: u64,
    pub(crate) seq: u64,
}

/// Offsets of one consumer's parts, in bytes from the beginning of its extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConsumerAt {
    pub(crate) name: usize,
    pub(crate) pair: usize,
    pub(crate) copy: usize,
}

impl ConsumerAt {
    /// The offsets for the consumer in `row` of an extent of `rows`.
    pub(crate) fn new(row: u32, rows: u32) -> ConsumerAt {
        let (row, rows) = (row as usize, rows as usize);
        let pair = rows * NAME_ROW_LEN + row * PLACE_PAIR_LEN;
        ConsumerAt { name: row * NAME_ROW_LEN, pair, copy: pair + rows * PLACE_PAIR_LEN }
    }

    /// The offsets of the consumer's three places: two slots, and the copy.
    pub(crate) fn places(&self) -> [usize; 3] {
        [self.pair, self.pair + PLACE_SLOT_LEN, self.copy]
    }
}

/// Encodes a consumer's name.
pub(crate) fn encode_name(name: &str) -> [u8; NAME_ROW_LEN] {
    let mut bytes = [0; NAME_ROW_LEN];
    bytes[name_at::NAME_LEN] = name.len() as u8;
    bytes[name_at::NAME..name_at::NAME + name.len()].copy_from_slice(name.as_bytes());
    bytes
}

/// Decodes a name: from the row of a name, or the short name in a copy.
pub(crate) fn decode_name(bytes: &[u8]) -> Option<&str> {
    let len = usize::from(*bytes.get(name_at::NAME_LEN)?);
    std::str::from_utf8(bytes.get(name_at::NAME..name_at::NAME + len)?).ok()
}

impl Place {
    /// A place that marks the consumer as removed while it is the newest one.
    pub(crate) fn removed(number: u64) -> Place {
        Place { number, position: u64::MAX, seq: 0 }
    }

    pub(crate) fn spot(&self) -> Spot {
        Spot { position: self.position, seq: self.seq }
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.position == u64::MAX
    }

    /// The copy of a consumer with this name, without a place. For a long name it has only the
    /// length, which shows that there is a name.
    pub(crate) fn empty_copy(name: &str) -> [u8; PLACE_PAIR_LEN] {
        let mut bytes = [0; PLACE_PAIR_LEN];
        bytes[place_at::PLACE_NAME] = name.len() as u8;
        if name.len() <= MAX_SHORT_NAME_LEN {
            bytes[place_at::PLACE_NAME + 1..][..name.len()].copy_from_slice(name.as_bytes());
        }
        bytes
    }

    /// Decodes a place, if it validates under the consumer's `seed`.
    pub(crate) fn decode(bytes: &[u8], seed: u32) -> Option<Place> {
        let bytes = bytes.get(..place_at::PLACE_NAME)?;
        let place = Place {
            number: LittleEndian::read_u64(&bytes[place_at::PLACE_NUMBER..]),
            position: LittleEndian::read_u64(&bytes[place_at::PLACE_POSITION..]),
            seq: LittleEndian::read_u64(&bytes[place_at::PLACE_SEQ..]),
        };
        let sum = LittleEndian::read_u32(&bytes[place_at::PLACE_SUM..]);
        let holds = sum == place.sum(seed);
        (holds && (place.is_sound() || place.is_removed() && place.number < LIMIT)).then_some(place)
    }

    /// Encodes the place.
    pub(crate) fn encode(&self, seed: u32) -> [u8; place_at::PLACE_NAME] {
        let mut bytes = [0; place_at::PLACE_NAME];
        LittleEndian::write_u64_into(&self.words(), &mut bytes[..place_at::PLACE_SUM]);
        LittleEndian::write_u32(&mut bytes[place_at::PLACE_SUM..], self.sum(seed));
        bytes
    }

    /// The state from which a place's checksum starts: a place of another queue or another consumer
    /// does not validate.
    pub(crate) fn seed(queue_id: &[u8; 16], name: &[u8]) -> u32 {
        checksum(checksum(0, queue_id), name)
    }

    /// The words of the stored place; the checksum follows them.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 3] {
        const { assert!(place_at::PLACE_NUMBER == 0 && place_at::PLACE_POSITION == 8) };
        const { assert!(place_at::PLACE_SEQ == 16 && place_at::PLACE_SUM == 24) };
        [self.number, self.position, self.seq]
    }

    #[inline]
    pub(crate) fn sum(&self, seed: u32) -> u32 {
        checksum_words(seed, self.words())
    }

    /// Whether every number in the place is possible.
    fn is_sound(&self) -> bool {
        self.number < LIMIT && is_position(self.position) && self.seq < LIMIT
    }
}

/// One slot of a row of acknowledgements: the numbers that a consumer acknowledged out of order, as
/// ranges `first ..= last`, ascending, apart from each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Acks {
    pub(crate) number: u64,
    /// The consumer's row.
    pub(crate) owner: u32,
    pub(crate) ranges: Vec<NumberRange>,
}

impl Acks {
    /// Encodes as many of the ranges as fit, the lowest first, and returns the encoded length.
    /// After a crash the consumer gets the messages of the other ranges again. (Two ranges may
    /// touch.)
    pub(crate) fn encode(
        number: u64,
        owner: u32,
        ranges: impl Iterator<Item = NumberRange>,
        seed: u32,
        bytes: &mut [u8; ACKS_SLOT_LEN],
    ) -> usize {
        use acks_at as at;
        let mut len = at::ACKS_RANGES;
        let mut bounds = None;
        for NumberRange { first, last } in ranges {
            let (from, end) = bounds.unwrap_or((first, first));
            holds!(
                end <= first && first <= last,
                "ranges are stored in order, {first} behind {end}"
            );
            let (Ok(distance), Ok(count)) =
                (u32::try_from(first - end), u32::try_from(last - first + 1))
            else {
                break;
            };
            let Some(behind) =
                put_short(bytes, len, distance).and_then(|len| put_short(bytes, len, count))
            else {
                break;
            };
            len = behind;
            bounds = Some((from, last + 1));
        }
        LittleEndian::write_u64(&mut bytes[at::ACKS_NUMBER..], number);
        LittleEndian::write_u64(&mut bytes[at::ACKS_FROM..], bounds.map_or(0, |(from, _)| from));
        LittleEndian::write_u32(&mut bytes[at::ACKS_OWNER..], owner);
        LittleEndian::write_u32(&mut bytes[at::ACKS_LEN..], (len - at::ACKS_RANGES) as u32);
        let sum = Acks::sum(bytes, len, seed);
        LittleEndian::write_u32(&mut bytes[at::ACKS_SUM..], sum);
        holds!(
            Acks::decode(bytes, owner, seed).is_some_and(|read| {
                let end = read.ranges.last().map(|range| range.last + 1);
                read.number == number && end == bounds.map(|(_, end)| end)
            }),
            "acknowledgements that are written can be read, number {number} of {owner}"
        );
        len
    }

    /// The first number of the highest ranges that fit into a row, together with one more range
    /// before them. `ranges` come from the highest one down.
    pub(crate) fn highest_that_fit(ranges: impl Iterator<Item = NumberRange>) -> u64 {
        let mut room = ACKS_SLOT_LEN - acks_at::ACKS_RANGES - 2 * MAX_SHORT_LEN;
        let mut lowest = u64::MAX;
        for NumberRange { first, last } in ranges {
            // The distance to the range above is known only now.
            let above = if lowest == u64::MAX { 0 } else { lowest - last - 1 };
            let taken = short_len(above) + short_len(last - first + 1);
            // (The distance of the lowest range may need the full length.)
            if taken + MAX_SHORT_LEN > room {
                break;
            }
            room -= taken;
            holds!(first <= lowest, "ranges come from the highest down, {first} behind {lowest}");
            lowest = first;
        }
        lowest
    }

    /// Decodes the ranges, if they validate for the consumer in the row `owner` under its `seed`.
    pub(crate) fn decode(bytes: &[u8], owner: u32, seed: u32) -> Option<Acks> {
        use acks_at as at;
        let bytes = bytes.get(..ACKS_SLOT_LEN)?;
        let len =
            at::ACKS_RANGES.checked_add(LittleEndian::read_u32(&bytes[at::ACKS_LEN..]) as usize)?;
        if len > ACKS_SLOT_LEN || LittleEndian::read_u32(&bytes[at::ACKS_OWNER..]) != owner {
            return None;
        }
        let holds = LittleEndian::read_u32(&bytes[at::ACKS_SUM..]) == Acks::sum(bytes, len, seed);
        if !holds {
            return None;
        }
        let mut ranges = Vec::new();
        let mut end = LittleEndian::read_u64(&bytes[at::ACKS_FROM..]);
        let mut rest = &bytes[at::ACKS_RANGES..len];
        while !rest.is_empty() {
            let first = end.checked_add(take_short(&mut rest)?)?;
            end = first.checked_add(take_short(&mut rest)?)?;
            let last = end.checked_sub(1).filter(|last| *last >= first && *last < LIMIT)?;
            ranges.push(NumberRange { first, last });
        }
        let number = LittleEndian::read_u64(&bytes[at::ACKS_NUMBER..]);
        (number < LIMIT).then_some(Acks { number, owner, ranges })
    }

    fn sum(bytes: &[u8], len: usize, seed: u32) -> u32 {
        checksum(checksum(seed, &bytes[..acks_at::ACKS_SUM]), &bytes[acks_at::ACKS_RANGES..len])
    }
}

/// The most bytes that [`put_short`] writes.
const MAX_SHORT_LEN: usize = 5;

/// How many bytes [`put_short`] writes.
fn short_len(number: u64) -> usize {
    (number.max(1).ilog2() / 7 + 1) as usize
}

/// Writes a number in as few bytes as possible and returns the offset after them. `None` when they
/// do not fit.
pub(super) fn put_short(bytes: &mut [u8], mut at: usize, mut number: u32) -> Option<usize> {
    loop {
        let more = number >= 128;
        *bytes.get_mut(at)? = number as u8 & 127 | u8::from(more) << 7;
        (at, number) = (at + 1, number >> 7);
        if !more {
            return Some(at);
        }
    }
}

pub(super) fn take_short(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            return Some(number);
        }
    }
    None
}
