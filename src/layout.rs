//! THE format: every byte of every file, written once.
//!
//! All integers are little-endian. A queue is a directory with one index file and numbered segment files. The
//! segments are the truth; the index is a hint that can be rebuilt from them.
//!
//! The tables below are held to the constants by a test in this file (`the_tables_say_what_the_code_does`).
//!
//! # Positions
//!
//! A *position* is a byte coordinate in the queue's life that never falls and is a multiple of 8. A segment whose header
//! says `base` holds the positions `base .. base + capacity`; position `p` lies at file offset `128 + (p - base)`.
//!
//! # Segment file `segment-NNNNNNNN`
//!
//! The number in the name is a slot, nothing more: order and validity come from the header. A drained segment's slot is
//! used again with a new header.
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `SEGMENT_MAGIC` | "mmqsegmt" |
//! | 8 | 4 | `VERSION` | format version |
//! | 12 | 1 | `STATE` | 1 live, 2 spare (drained, waiting to be used again) |
//! | 13 | 1 | `CAUSE` | cause of the numbers missing before `FIRST_SEQ` |
//! | 14 | 2 | | zero |
//! | 16 | 16 | `QUEUE_ID` | random, given when the queue was created |
//! | 32 | 8 | `LIFE` | number of this use of a slot, never used twice in a queue |
//! | 40 | 8 | `BASE` | position of the first byte behind this header |
//! | 48 | 8 | `FIRST_SEQ` | sequence number of the first message that begins here |
//! | 56 | 8 | `GAP_BEFORE` | how many numbers right before `FIRST_SEQ` were never given or were lost |
//! | 64 | 8 | `CREATED` | milliseconds since 1970 |
//! | 72 | 8 | `LENGTH` | length of the file in bytes when fully allocated, this header included |
//! | 80 | 8 | `ALLOCATED` | in an index row: bytes of the file allocated so far; zero in the file |
//! | 88 | 4 | `SALT` | random; part of the seed of every checksum in this segment |
//! | 92 | 4 | | zero |
//! | 96 | 8 | `DISK` | in an index row: bytes of disk the file takes; zero in the file |
//! | 104 | 20 | | zero |
//! | 124 | 4 | `HEADER_CRC` | CRC32C of the bytes before |
//!
//! Behind the header lie fragments, each 8-byte aligned. Fewer than 16 bytes at the end stay unused.
//!
//! # Fragment
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | `FRAGMENT_CRC` | CRC32C of the header words and the payload |
//! | 4 | 4 | `FRAGMENT_LEN` | payload bytes; the next fragment lies behind them, rounded up to 8 |
//! | 8 | 5 | `FRAGMENT_SEQ` | low 40 bits of the sequence number |
//! | 13 | 1 | `FRAGMENT_KIND` | see [`Kind`], plus 8 when a seal follows, plus 16 when more of its batch follows, plus 32 when it is not its batch's first |
//! | 14 | 2 | `FRAGMENT_CHECK` | check of the header alone |
//!
//! The checksum is seeded by the segment ([`SegmentHeader::seed`]: queue id, life, base, salt) and runs over the
//! fragment's offset, length, number and kind, then the payload. In a middle or last fragment the state before the payload
//! is combined (exclusive or) with the `FRAGMENT_CRC` of the fragment before it, so that pieces of two messages of the same
//! number, one of them given up, never make one. So no byte of another queue, another use of the slot,
//! or another place validates.
//!
//! The last fragment of a batch of several records has a *seal* behind its payload (rounded up to 8), before the next
//! fragment: 8 bytes, of which the first four are the CRC32C of the `FRAGMENT_CRC`s of all fragments of the batch's records,
//! in order, and the others are zero. So records of two tries at a batch, one of them given up, never make one, though
//! each of them validates. Recovery looks at it; a reader, before whom the batch was committed, steps over it.
//!
//! The 16-bit check folds the state after the header words: it lets a reader trust a length
//! without reading the payload, and makes a search for the next record cheap.
//!
//! # Index file `index`
//!
//! | offset | bytes | part |
//! |---|---|---|
//! | 0 | 64 | `INDEX_HEADER`: magic, version, queue id, checksum |
//! | 1024 | 128 | `CHECKPOINT_A` |
//! | 2048 | 2048 | `EXTENTS`: 128 rows of 16 bytes, what lies behind the first three pages |
//! | 4096 | 128 | `CHECKPOINT_B` |
//! | 4608 | 3456 | second extent of acknowledgements: 3 rows of 1152 bytes |
//! | 8192 | 256 | `LIVE`: what a mere process death leaves true |
//! | 8704 | 3456 | first extent of acknowledgements: 3 rows of 1152 bytes |
//! | 12288 | 24576 | first extent of consumers: 64 rows of 384 bytes |
//! | 36864 | 4096 | first extent of segments: 32 rows of 128 bytes |
//!
//! An extent row holds a kind (1 consumers, 2 segments, 3 acknowledgements), an offset in this file, a number of rows and
//! a CRC32C seeded with the queue id, 4 bytes each.
//!
//! # Checkpoint
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `SLOT_NUMBER` | the higher of two valid slots counts |
//! | 8 | 8 | `SLOT_NONCE` | random number of the opening that wrote it |
//! | 16 | 8 | `DURABLE_POSITION` | everything before it is on disk |
//! | 24 | 8 | `DURABLE_SEQ` | sequence number at that position |
//! | 32 | 8 | `LEASE` | no number at or above it was ever given out |
//! | 40 | 8 | `NEXT_LIFE` | no life at or above it was ever used |
//! | 48 | 8 | `DROPPED_SEQ` | numbers below it that are missing were dropped on purpose, down to the next lower mark |
//! | 56 | 8 | `EXPIRED_SEQ` | numbers below it that are missing had expired, down to the next lower mark |
//! | 64 | 4 | `CLEAN` | 1: nothing was enqueued and no segment was made or given back since |
//! | 72 | 8 | `DURABLE_GAP` | numbers missing right before `DURABLE_SEQ` that the segment beginning at `DURABLE_POSITION` is to state |
//! | 80 | 32 | `OLDER` | 4 ends of earlier runs of given up numbers: twice the number, plus 1 when they had expired; zero: none |
//! | 112 | 8 | `LATEST` | no segment and no record says a later time; milliseconds since 1970 |
//! | 124 | 4 | `SLOT_CRC` | CRC32C of the bytes before, seeded with the queue id |
//!
//! # Live part
//!
//! Stored without any sync. It is believed only while `LIFE_TOKEN` equals the storage's own token, which changes when
//! cached bytes may have been lost.
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 16 | `LIFE_TOKEN` | boot, device and mount this part is true for |
//! | 16 | 8 | `LIVE_NONCE` | random number of this opening |
//! | 24 | 4 | `LIVE_PID` | the holder's process id |
//! | 28 | 4 | `LIVE_FLAGS` | 1 segments are being changed, 2 a flush failed |
//! | 32 | 8 | `LIVE_NEXT_LIFE` | as in the checkpoint |
//! | 40 | 8 | `LIVE_LEASE` | as in the checkpoint |
//! | 48 | 8 | `LIVE_DROPPED_SEQ` | as in the checkpoint |
//! | 56 | 8 | `LIVE_EXPIRED_SEQ` | as in the checkpoint |
//! | 64 | 8 | `TAIL_SEQ` | stored before the position |
//! | 72 | 8 | `TAIL_POSITION` | everything before it is committed |
//! | 80 | 8 | `TAIL_CHECK` | [`tail_check`] of the two; stored last |
//! | 88 | 8 | `LIVE_SINCE` | when the holder opened the queue, in milliseconds since 1970 |
//! | 128 | 8 | `LIVE_BASE` | where the next segment begins when the last one takes no more, else zero |
//! | 136 | 8 | `LIVE_GAP` | numbers missing before the next segment's first one |
//! | 144 | 24 | `SYNCED_A` | position and number before which everything is on disk, and [`tail_check`] of the two |
//! | 168 | 24 | `SYNCED_B` | the same; the lower one is written, the higher one counts |
//! | 192 | 32 | `LIVE_OLDER` | as in the checkpoint |
//! | 224 | 8 | `LIVE_LATEST` | as in the checkpoint |
//! | 232 | 4 | `GIVEN_UP_CRC` | CRC32C of `LIVE_DROPPED_SEQ`, `LIVE_EXPIRED_SEQ` and `LIVE_OLDER`; stored last |
//!
//! # Consumer row
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 1 | `NAME_LEN` | 0 in the first row, the default consumer's; elsewhere 0 means free |
//! | 1 | 255 | `NAME` | UTF-8 |
//! | 256 | 64 | `PLACE_A` | a place |
//! | 320 | 64 | `PLACE_B` | a place; written alternately |
//!
//! # Place
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `PLACE_NUMBER` | counts the moves; the higher of two valid places counts |
//! | 8 | 8 | `PLACE_POSITION` | where the next record is looked for |
//! | 16 | 8 | `PLACE_SEQ` | its sequence number |
//! | 24 | 4 | `PLACE_CRC` | CRC32C of the three, seeded with queue id and name |
//!
//! # Row of acknowledgements
//!
//! A row belongs to the consumer its slots name; it is given to one when that first needs it. Two slots of 576 bytes,
//! written alternately:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `ACKS_NUMBER` | counts the writes; the higher of two valid slots counts |
//! | 8 | 8 | `ACKS_FROM` | the number the first range's distance is counted from |
//! | 16 | 4 | `ACKS_OWNER` | the consumer's row |
//! | 20 | 4 | `ACKS_COUNT` | how many ranges follow |
//! | 24 | 4 | `ACKS_CRC` | CRC32C of the bytes before and the ranges, seeded with queue id and name |
//! | 32 | 512 | `ACKS_RANGES` | 64 ranges: distance from the end of the one before, and length, 4 bytes each |
//!
//! Numbers in a range were acknowledged, or told as a gap, although the place is not past them yet.

use byteorder::{ByteOrder, LittleEndian};

use crate::checksum::{crc32c, crc32c_words};

/// The version this library writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;
/// The longest message, in bytes: 4 GiB - 1.
pub const MAX_MESSAGE_LEN: u64 = u32::MAX as u64;

/// Smallest and largest arena in bytes.
pub(crate) const MIN_ARENA: u64 = 4 << 10;
pub(crate) const MAX_ARENA: u64 = 1 << 30;
/// The smallest `max_bytes`: an index and three segments of two pages.
pub(crate) const MIN_MAX_BYTES: u64 = 64 << 10;
/// Arenas smaller than this share a segment of this length in bytes.
pub(crate) const SHARED_SEGMENT_LEN: u64 = 4 << 20;
/// The largest file that is taken for a segment, in bytes.
pub(crate) const MAX_SEGMENT_LEN: u64 = MAX_ARENA;

/// Slots are numbered below this; the lowest free one is always taken, so it bounds the number of segments (and what a
/// file of an absurd name can make anybody allocate).
pub(crate) const MAX_SLOTS: u32 = 1 << 24;

pub(crate) const INDEX_NAME: &str = "index";
pub(crate) const SEGMENT_PREFIX: &str = "segment-";
/// Ending of files that are set aside; never opened, never removed by mmq.
pub(crate) const ASIDE_SUFFIX: &str = ".damaged";

pub(crate) const INDEX_MAGIC: u64 = u64::from_le_bytes(*b"mmqindex");
pub(crate) const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"mmqsegmt");

/// Every record begins at a multiple of this many bytes.
pub(crate) const ALIGN: u64 = 8;
pub(crate) const SEGMENT_HEADER_LEN: u64 = 128;
pub(crate) const FRAGMENT_HEADER_LEN: u64 = 16;
/// What the last fragment of a batch has behind its payload.
pub(crate) const SEAL_LEN: u64 = 8;

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
    pub(super) const DISK: usize = 96;
    pub(super) const HEADER_CRC: usize = 124;
}

/// Offsets of the parts of the index file, in bytes.
pub(crate) mod index_at {
    pub(crate) const INDEX_HEADER: usize = 0;
    pub(crate) const CHECKPOINT_A: usize = 1024;
    pub(crate) const EXTENTS: usize = 2048;
    pub(crate) const CHECKPOINT_B: usize = 4096;
    pub(crate) const LIVE: usize = 8192;
    pub(crate) const ACKS: usize = 8704;
    pub(crate) const MORE_ACKS: usize = 4608;
    pub(crate) const CONSUMERS: usize = 12288;
    pub(crate) const SEGMENTS: usize = 36864;
    /// Length in bytes of a new index file.
    pub(crate) const END: usize = 40960;
}
pub(crate) const EXTENT_ROW_LEN: usize = 16;
pub(crate) const EXTENT_ROWS: usize = 128;
pub(crate) const CONSUMER_ROW_LEN: usize = 384;
pub(crate) const CONSUMER_ROWS: usize = 64;
pub(crate) const SEGMENT_ROW_LEN: usize = SEGMENT_HEADER_LEN as usize;
pub(crate) const SEGMENT_ROWS: usize = 32;
pub(crate) const ACKS_ROW_LEN: usize = 2 * ACKS_SLOT_LEN;
pub(crate) const ACKS_ROWS: usize = 3;
pub(crate) const ACKS_SLOT_LEN: usize = 576;
/// Ranges of acknowledged numbers a slot has room for.
pub(crate) const MAX_RANGES: usize = 64;
pub(crate) const MAX_NAME_LEN: usize = 255;

mod header_at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 8;
    pub(super) const QUEUE_ID: usize = 16;
    pub(super) const CREATED: usize = 32;
    pub(super) const CRC: usize = 60;
}
pub(crate) const INDEX_HEADER_LEN: usize = 64;

mod checkpoint_at {
    pub(super) const SLOT_NUMBER: usize = 0;
    pub(super) const SLOT_NONCE: usize = 8;
    pub(super) const DURABLE_POSITION: usize = 16;
    pub(super) const DURABLE_SEQ: usize = 24;
    pub(super) const LEASE: usize = 32;
    pub(super) const NEXT_LIFE: usize = 40;
    pub(super) const DROPPED_SEQ: usize = 48;
    pub(super) const EXPIRED_SEQ: usize = 56;
    pub(super) const CLEAN: usize = 64;
    pub(super) const DURABLE_GAP: usize = 72;
    pub(super) const OLDER: usize = 80;
    pub(super) const LATEST: usize = 112;
    pub(super) const SLOT_CRC: usize = 124;
}
pub(crate) const CHECKPOINT_LEN: usize = 128;
/// Ends of earlier runs of given up numbers that are kept: see `given_up`.
pub(crate) const OLDER_MARKS: usize = 4;

/// Offsets in the live part, in bytes.
pub(crate) mod live_at {
    pub(crate) const LIFE_TOKEN: usize = 0;
    pub(crate) const LIVE_NONCE: usize = 16;
    pub(crate) const LIVE_PID: usize = 24;
    pub(crate) const LIVE_FLAGS: usize = 28;
    pub(crate) const LIVE_NEXT_LIFE: usize = 32;
    pub(crate) const LIVE_LEASE: usize = 40;
    pub(crate) const LIVE_DROPPED_SEQ: usize = 48;
    pub(crate) const LIVE_EXPIRED_SEQ: usize = 56;
    pub(crate) const TAIL_SEQ: usize = 64;
    pub(crate) const TAIL_POSITION: usize = 72;
    pub(crate) const TAIL_CHECK: usize = 80;
    pub(crate) const LIVE_SINCE: usize = 88;
    pub(crate) const LIVE_BASE: usize = 128;
    pub(crate) const LIVE_GAP: usize = 136;
    pub(crate) const SYNCED_A: usize = 144;
    pub(crate) const SYNCED_B: usize = 168;
    pub(crate) const LIVE_OLDER: usize = 192;
    pub(crate) const LIVE_LATEST: usize = 224;
    pub(crate) const GIVEN_UP_CRC: usize = 232;
}
pub(crate) const LIVE_LEN: usize = 256;
/// Bits of `LIVE_FLAGS`.
pub(crate) const FLAG_CHANGING: u32 = 1;
pub(crate) const FLAG_POISONED: u32 = 2;

/// Tells a tail whose two words belong together from one that was cut between two stores.
#[inline]
pub(crate) fn tail_check(position: u64, seq: u64) -> u64 {
    position.rotate_left(23) ^ seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ INDEX_MAGIC
}

/// Offsets in a consumer row, in bytes.
pub(crate) mod consumer_at {
    pub(crate) const NAME_LEN: usize = 0;
    pub(crate) const NAME: usize = 1;
    pub(crate) const PLACE_A: usize = 256;
    pub(crate) const PLACE_B: usize = 320;
}
pub(crate) mod place_at {
    pub(crate) const PLACE_NUMBER: usize = 0;
    pub(crate) const PLACE_POSITION: usize = 8;
    pub(crate) const PLACE_SEQ: usize = 16;
    pub(crate) const PLACE_CRC: usize = 24;
}

/// Offsets in a slot of acknowledgements, in bytes.
pub(crate) mod acks_at {
    pub(crate) const ACKS_NUMBER: usize = 0;
    pub(crate) const ACKS_FROM: usize = 8;
    pub(crate) const ACKS_OWNER: usize = 16;
    pub(crate) const ACKS_COUNT: usize = 20;
    pub(crate) const ACKS_CRC: usize = 24;
    pub(crate) const ACKS_RANGES: usize = 32;
}

/// Name of the segment file in `slot`.
pub(crate) fn segment_name(slot: u32) -> String {
    format!("{SEGMENT_PREFIX}{slot:08}")
}

/// The slot a file name stands for, when it is exactly the name [`segment_name`] makes.
pub(crate) fn segment_slot(name: &str) -> Option<u32> {
    let slot = name.strip_prefix(SEGMENT_PREFIX)?.parse().ok()?;
    (slot < MAX_SLOTS && segment_name(slot) == name).then_some(slot)
}

/// Rounds up to the next multiple of 8.
#[inline]
pub(crate) const fn align_up(len: u64) -> u64 {
    (len + (ALIGN - 1)) & !(ALIGN - 1)
}

/// Bytes a fragment with that much payload takes.
#[inline]
pub(crate) const fn fragment_len(payload: u64) -> u64 {
    FRAGMENT_HEADER_LEN + align_up(payload)
}

/// How a queue's segments are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Length of a new segment file in bytes, header included.
    pub(crate) segment_len: u64,
    /// Length of a mapped window in bytes: a whole segment, or an arena when the cap is tight.
    pub(crate) window_len: u64,
    /// How many windows may be mapped at a time.
    pub(crate) max_windows: usize,
}

impl Geometry {
    /// Small arenas share a segment; a bounded queue has at least eight segments, or as many as its bytes allow, so that
    /// giving one back is a small step.
    pub(crate) fn new(arena_size: u64, max_mapped_arenas: Option<u32>, max_bytes: Option<u64>, page: u64) -> Geometry {
        let mut segment_len = arena_size.max(SHARED_SEGMENT_LEN / arena_size * arena_size);
        if let Some(max_bytes) = max_bytes {
            let room = max_bytes.saturating_sub(index_at::END as u64);
            let most = (max_bytes / 8).min(room / 3).max(2 * page);
            if segment_len > most {
                let unit = if arena_size <= most { arena_size } else { page };
                segment_len = most / unit * unit;
            }
        }
        let cap = max_mapped_arenas.map(|arenas| u64::from(arenas).saturating_mul(arena_size));
        match cap {
            Some(cap) if cap / segment_len < 3 => {
                Geometry { segment_len, window_len: arena_size, max_windows: max_mapped_arenas.unwrap_or(3) as usize }
            }
            Some(cap) => Geometry {
                segment_len,
                window_len: segment_len,
                max_windows: usize::try_from(cap / segment_len).unwrap_or(usize::MAX),
            },
            None => Geometry { segment_len, window_len: segment_len, max_windows: usize::MAX },
        }
    }
}

/// Whether a segment holds messages or waits to be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentState {
    Live,
    Spare,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) state: SegmentState,
    /// A `GapCause` number; meaningful when `gap_before` is not zero.
    pub(crate) cause: u8,
    pub(crate) queue_id: [u8; 16],
    pub(crate) life: u64,
    pub(crate) base: u64,
    pub(crate) first_seq: u64,
    pub(crate) gap_before: u64,
    pub(crate) created: u64,
    pub(crate) length: u64,
    pub(crate) allocated: u64,
    pub(crate) disk: u64,
    pub(crate) salt: u32,
}

/// Why bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// Not these bytes, or not intact.
    Damaged,
    /// Intact, but of that later version.
    Version(u32),
}

impl SegmentHeader {
    pub(crate) fn capacity(&self) -> u64 {
        (self.length - SEGMENT_HEADER_LEN) / ALIGN * ALIGN
    }

    /// The position behind the last byte of this segment.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.capacity()
    }

    /// As it stands in the file.
    pub(crate) fn in_file(&self) -> SegmentHeader {
        SegmentHeader { allocated: 0, disk: 0, ..*self }
    }

    /// The checksum state every fragment of this segment starts from.
    pub(crate) fn seed(&self) -> u32 {
        #[cfg(test)]
        if crate::sim::Mutant::ChecksumNotSeeded.is_planted() {
            return 0;
        }
        let state = crc32c(u32::MAX, &self.queue_id);
        crc32c_words(state, [self.life, self.base, u64::from(self.salt)])
    }

    pub(crate) fn encode(&self) -> [u8; SEGMENT_HEADER_LEN as usize] {
        use segment_at as at;
        let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
        LittleEndian::write_u64(&mut bytes[at::SEGMENT_MAGIC..], SEGMENT_MAGIC);
        LittleEndian::write_u32(&mut bytes[at::VERSION..], FORMAT_VERSION);
        bytes[at::STATE] = match self.state {
            SegmentState::Live => 1,
            SegmentState::Spare => 2,
        };
        bytes[at::CAUSE] = self.cause;
        bytes[at::QUEUE_ID..at::QUEUE_ID + 16].copy_from_slice(&self.queue_id);
        for (offset, value) in [
            (at::LIFE, self.life),
            (at::BASE, self.base),
            (at::FIRST_SEQ, self.first_seq),
            (at::GAP_BEFORE, self.gap_before),
            (at::CREATED, self.created),
            (at::LENGTH, self.length),
            (at::ALLOCATED, self.allocated),
            (at::DISK, self.disk),
        ] {
            LittleEndian::write_u64(&mut bytes[offset..], value);
        }
        LittleEndian::write_u32(&mut bytes[at::SALT..], self.salt);
        let crc = !crc32c(u32::MAX, &bytes[..at::HEADER_CRC]);
        LittleEndian::write_u32(&mut bytes[at::HEADER_CRC..], crc);
        bytes
    }

    /// Every number is checked before it is believed: no sum of them overflows afterwards.
    pub(crate) fn decode(bytes: &[u8; SEGMENT_HEADER_LEN as usize]) -> Result<SegmentHeader, Invalid> {
        use segment_at as at;
        let u64_at = |offset: usize| LittleEndian::read_u64(&bytes[offset..]);
        if u64_at(at::SEGMENT_MAGIC) != SEGMENT_MAGIC
            || LittleEndian::read_u32(&bytes[at::HEADER_CRC..]) != !crc32c(u32::MAX, &bytes[..at::HEADER_CRC])
        {
            return Err(Invalid::Damaged);
        }
        let version = LittleEndian::read_u32(&bytes[at::VERSION..]);
        if version != FORMAT_VERSION {
            return Err(Invalid::Version(version));
        }
        let mut queue_id = [0; 16];
        queue_id.copy_from_slice(&bytes[at::QUEUE_ID..at::QUEUE_ID + 16]);
        let header = SegmentHeader {
            state: match bytes[at::STATE] {
                1 => SegmentState::Live,
                2 => SegmentState::Spare,
                _ => return Err(Invalid::Damaged),
            },
            cause: bytes[at::CAUSE],
            queue_id,
            life: u64_at(at::LIFE),
            base: u64_at(at::BASE),
            first_seq: u64_at(at::FIRST_SEQ),
            gap_before: u64_at(at::GAP_BEFORE),
            created: u64_at(at::CREATED),
            length: u64_at(at::LENGTH),
            allocated: u64_at(at::ALLOCATED),
            disk: u64_at(at::DISK),
            salt: LittleEndian::read_u32(&bytes[at::SALT..]),
        };
        const LIMIT: u64 = 1 << 62;
        let sound = header.length >= SEGMENT_HEADER_LEN + FRAGMENT_HEADER_LEN
            && header.length <= MAX_SEGMENT_LEN
            && header.allocated <= header.length
            && header.disk <= 2 * MAX_SEGMENT_LEN
            && header.base < LIMIT
            && header.base.is_multiple_of(ALIGN)
            && header.first_seq < LIMIT
            && header.gap_before <= header.first_seq
            && header.life < LIMIT;
        if sound { Ok(header) } else { Err(Invalid::Damaged) }
    }
}

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
    /// Says when the records behind it were written: its payload is milliseconds since 1970, 8 bytes. Carries the number of
    /// the next record. Written with `max_age` only.
    Time = 7,
}

impl Kind {
    /// Not a piece of a record.
    pub(crate) fn is_empty(self) -> bool {
        matches!(self, Kind::Padding | Kind::Gap | Kind::Time)
    }

    fn from_bits(bits: u8) -> Option<Kind> {
        Some(match bits {
            1 => Kind::Whole,
            2 => Kind::First,
            3 => Kind::Middle,
            4 => Kind::Last,
            5 => Kind::Padding,
            6 => Kind::Gap,
            7 => Kind::Time,
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
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;

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
}

impl Fragment {
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

    /// The two words of the header. `payload_state` is [`state`](Self::state) carried on over the payload.
    #[inline]
    pub(crate) fn encode(&self, header_state: u32, payload_state: u32) -> FragmentWords {
        FragmentWords(
            u64::from(!payload_state) | u64::from(self.len) << 32,
            self.tag() | u64::from(fold(header_state)) << 48,
        )
    }

    /// The header in those words, when its own check holds at that offset; and the state its payload continues from.
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

pub(crate) fn encode_index_header(queue_id: &[u8; 16], created: u64) -> [u8; INDEX_HEADER_LEN] {
    let mut bytes = [0; INDEX_HEADER_LEN];
    LittleEndian::write_u64(&mut bytes[header_at::MAGIC..], INDEX_MAGIC);
    LittleEndian::write_u32(&mut bytes[header_at::VERSION..], FORMAT_VERSION);
    bytes[header_at::QUEUE_ID..header_at::QUEUE_ID + 16].copy_from_slice(queue_id);
    LittleEndian::write_u64(&mut bytes[header_at::CREATED..], created);
    let crc = !crc32c(u32::MAX, &bytes[..header_at::CRC]);
    LittleEndian::write_u32(&mut bytes[header_at::CRC..], crc);
    bytes
}

/// The queue id in an index header.
pub(crate) fn decode_index_header(bytes: &[u8]) -> Result<[u8; 16], Invalid> {
    let bytes = bytes.get(..INDEX_HEADER_LEN).ok_or(Invalid::Damaged)?;
    if LittleEndian::read_u64(&bytes[header_at::MAGIC..]) != INDEX_MAGIC
        || LittleEndian::read_u32(&bytes[header_at::CRC..]) != !crc32c(u32::MAX, &bytes[..header_at::CRC])
    {
        return Err(Invalid::Damaged);
    }
    let version = LittleEndian::read_u32(&bytes[header_at::VERSION..]);
    if version != FORMAT_VERSION {
        return Err(Invalid::Version(version));
    }
    let mut queue_id = [0; 16];
    queue_id.copy_from_slice(&bytes[header_at::QUEUE_ID..header_at::QUEUE_ID + 16]);
    Ok(queue_id)
}

/// What is known to be on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Checkpoint {
    pub(crate) number: u64,
    pub(crate) nonce: u64,
    pub(crate) position: u64,
    pub(crate) seq: u64,
    pub(crate) lease: u64,
    pub(crate) next_life: u64,
    pub(crate) dropped_seq: u64,
    pub(crate) expired_seq: u64,
    pub(crate) clean: bool,
    pub(crate) gap: u64,
    pub(crate) older: [u64; OLDER_MARKS],
    pub(crate) latest: u64,
}

impl Checkpoint {
    pub(crate) fn encode(&self, queue_id: &[u8; 16]) -> [u8; CHECKPOINT_LEN] {
        use checkpoint_at as at;
        let mut bytes = [0; CHECKPOINT_LEN];
        for (offset, value) in [
            (at::SLOT_NUMBER, self.number),
            (at::SLOT_NONCE, self.nonce),
            (at::DURABLE_POSITION, self.position),
            (at::DURABLE_SEQ, self.seq),
            (at::LEASE, self.lease),
            (at::NEXT_LIFE, self.next_life),
            (at::DROPPED_SEQ, self.dropped_seq),
            (at::EXPIRED_SEQ, self.expired_seq),
            (at::DURABLE_GAP, self.gap),
            (at::LATEST, self.latest),
        ] {
            LittleEndian::write_u64(&mut bytes[offset..], value);
        }
        LittleEndian::write_u64_into(&self.older, &mut bytes[at::OLDER..at::OLDER + 8 * OLDER_MARKS]);
        LittleEndian::write_u32(&mut bytes[at::CLEAN..], u32::from(self.clean));
        let crc = !crc32c(crc32c(u32::MAX, queue_id), &bytes[..at::SLOT_CRC]);
        LittleEndian::write_u32(&mut bytes[at::SLOT_CRC..], crc);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], queue_id: &[u8; 16]) -> Option<Checkpoint> {
        use checkpoint_at as at;
        let bytes = bytes.get(..CHECKPOINT_LEN)?;
        let crc = !crc32c(crc32c(u32::MAX, queue_id), &bytes[..at::SLOT_CRC]);
        if LittleEndian::read_u32(&bytes[at::SLOT_CRC..]) != crc {
            return None;
        }
        let u64_at = |offset: usize| LittleEndian::read_u64(&bytes[offset..]);
        Some(Checkpoint {
            number: u64_at(at::SLOT_NUMBER),
            nonce: u64_at(at::SLOT_NONCE),
            position: u64_at(at::DURABLE_POSITION),
            seq: u64_at(at::DURABLE_SEQ),
            lease: u64_at(at::LEASE),
            next_life: u64_at(at::NEXT_LIFE),
            dropped_seq: u64_at(at::DROPPED_SEQ),
            expired_seq: u64_at(at::EXPIRED_SEQ),
            clean: LittleEndian::read_u32(&bytes[at::CLEAN..]) == 1,
            gap: u64_at(at::DURABLE_GAP),
            older: std::array::from_fn(|mark| u64_at(at::OLDER + 8 * mark)),
            latest: u64_at(at::LATEST),
        })
    }
}

/// What an extent of the index file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExtentKind {
    Consumers,
    Segments,
    Acks,
}

/// A stretch of the index file with rows of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) kind: ExtentKind,
    /// Offset in the index file, bytes.
    pub(crate) offset: u32,
    pub(crate) rows: u32,
}

impl Extent {
    pub(crate) fn row_len(&self) -> usize {
        match self.kind {
            ExtentKind::Consumers => CONSUMER_ROW_LEN,
            ExtentKind::Segments => SEGMENT_ROW_LEN,
            ExtentKind::Acks => ACKS_ROW_LEN,
        }
    }

    pub(crate) fn encode(&self, queue_id: &[u8; 16]) -> [u8; EXTENT_ROW_LEN] {
        let mut bytes = [0; EXTENT_ROW_LEN];
        let kind = match self.kind {
            ExtentKind::Consumers => 1,
            ExtentKind::Segments => 2,
            ExtentKind::Acks => 3,
        };
        LittleEndian::write_u32(&mut bytes, kind);
        LittleEndian::write_u32(&mut bytes[4..], self.offset);
        LittleEndian::write_u32(&mut bytes[8..], self.rows);
        let crc = !crc32c(crc32c(u32::MAX, queue_id), &bytes[..12]);
        LittleEndian::write_u32(&mut bytes[12..], crc);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], queue_id: &[u8; 16]) -> Option<Extent> {
        let bytes = bytes.get(..EXTENT_ROW_LEN)?;
        if LittleEndian::read_u32(&bytes[12..]) != !crc32c(crc32c(u32::MAX, queue_id), &bytes[..12]) {
            return None;
        }
        Some(Extent {
            kind: match LittleEndian::read_u32(bytes) {
                1 => ExtentKind::Consumers,
                2 => ExtentKind::Segments,
                3 => ExtentKind::Acks,
                _ => return None,
            },
            offset: LittleEndian::read_u32(&bytes[4..]),
            rows: LittleEndian::read_u32(&bytes[8..]),
        })
    }
}

/// Where a consumer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) number: u64,
    pub(crate) position: u64,
    pub(crate) seq: u64,
}

impl Place {
    /// The state a place's checksum starts from: a place of another queue or another consumer never validates.
    pub(crate) fn seed(queue_id: &[u8; 16], name: &[u8]) -> u32 {
        crc32c(crc32c(u32::MAX, queue_id), name)
    }

    /// The words of the slot, in their order; the checksum comes behind them.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 3] {
        const { assert!(place_at::PLACE_NUMBER == 0 && place_at::PLACE_POSITION == 8) };
        const { assert!(place_at::PLACE_SEQ == 16 && place_at::PLACE_CRC == 24) };
        [self.number, self.position, self.seq]
    }

    #[inline]
    pub(crate) fn crc(&self, seed: u32) -> u32 {
        !crc32c_words(seed, self.words())
    }
}

/// Numbers that were acknowledged out of order: ranges `first ..= last`, ascending, apart from each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Acks {
    pub(crate) number: u64,
    /// The consumer's row.
    pub(crate) owner: u32,
    pub(crate) ranges: Vec<(u64, u64)>,
}

impl Acks {
    /// The slot for as many of the ranges as fit, the lowest first. What does not fit comes again after a crash.
    pub(crate) fn encode(
        number: u64,
        owner: u32,
        ranges: impl Iterator<Item = (u64, u64)>,
        seed: u32,
        bytes: &mut [u8; ACKS_SLOT_LEN],
    ) -> usize {
        use acks_at as at;
        let mut count = 0;
        let mut from = 0;
        let mut end = 0;
        for (first, last) in ranges.take(MAX_RANGES) {
            if count == 0 {
                (from, end) = (first, first);
            }
            let (Ok(distance), Ok(len)) = (u32::try_from(first - end), u32::try_from(last - first + 1)) else {
                break;
            };
            let row = at::ACKS_RANGES + count * 8;
            LittleEndian::write_u32(&mut bytes[row..], distance);
            LittleEndian::write_u32(&mut bytes[row + 4..], len);
            end = last + 1;
            count += 1;
        }
        LittleEndian::write_u64(&mut bytes[at::ACKS_NUMBER..], number);
        LittleEndian::write_u64(&mut bytes[at::ACKS_FROM..], from);
        LittleEndian::write_u32(&mut bytes[at::ACKS_OWNER..], owner);
        LittleEndian::write_u32(&mut bytes[at::ACKS_COUNT..], count as u32);
        let len = at::ACKS_RANGES + count * 8;
        let crc = Acks::crc(bytes, len, seed);
        LittleEndian::write_u32(&mut bytes[at::ACKS_CRC..], crc);
        len
    }

    /// The slot in those bytes, if it is one of the consumer with that row and seed.
    pub(crate) fn decode(bytes: &[u8], owner: u32, seed: u32) -> Option<Acks> {
        use acks_at as at;
        let bytes = bytes.get(..ACKS_SLOT_LEN)?;
        let count = LittleEndian::read_u32(&bytes[at::ACKS_COUNT..]) as usize;
        if count > MAX_RANGES || LittleEndian::read_u32(&bytes[at::ACKS_OWNER..]) != owner {
            return None;
        }
        let len = at::ACKS_RANGES + count * 8;
        if LittleEndian::read_u32(&bytes[at::ACKS_CRC..]) != Acks::crc(bytes, len, seed) {
            return None;
        }
        let mut ranges = Vec::with_capacity(count);
        let mut end = LittleEndian::read_u64(&bytes[at::ACKS_FROM..]);
        for row in bytes[at::ACKS_RANGES..len].chunks_exact(8) {
            let first = end.checked_add(u64::from(LittleEndian::read_u32(row)))?;
            end = first.checked_add(u64::from(LittleEndian::read_u32(&row[4..])))?;
            ranges.push((first, end.checked_sub(1).filter(|last| *last >= first)?));
        }
        Some(Acks { number: LittleEndian::read_u64(&bytes[at::ACKS_NUMBER..]), owner, ranges })
    }

    fn crc(bytes: &[u8], len: usize, seed: u32) -> u32 {
        !crc32c(crc32c(seed, &bytes[..acks_at::ACKS_CRC]), &bytes[acks_at::ACKS_RANGES..len])
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
