//! A fragment: the header of a record or of a piece of it, its checksums, and the seal of a batch.

use byteorder::{ByteOrder, LittleEndian};

use super::*;
use crate::memory::checksum::{crc32c, crc32c_words};

/// What a fragment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A record in one piece.
    Whole = 1,
    /// The first piece of a record.
    First = 2,
    Middle = 3,
    Last = 4,
    /// Nothing: fills the rest of a segment, or the place of something that never was.
    Padding = 5,
    /// Fills the place of records a power cut took: the numbers before its own will never come.
    Gap = 6,
}

impl Kind {
    /// Not a piece of a record.
    pub(crate) fn is_empty(self) -> bool {
        matches!(self, Kind::Padding | Kind::Gap)
    }

    fn from_bits(bits: u8) -> Option<Kind> {
        Some(match bits {
            1 => Kind::Whole,
            2 => Kind::First,
            3 => Kind::Middle,
            4 => Kind::Last,
            5 => Kind::Padding,
            6 => Kind::Gap,
            _ => return None,
        })
    }
}

/// Set in a fragment's kind when the seal of its batch lies behind the payload.
const SEAL_BIT: u8 = SEAL_LEN as u8;
/// Set in a fragment's kind when its record is not the last one of its batch.
const MORE_BIT: u8 = 16;
/// Set in a fragment's kind when its record is not the first one of its batch.
const CONTINUES_BIT: u8 = 32;
const SEQ_BITS: u32 = 40;
pub(super) const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;

/// A fragment's header, without its checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) kind: Kind,
    /// More records of the same batch follow.
    pub(crate) more: bool,
    /// Records of the same batch come before.
    pub(crate) continues: bool,
    /// The seal of the batch lies behind the payload.
    pub(crate) sealed: bool,
    /// Payload bytes.
    pub(crate) len: u32,
    /// Low 40 bits of the sequence number.
    pub(crate) seq: u64,
}

/// The header as stored: two little-endian words, the second stored first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FragmentWords(pub(crate) u64, pub(crate) u64);

impl FragmentWords {
    /// The `FRAGMENT_CRC`.
    #[inline]
    pub(crate) fn crc(self) -> u32 {
        self.0 as u32
    }

    /// The state that the checksum of the payload must end in.
    #[inline]
    pub(crate) fn payload_state(self) -> u32 {
        !self.crc()
    }

    #[inline]
    pub(crate) fn both(self) -> [u64; 2] {
        [self.0, self.1]
    }

    pub(crate) fn bytes(self) -> [u8; FRAGMENT_HEADER_LEN as usize] {
        let mut bytes = [0; FRAGMENT_HEADER_LEN as usize];
        LittleEndian::write_u64_into(&self.both(), &mut bytes);
        bytes
    }
}

impl Fragment {
    /// Of a record of `len` payload bytes in one piece.
    #[inline]
    pub(crate) fn whole(seq: u64, len: u32, batch: Batch) -> Fragment {
        let Batch { more, continues } = batch;
        Fragment { kind: Kind::Whole, more, continues, sealed: batch.is_sealed(), len, seq }
    }

    /// Bytes it takes in the segment.
    #[inline]
    pub(crate) fn total_len(&self) -> u64 {
        fragment_len(u64::from(self.len)) + if self.sealed { SEAL_LEN } else { 0 }
    }

    /// Where the seal lies, if there is one, counted from the fragment's beginning.
    pub(crate) fn seal_at(&self) -> Option<u64> {
        self.sealed.then(|| fragment_len(u64::from(self.len)))
    }

    #[inline]
    fn tag(&self) -> u64 {
        let kind = self.kind as u8
            | (u8::from(self.sealed) * SEAL_BIT)
            | (u8::from(self.more) * MORE_BIT)
            | (u8::from(self.continues) * CONTINUES_BIT);
        (self.seq & SEQ_MASK) | u64::from(kind) << SEQ_BITS
    }

    /// The checksum state behind the header words: what the payload's checksum continues from.
    #[inline]
    pub(crate) fn state(&self, seed: u32, offset: u64) -> u32 {
        header_state(seed, offset, self.len, self.tag())
    }

    /// The two words of the header. `payload_state` is [`state`](Self::state) carried on over the
    /// payload.
    #[inline]
    pub(crate) fn encode(&self, header_state: u32, payload_state: u32) -> FragmentWords {
        FragmentWords(
            u64::from(!payload_state) | u64::from(self.len) << 32,
            self.tag() | u64::from(fold(header_state)) << 48,
        )
    }

    /// The header in those words, when its own check holds at that offset; and the state its
    /// payload continues from.
    #[inline]
    pub(crate) fn decode(words: FragmentWords, seed: u32, offset: u64) -> Option<(Fragment, u32)> {
        let len = (words.0 >> 32) as u32;
        let tag = words.1 & ((1 << 48) - 1);
        let state = header_state(seed, offset, len, tag);
        let bits = (tag >> SEQ_BITS) as u8;
        if u64::from(fold(state)) != words.1 >> 48 {
            return None;
        }
        let fragment = Fragment {
            kind: Kind::from_bits(bits & !(SEAL_BIT | MORE_BIT | CONTINUES_BIT))?,
            sealed: bits & SEAL_BIT != 0,
            more: bits & MORE_BIT != 0,
            continues: bits & CONTINUES_BIT != 0,
            len,
            seq: tag & SEQ_MASK,
        };
        Some((fragment, state))
    }

    /// Whether the payload whose checksum state is given is the one the header was written for.
    #[inline]
    pub(crate) fn holds(words: FragmentWords, payload_state: u32) -> bool {
        words.payload_state() == payload_state
    }

    /// Whether this fragment carries the number `seq`.
    #[inline]
    pub(crate) fn is_numbered(&self, seq: u64) -> bool {
        self.seq == seq & SEQ_MASK
    }

    /// The full number, given one that is at most 2^39 below it and not above it.
    #[inline]
    pub(crate) fn seq_from(&self, floor: u64) -> u64 {
        floor + (self.seq.wrapping_sub(floor) & SEQ_MASK)
    }
}

/// The seal of a batch, while its fragments come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seal(u32);

impl Seal {
    pub(crate) const NEW: Seal = Seal(u32::MAX);

    /// Takes in the next fragment of the batch, given by its `FRAGMENT_CRC`.
    #[inline]
    pub(crate) fn add(&mut self, fragment_crc: u32) {
        self.0 = crc32c(self.0, &fragment_crc.to_le_bytes());
    }

    /// The word behind the batch's last fragment.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        u64::from(!self.0)
    }
}

#[inline]
fn header_state(seed: u32, offset: u64, len: u32, tag: u64) -> u32 {
    crc32c_words(seed, [offset << 32 | u64::from(len), tag])
}

#[inline]
fn fold(state: u32) -> u16 {
    (state ^ state >> 16) as u16
}

/// Whether a record belongs to a batch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Batch {
    pub(crate) more: bool,
    pub(crate) continues: bool,
}

impl Batch {
    /// For the record at `index` of so many.
    pub(crate) fn of(index: usize, records: usize) -> Batch {
        Batch { more: index + 1 < records, continues: index > 0 }
    }

    pub(crate) fn is_sealed(self) -> bool {
        self.continues && !self.more
    }

    pub(crate) fn is_single(self) -> bool {
        !self.continues && !self.more
    }

    /// Bytes a record in one piece takes.
    #[inline]
    pub(crate) fn record_len(self, payload: u64) -> u64 {
        fragment_len(payload) + if self.is_sealed() { SEAL_LEN } else { 0 }
    }
}

/// The bytes of a fragment that fills `from .. to` of a segment and holds nothing; none where
/// nothing fits.
pub(crate) fn filler(
    segment: &SegmentHeader,
    kind: Kind,
    from: u64,
    to: u64,
    seq: u64,
) -> Option<[u8; FRAGMENT_HEADER_LEN as usize]> {
    (from + FRAGMENT_HEADER_LEN <= to).then(|| filler_words(segment, kind, from, to, seq).bytes())
}

pub(crate) fn filler_words(
    segment: &SegmentHeader,
    kind: Kind,
    from: u64,
    to: u64,
    seq: u64,
) -> FragmentWords {
    let len = (to - from - FRAGMENT_HEADER_LEN) as u32;
    let header = Fragment { kind, len, ..Fragment::whole(seq, 0, Batch::default()) };
    let state = header.state(segment.seed(), from - segment.base);
    header.encode(state, state)
}
