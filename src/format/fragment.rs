//! A fragment (a record or a piece of one): its header and checksums, and the seal of a batch.

use byteorder::{ByteOrder, LittleEndian};

use super::*;
use crate::memory::checksum::checksum_words;

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
    /// Holds no record: fills the rest of a segment, or the space of an unfinished record.
    Padding = 5,
    /// Fills the space of records that a power cut destroyed: no record will ever have the numbers
    /// before its own.
    Gap = 6,
}

impl Kind {
    /// Whether the fragment is no piece of a record.
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

/// Set in a fragment's kind when the seal of its batch follows the payload.
const SEAL_BIT: u8 = SEAL_LEN as u8;
/// Set in a fragment's kind when its record is not the last one of its batch.
const MORE_BIT: u8 = 16;
/// Set in a fragment's kind when its record is not the first one of its batch.
const CONTINUES_BIT: u8 = 32;
/// Set in the kind of a dead letter's first or only fragment: an origin precedes the message.
const ORIGIN_BIT: u8 = 64;
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
    /// The seal of the batch follows the payload.
    pub(crate) sealed: bool,
    /// The payload begins with an origin.
    pub(crate) has_origin: bool,
    /// Payload bytes, the origin's included.
    pub(crate) len: u32,
    /// Low 40 bits of the sequence number.
    pub(crate) seq: u64,
}

/// The stored header: two little-endian words, of which the second is stored first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FragmentWords(pub(crate) u64, pub(crate) u64);

impl FragmentWords {
    /// The `FRAGMENT_SUM`: the checksum of header and payload.
    #[inline]
    pub(crate) fn sum(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    fn len_and_tag(self) -> (u32, u64) {
        ((self.0 >> 32) as u32, self.1 & ((1 << 48) - 1))
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
    /// The header of a record of `len` payload bytes in one piece.
    #[inline]
    pub(crate) fn whole(seq: u64, len: u32, batch: Batch) -> Fragment {
        let Batch { more, continues, has_origin } = batch;
        let sealed = batch.is_sealed();
        Fragment { kind: Kind::Whole, more, continues, sealed, has_origin, len, seq }
    }

    /// The fragment's length in the segment.
    #[inline]
    pub(crate) fn total_len(&self) -> u64 {
        fragment_len(u64::from(self.len)) + if self.sealed { SEAL_LEN } else { 0 }
    }

    /// Payload bytes of the message, without the origin.
    pub(crate) fn message_len(&self) -> u64 {
        u64::from(self.len) - if self.has_origin { ORIGIN_LEN as u64 } else { 0 }
    }

    /// The seal's offset from the fragment's beginning, if there is a seal.
    pub(crate) fn seal_at(&self) -> Option<u64> {
        self.sealed.then(|| fragment_len(u64::from(self.len)))
    }

    #[inline]
    fn tag(&self) -> u64 {
        let kind = self.kind as u8
            | (u8::from(self.sealed) * SEAL_BIT)
            | (u8::from(self.more) * MORE_BIT)
            | (u8::from(self.continues) * CONTINUES_BIT)
            | (u8::from(self.has_origin) * ORIGIN_BIT);
        (self.seq & SEQ_MASK) | u64::from(kind) << SEQ_BITS
    }

    /// The checksum of the header words, seeded with the segment's `seed`.
    #[inline]
    pub(crate) fn header_sum(&self, seed: u32, offset: u64) -> u32 {
        header_sum(seed, offset, self.len, self.tag())
    }

    /// The two words of the header. `header_sum` is [`Fragment::header_sum`], and `sum` what
    /// [`with_payload`] makes of it and the payload.
    #[inline]
    pub(crate) fn encode(&self, header_sum: u32, sum: u32) -> FragmentWords {
        let words = FragmentWords(
            u64::from(sum) | u64::from(self.len) << 32,
            self.tag() | u64::from(fold(header_sum)) << 48,
        );
        holds!(
            Fragment::unchecked(words).is_some_and(|read| {
                (read.kind, read.len, read.sealed) == (self.kind, self.len, self.sealed)
                    && (read.more, read.continues) == (self.more, self.continues)
                    && read.has_origin == self.has_origin
                    && read.is_numbered(self.seq)
            }),
            "a header of a fragment that is written can be read: {self:?}"
        );
        words
    }

    /// The header in these words and its [`header_sum`](Self::header_sum). `None` when the header's
    /// own check fails at this offset.
    #[inline]
    pub(crate) fn decode(words: FragmentWords, seed: u32, offset: u64) -> Option<(Fragment, u32)> {
        let (len, tag) = words.len_and_tag();
        let header_sum = header_sum(seed, offset, len, tag);
        if u64::from(fold(header_sum)) != words.1 >> 48 {
            return None;
        }
        Some((Fragment::unchecked(words)?, header_sum))
    }

    /// The header in these words, if it is well-formed. Does not verify its check, which needs the
    /// segment's seed.
    #[inline]
    pub(crate) fn unchecked(words: FragmentWords) -> Option<Fragment> {
        let (len, tag) = words.len_and_tag();
        let bits = (tag >> SEQ_BITS) as u8;
        let kind = Kind::from_bits(bits & !(SEAL_BIT | MORE_BIT | CONTINUES_BIT | ORIGIN_BIT))?;
        let has_origin = bits & ORIGIN_BIT != 0;
        // An origin lies in the first piece, completely.
        let may_have = matches!(kind, Kind::Whole | Kind::First) && len as usize >= ORIGIN_LEN;
        (!has_origin || may_have).then_some(Fragment {
            kind,
            sealed: bits & SEAL_BIT != 0,
            more: bits & MORE_BIT != 0,
            continues: bits & CONTINUES_BIT != 0,
            has_origin,
            len,
            seq: tag & SEQ_MASK,
        })
    }

    /// The seed under which a fragment with these words at `offset` validates. `payload` is the
    /// payload's sum, `chain` the checksum of the fragment before in the same record. `None` when
    /// the header's own check fails, which one of 65,536 wrong seeds passes.
    pub(crate) fn seed_of(
        words: FragmentWords,
        offset: u64,
        chain: u32,
        payload: u64,
    ) -> Option<u32> {
        let (len, tag) = words.len_and_tag();
        // The seed and each of the sums count by exclusive or.
        let seed = with_payload(header_sum(words.sum() ^ chain, offset, len, tag), payload);
        Fragment::decode(words, seed, offset).map(|_| seed)
    }

    /// For the header of the record `seq` in one piece: the payload's length, the record's length,
    /// and the [`header_sum`](Self::header_sum). `None` for any other header, also a dead letter's,
    /// and when its own check fails at this offset.
    #[inline(always)]
    pub(crate) fn decode_whole(
        words: FragmentWords,
        seed: u32,
        offset: u64,
        seq: u64,
    ) -> Option<(u32, u64, u32)> {
        const FREE: u64 = ((SEAL_BIT | MORE_BIT | CONTINUES_BIT) as u64) << SEQ_BITS;
        const TAG: u64 = (1 << 48) - 1;
        let wanted = (seq & SEQ_MASK) | (Kind::Whole as u64) << SEQ_BITS;
        if (words.1 ^ wanted) & (TAG & !FREE) != 0 {
            return None;
        }
        let (len, tag) = ((words.0 >> 32) as u32, words.1 & TAG);
        let header_sum = header_sum(seed, offset, len, tag);
        if u64::from(fold(header_sum)) != words.1 >> 48 {
            return None;
        }
        const { assert!(SEAL_BIT as u64 == SEAL_LEN) };
        let seal = tag >> SEQ_BITS & SEAL_LEN;
        Some((len, fragment_len(u64::from(len)) + seal, header_sum))
    }

    /// The number nearest to `near` with this fragment's low bits.
    pub(crate) fn seq_near(&self, near: u64) -> u64 {
        let above = self.seq_from(near);
        holds!(above >= near, "the number {above} lies at {near} or behind it");
        let below = above.checked_sub(SEQ_MASK + 1);
        below.filter(|below| near - below < above - near).unwrap_or(above)
    }

    /// Whether this fragment has the number `seq`.
    #[inline]
    pub(crate) fn is_numbered(&self, seq: u64) -> bool {
        self.seq == seq & SEQ_MASK
    }

    /// The full number of this fragment: `floor` or the first number above it with the same low
    /// bits.
    #[inline]
    pub(crate) fn seq_from(&self, floor: u64) -> u64 {
        let seq = floor + (self.seq.wrapping_sub(floor) & SEQ_MASK);
        holds!(self.is_numbered(seq), "the number {seq} has the last bits of {}", self.seq);
        seq
    }
}

/// The seal of a batch, computed fragment by fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seal(u32);

impl Seal {
    pub(crate) const NEW: Seal = Seal(0);

    /// Adds the next fragment of the batch, given by its `FRAGMENT_SUM`.
    #[inline]
    pub(crate) fn add(&mut self, sum: u32) {
        self.0 = checksum_words(self.0, [sum.into()]);
    }

    /// The word after the batch's last fragment.
    #[inline]
    pub(crate) fn word(self) -> u64 {
        u64::from(self.0)
    }
}

#[inline]
fn header_sum(seed: u32, offset: u64, len: u32, tag: u64) -> u32 {
    checksum_words(0, [offset << 32 | u64::from(len), tag]) ^ seed
}

/// The checksum of a fragment whose header has the sum `header`, and whose payload the sum
/// `payload`.
#[inline]
pub(crate) fn with_payload(header: u32, payload: u64) -> u32 {
    header ^ payload as u32
}

#[inline]
fn fold(sum: u32) -> u16 {
    (sum ^ sum >> 16) as u16
}

/// The record's position in its batch, and whether it is a dead letter, which is in no batch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Batch {
    pub(crate) more: bool,
    pub(crate) continues: bool,
    /// Its payload begins with an origin.
    pub(crate) has_origin: bool,
}

impl Batch {
    /// For a dead letter.
    pub(crate) const DEAD_LETTER: Batch = Batch { more: false, continues: false, has_origin: true };

    /// For the record at `index` of a batch of `records`.
    pub(crate) fn of(index: usize, records: usize) -> Batch {
        Batch { more: index + 1 < records, continues: index > 0, has_origin: false }
    }

    pub(crate) fn is_sealed(self) -> bool {
        self.continues && !self.more
    }

    pub(crate) fn is_single(self) -> bool {
        !self.continues && !self.more
    }

    /// The length of a record in one piece.
    #[inline]
    pub(crate) fn record_len(self, payload: u64) -> u64 {
        fragment_len(payload) + if self.is_sealed() { SEAL_LEN } else { 0 }
    }
}

/// The header of a padding or a gap that fills the positions `from .. to` of a segment. `None` when
/// even the header does not fit.
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
    holds!(
        segment.base <= from && to <= segment.end() && kind.is_empty(),
        "what fills {from} to {to} lies in its segment, which ends at {}, and is no message",
        segment.end()
    );
    let len = (to - from - FRAGMENT_HEADER_LEN) as u32;
    let header = Fragment { kind, len, ..Fragment::whole(seq, 0, Batch::default()) };
    let header_sum = header.header_sum(segment.seed(), from - segment.base);
    header.encode(header_sum, header_sum)
}
