//! A segment's header.

use byteorder::{ByteOrder, LittleEndian};

use super::*;
use crate::memory::checksum::{checksum, checksum_words};

/// Offsets in a segment header.
mod segment_at {
    pub(super) const SEGMENT_MAGIC: usize = 0;
    pub(super) const VERSION: usize = 8;
    pub(super) const STATE: usize = 12;
    pub(super) const CAUSE: usize = 13;
    pub(super) const QUEUE_ID: usize = 16;
    pub(super) const LIFE: usize = 32;
    pub(super) const BASE: usize = 40;
    pub(super) const FIRST_SEQ: usize = 48;
    pub(super) const GAP_BEFORE: usize = 56;
    pub(super) const CREATED: usize = 64;
    pub(super) const LENGTH: usize = 72;
    pub(super) const ALLOCATED: usize = 80;
    pub(super) const SALT: usize = 88;
    pub(super) const FILE: usize = 92;
    pub(super) const DISK: usize = 96;
    pub(super) const RESERVED: usize = 104;
    pub(super) const RETAINED_FROM: usize = 112;
    pub(super) const SPAN: usize = 120;
    pub(super) const HEADER_SUM: usize = 124;
}

/// Whether a segment holds messages or waits for its next use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentState {
    Live,
    Spare,
}

/// The header of a segment, from its file or from its row in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Only segments of [`Version::Origins`] hold dead letters.
    pub(crate) version: Version,
    pub(crate) state: SegmentState,
    pub(crate) queue_id: [u8; 16],
    /// The number of this use of the slot.
    pub(crate) life: u64,
    /// Position of the first byte after the header.
    pub(crate) base: u64,
    pub(crate) first_seq: u64,
    /// The numbers missing right before `first_seq`.
    pub(crate) missing: MissingBefore,
    /// Everything below this number was given back when the header was written.
    pub(crate) retained_from: u64,
    /// When the segment's first message was written, in milliseconds since 1970. Later than that
    /// when its messages expired and another segment did not fit.
    pub(crate) created: u64,
    /// The segment's last message was written before this time, in milliseconds since 1970. Zero:
    /// not known.
    pub(crate) until: u64,
    /// The file's length when it is fully allocated, with the header.
    pub(crate) length: u64,
    /// Bytes of the file that are allocated.
    pub(crate) allocated: u64,
    /// Bytes of disk space of the file.
    pub(crate) disk: u64,
    /// The lower half of the file's identity: only the index's row has it.
    pub(crate) file: u32,
    pub(crate) salt: u32,
}

impl SegmentHeader {
    pub(crate) fn capacity(&self) -> u64 {
        (self.length - SEGMENT_HEADER_LEN) / ALIGN * ALIGN
    }

    /// The position after the segment's last byte.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.capacity()
    }

    /// Whether this segment was made later than the `other` one, and overlaps it or lies before it.
    pub(crate) fn outlives(&self, other: &SegmentHeader) -> bool {
        self.life > other.life && self.base < other.end()
    }

    /// Where the segment begins, including the numbers that were lost before it.
    pub(crate) fn beginning(&self) -> Spot {
        Spot {
            position: self.base,
            seq: if self.missing.is_reserved() { self.first_seq } else { self.missing_from() },
        }
    }

    /// The header as the file has it: without the fields that only the index's row has.
    pub(crate) fn in_file(&self) -> SegmentHeader {
        SegmentHeader { allocated: 0, disk: 0, file: 0, ..*self }
    }

    /// The first of the numbers missing before the segment, or else the segment's first number.
    pub(crate) fn missing_from(&self) -> u64 {
        self.missing.first(self.first_seq)
    }

    /// Whether both headers belong to the same life of a segment, with the same first record.
    pub(crate) fn begins_as(&self, other: &SegmentHeader) -> bool {
        let beginning =
            |header: &SegmentHeader| (header.queue_id, header.life, header.base, header.first_seq);
        beginning(self) == beginning(other)
    }

    /// This header, corrected by the index's `row` of the same life. A spare gets another life
    /// before it is live again: if the row declares it a spare, the header is older.
    pub(crate) fn corrected_by(self, row: &SegmentHeader) -> SegmentHeader {
        let is_spare = row.state == SegmentState::Spare;
        let state = if is_spare { SegmentState::Spare } else { self.state };
        SegmentHeader { state, ..self.with_more_missing(row) }
    }

    /// This header, with the gap of the index's row if that is longer: the file could not be
    /// written when the gap was stated. `row` is of the same life.
    pub(crate) fn with_more_missing(self, row: &SegmentHeader) -> SegmentHeader {
        if row.missing.gap <= self.missing.gap || !self.begins_as(row) {
            return self;
        }
        SegmentHeader { missing: row.missing, ..self }
    }

    /// What seeds the checksum of every fragment of this segment.
    pub(crate) fn seed(&self) -> u32 {
        if planted!(ChecksumNotSeeded) {
            return 0;
        }
        self.unsalted_seed() ^ self.salt
    }

    fn unsalted_seed(&self) -> u32 {
        checksum_words(checksum(0, &self.queue_id), [self.life, self.base])
    }

    /// The header of a copy of this segment in the queue `queue_id`: its salt makes the seed the
    /// same, so that every fragment validates there unchanged.
    pub(crate) fn copied_to(self, queue_id: [u8; 16]) -> SegmentHeader {
        let copy = SegmentHeader { queue_id, ..self };
        let salt = self.salt ^ self.unsalted_seed() ^ copy.unsalted_seed();
        let copy = SegmentHeader { salt, ..copy };
        holds!(copy.seed() == self.seed(), "a copy has the checksums of the segment {self:?}");
        copy
    }

    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_LEN as usize] {
        use segment_at as at;
        let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
        LittleEndian::write_u64(&mut bytes[at::SEGMENT_MAGIC..], SEGMENT_MAGIC);
        LittleEndian::write_u32(&mut bytes[at::VERSION..], self.version as u32);
        bytes[at::STATE] = match self.state {
            SegmentState::Live => 1,
            SegmentState::Spare => 2,
        };
        bytes[at::CAUSE] = self.missing.cause;
        bytes[at::QUEUE_ID..at::QUEUE_ID + 16].copy_from_slice(&self.queue_id);
        for (offset, value) in [
            (at::LIFE, self.life),
            (at::BASE, self.base),
            (at::FIRST_SEQ, self.first_seq),
            (at::GAP_BEFORE, self.missing.gap),
            (at::CREATED, self.created),
            (at::LENGTH, self.length),
            (at::ALLOCATED, self.allocated),
            (at::DISK, self.disk),
            (at::RESERVED, self.missing.reserved),
            (at::RETAINED_FROM, self.retained_from),
        ] {
            LittleEndian::write_u64(&mut bytes[offset..], value);
        }
        let span = u32::try_from(self.until.saturating_sub(self.created)).unwrap_or(0);
        LittleEndian::write_u32(&mut bytes[at::SPAN..], span);
        LittleEndian::write_u32(&mut bytes[at::SALT..], self.salt);
        LittleEndian::write_u32(&mut bytes[at::FILE..], self.file);
        let sum = checksum(0, &bytes[..at::HEADER_SUM]);
        LittleEndian::write_u32(&mut bytes[at::HEADER_SUM..], sum);
        holds!(
            SegmentHeader::decode(&bytes).is_ok_and(|read| read.begins_as(self)),
            "a header of a segment that is written can be read: {self:?}"
        );
        bytes
    }

    /// Decodes the header. Every number in it is below [`LIMIT`], so no sum of two overflows.
    pub(crate) fn decode(
        bytes: &[u8; SEGMENT_HEADER_LEN as usize],
    ) -> Result<SegmentHeader, Invalid> {
        use segment_at as at;
        let u64_at = |offset: usize| LittleEndian::read_u64(&bytes[offset..]);
        let sum = checksum(0, &bytes[..at::HEADER_SUM]);
        let holds = LittleEndian::read_u32(&bytes[at::HEADER_SUM..]) == sum;
        if u64_at(at::SEGMENT_MAGIC) != SEGMENT_MAGIC {
            return Err(Invalid::Damaged);
        }
        if !holds {
            return Err(invalid_header(bytes));
        }
        let version = Version::from_number(LittleEndian::read_u32(&bytes[at::VERSION..]))?;
        let mut queue_id = [0; 16];
        queue_id.copy_from_slice(&bytes[at::QUEUE_ID..at::QUEUE_ID + 16]);
        let header = SegmentHeader {
            version,
            state: match bytes[at::STATE] {
                1 => SegmentState::Live,
                2 => SegmentState::Spare,
                _ => return Err(Invalid::Damaged),
            },
            queue_id,
            life: u64_at(at::LIFE),
            base: u64_at(at::BASE),
            first_seq: u64_at(at::FIRST_SEQ),
            missing: MissingBefore {
                gap: u64_at(at::GAP_BEFORE),
                reserved: u64_at(at::RESERVED),
                cause: bytes[at::CAUSE],
            },
            retained_from: u64_at(at::RETAINED_FROM),
            created: u64_at(at::CREATED),
            until: match LittleEndian::read_u32(&bytes[at::SPAN..]) {
                0 => 0,
                span => u64_at(at::CREATED).saturating_add(span.into()),
            },
            length: u64_at(at::LENGTH),
            allocated: u64_at(at::ALLOCATED),
            disk: u64_at(at::DISK),
            file: LittleEndian::read_u32(&bytes[at::FILE..]),
            salt: LittleEndian::read_u32(&bytes[at::SALT..]),
        };
        let sound = header.length >= SEGMENT_HEADER_LEN + FRAGMENT_HEADER_LEN
            && header.length <= MAX_SEGMENT_LEN
            && header.allocated <= header.length
            && header.disk <= 2 * MAX_SEGMENT_LEN
            && is_position(header.base)
            && header.first_seq < LIMIT
            && header.missing.is_sound(header.first_seq)
            && header.life < LIMIT
            && header.retained_from < LIMIT
            && header.created < LIMIT;
        if sound { Ok(header) } else { Err(Invalid::Damaged) }
    }
}
