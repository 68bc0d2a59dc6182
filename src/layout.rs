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
//! | 13 | 1 | `CAUSE` | cause of the numbers missing before `FIRST_SEQ`, those that were only reserved apart |
//! | 14 | 2 | | zero |
//! | 16 | 16 | `QUEUE_ID` | random, given when the queue was created |
//! | 32 | 8 | `LIFE` | number of this use of a slot, never used twice in a queue |
//! | 40 | 8 | `BASE` | position of the first byte behind this header |
//! | 48 | 8 | `FIRST_SEQ` | sequence number of the first message that begins here |
//! | 56 | 8 | `GAP_BEFORE` | how many numbers right before `FIRST_SEQ` were lost or only reserved |
//! | 64 | 8 | `CREATED` | milliseconds since 1970 |
//! | 72 | 8 | `LENGTH` | length of the file in bytes when fully allocated, this header included |
//! | 80 | 8 | `ALLOCATED` | in an index row: bytes of the file allocated so far; zero in the file |
//! | 88 | 4 | `SALT` | random; part of the seed of every checksum in this segment |
//! | 92 | 4 | | zero |
//! | 96 | 8 | `DISK` | in an index row: bytes of disk the file takes; zero in the file |
//! | 104 | 8 | `RESERVED` | how many of `GAP_BEFORE`, at its end, were only reserved, and probably never given out |
//! | 112 | 12 | | zero |
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
//! | 1024 | 192 | `CHECKPOINT_A` |
//! | 2048 | 2048 | `EXTENTS`: 128 rows of 16 bytes, what lies behind the first three pages |
//! | 4096 | 192 | `CHECKPOINT_B` |
//! | 4608 | 3072 | second extent of acknowledgements: 6 rows of 512 bytes |
//! | 8192 | 512 | `LIVE`: what a mere process death leaves true |
//! | 8704 | 3072 | first extent of acknowledgements: 6 rows of 512 bytes |
//! | 12288 | 24576 | first extent of consumers: 64 of 384 bytes each |
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
//! | 68 | 4 | `DURABLE_CAUSE` | their cause |
//! | 72 | 8 | `DURABLE_GAP` | numbers missing right before `DURABLE_SEQ` that the segment beginning at `DURABLE_POSITION` is to state |
//! | 80 | 32 | `OLDER` | 4 ends of earlier runs of given up numbers: twice the number, plus 1 when they had expired; zero: none |
//! | 112 | 8 | `LATEST` | no segment and no record says a later time; milliseconds since 1970 |
//! | 120 | 8 | `DURABLE_RESERVED` | how many of `DURABLE_GAP`, at its end, were only reserved |
//! | 128 | 8 | `HELD_SEQ` | no message below it is held |
//! | 188 | 4 | `SLOT_CRC` | CRC32C of the bytes before, seeded with the queue id |
//!
//! # Live part
//!
//! Stored without any sync. It is believed only while the tokens equal the storage's own, which change when cached bytes may
//! have been lost. Even then each of its parts has a check of its own.
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 16 | `LIFE_TOKEN` | boot, device and directory this part is true for |
//! | 16 | 8 | `MOUNT_TOKEN` | mount this part is true for; zero: not known |
//! | 24 | 8 | `LIVE_NONCE` | random number of this opening |
//! | 32 | 8 | `LIVE_SINCE` | when the holder opened the queue, in milliseconds since 1970 |
//! | 40 | 4 | `LIVE_PID` | the holder's process id |
//! | 64 | 8 | `TAIL_SEQ` | stored before the position |
//! | 72 | 8 | `TAIL_POSITION` | everything before it is committed |
//! | 80 | 8 | `TAIL_CHECK` | [`tail_check`] of the two; stored last |
//! | 128 | 128 | `RUN_A` | what changes seldom in a run |
//! | 256 | 128 | `RUN_B` | the same, stored after the first; the first that is valid counts |
//! | 384 | 24 | `SYNCED_A` | position and number before which everything is on disk, and [`tail_check`] of the two |
//! | 408 | 24 | `SYNCED_B` | the same; the lower one is written, the higher one counts |
//!
//! A record of the run is stored twice, one after the other: a kill within one leaves the other whole, and a damaged byte
//! costs nothing.
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 4 | `RUN_FLAGS` | 1 segments are being changed, 2 a flush failed |
//! | 4 | 4 | `RUN_CAUSE` | cause of the numbers missing before the next segment |
//! | 8 | 8 | `RUN_NEXT_LIFE` | no life at or above it was ever used; stored before a header with that life is written |
//! | 16 | 8 | `RUN_LEASE` | as in the checkpoint |
//! | 24 | 8 | `RUN_DROPPED_SEQ` | as in the checkpoint |
//! | 32 | 8 | `RUN_EXPIRED_SEQ` | as in the checkpoint |
//! | 40 | 32 | `RUN_OLDER` | as in the checkpoint |
//! | 72 | 8 | `RUN_LATEST` | as in the checkpoint |
//! | 80 | 8 | `RUN_NEXT_BASE` | where the next segment begins when the last one takes no more, else zero |
//! | 88 | 8 | `RUN_NEXT_SEQ` | the next segment's first number |
//! | 96 | 8 | `RUN_NEXT_GAP` | numbers missing right before that |
//! | 104 | 8 | `RUN_NEXT_RESERVED` | how many of them, at their end, were only reserved |
//! | 124 | 4 | `RUN_CRC` | CRC32C of the bytes before, seeded with the queue id |
//!
//! # Consumers
//!
//! An extent of `n` consumers holds `n` names of 256 bytes, then `n` pairs of places of 64 bytes, then `n` copies of 64
//! bytes. A consumer's place is written to the two halves of its pair alternately. Both halves lie in one sector: whatever
//! else a power cut takes, the pair says the place of the last sync or a later one, also when the sector went to the disk
//! in the middle of a store. (In two sectors the half that is being stored to may be the one that was synced, and the
//! other one still as it was before.) Every 64th place goes to the copy as well. The name, the pair and the copy lie in three
//! sectors: one that comes out of a crash with something in it that was never stored costs a consumer 64 moves at most.
//!
//! # Name of a consumer
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 1 | `NAME_LEN` | 0 in the first one, the default consumer's; elsewhere 0 means free |
//! | 1 | 255 | `NAME` | UTF-8 |
//!
//! # Place
//!
//! Half of a pair, at 0 or 32, and the beginning of a copy:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `PLACE_NUMBER` | counts the moves; the highest of the valid places counts |
//! | 8 | 8 | `PLACE_POSITION` | where the next record is looked for; all ones: the consumer was removed |
//! | 16 | 8 | `PLACE_SEQ` | its sequence number |
//! | 24 | 4 | `PLACE_CRC` | CRC32C of the three, seeded with queue id and name |
//! | 28 | 36 | `PLACE_NAME` | in the copy: length and UTF-8 of a name of at most 35 bytes, else zero: such a consumer outlives the loss of its name's sector |
//!
//! # Row of acknowledgements
//!
//! A row belongs to the consumer its slots name; it is given to one when that first needs it. Two slots of 256 bytes, written
//! alternately, in one sector as a pair of places is:
//!
//! | offset | bytes | field | meaning |
//! |---|---|---|---|
//! | 0 | 8 | `ACKS_NUMBER` | counts the writes; the higher of two valid slots counts |
//! | 8 | 8 | `ACKS_FROM` | the number the first range's distance is counted from |
//! | 16 | 4 | `ACKS_OWNER` | the consumer's row |
//! | 20 | 4 | `ACKS_LEN` | bytes of the ranges |
//! | 24 | 4 | `ACKS_CRC` | CRC32C of the bytes before and the ranges, seeded with queue id and name |
//! | 28 | 228 | `ACKS_RANGES` | of each range: distance from the end of the one before, and length; of each seven bits a byte, the lowest first, 128 added to all but the last |
//!
//! Numbers in a range were acknowledged, or told as a gap, although the place is not past them, or was not when the index
//! was last synced: a power cut may leave a newer slot here beside the place of that time.

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
    pub(super) const RESERVED: usize = 104;
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
pub(crate) const NAME_ROW_LEN: usize = 256;
/// A pair of places, or a copy.
pub(crate) const PLACE_SLOT_LEN: usize = 2 * PLACE_HALF_LEN;
pub(crate) const PLACE_HALF_LEN: usize = 32;
/// What a consumer takes of an extent, all parts together.
pub(crate) const CONSUMER_ROW_LEN: usize = NAME_ROW_LEN + 2 * PLACE_SLOT_LEN;
pub(crate) const CONSUMER_ROWS: usize = 64;
pub(crate) const SEGMENT_ROW_LEN: usize = SEGMENT_HEADER_LEN as usize;
pub(crate) const SEGMENT_ROWS: usize = 32;
pub(crate) const ACKS_ROW_LEN: usize = 2 * ACKS_SLOT_LEN;
pub(crate) const ACKS_ROWS: usize = 6;
/// What a disk writes whole or not at all: no part of a row of acknowledgements is newer than another.
pub(crate) const SECTOR: usize = 512;
pub(crate) const ACKS_SLOT_LEN: usize = SECTOR / 2;
pub(crate) const MAX_NAME_LEN: usize = 255;
/// The longest name that the copy of a consumer's place says, too.
const MAX_SHORT_NAME_LEN: usize = PLACE_SLOT_LEN - place_at::PLACE_NAME - 1;

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
    pub(super) const DURABLE_CAUSE: usize = 68;
    pub(super) const DURABLE_GAP: usize = 72;
    pub(super) const OLDER: usize = 80;
    pub(super) const LATEST: usize = 112;
    pub(super) const DURABLE_RESERVED: usize = 120;
    pub(super) const HELD_SEQ: usize = 128;
    pub(super) const SLOT_CRC: usize = 188;
}
pub(crate) const CHECKPOINT_LEN: usize = 192;
/// Ends of earlier runs of given up numbers that are kept: see `given_up`.
pub(crate) const OLDER_MARKS: usize = 4;

/// Offsets in the live part, in bytes.
pub(crate) mod live_at {
    pub(crate) const LIFE_TOKEN: usize = 0;
    pub(crate) const MOUNT_TOKEN: usize = 16;
    pub(crate) const LIVE_NONCE: usize = 24;
    pub(crate) const LIVE_SINCE: usize = 32;
    pub(crate) const LIVE_PID: usize = 40;
    pub(crate) const TAIL_SEQ: usize = 64;
    pub(crate) const TAIL_POSITION: usize = 72;
    pub(crate) const TAIL_CHECK: usize = 80;
    pub(crate) const RUN_A: usize = 128;
    pub(crate) const RUN_B: usize = 256;
    pub(crate) const SYNCED_A: usize = 384;
    pub(crate) const SYNCED_B: usize = 408;
}
pub(crate) const LIVE_LEN: usize = 512;

/// Offsets in a record of the run, in bytes.
pub(crate) mod run_at {
    pub(crate) const RUN_FLAGS: usize = 0;
    pub(crate) const RUN_CAUSE: usize = 4;
    pub(crate) const RUN_NEXT_LIFE: usize = 8;
    pub(crate) const RUN_LEASE: usize = 16;
    pub(crate) const RUN_DROPPED_SEQ: usize = 24;
    pub(crate) const RUN_EXPIRED_SEQ: usize = 32;
    pub(crate) const RUN_OLDER: usize = 40;
    pub(crate) const RUN_LATEST: usize = 72;
    pub(crate) const RUN_NEXT_BASE: usize = 80;
    pub(crate) const RUN_NEXT_SEQ: usize = 88;
    pub(crate) const RUN_NEXT_GAP: usize = 96;
    pub(crate) const RUN_NEXT_RESERVED: usize = 104;
    pub(crate) const RUN_CRC: usize = 124;
}
pub(crate) const RUN_LEN: usize = 128;
/// Bits of `RUN_FLAGS`.
pub(crate) const FLAG_CHANGING: u32 = 1;
pub(crate) const FLAG_POISONED: u32 = 2;

/// No number, position, life or time in any file is as high: those that say so are not ours, and no sum of two that are
/// overflows.
pub(crate) const LIMIT: u64 = 1 << 62;

/// What a position may be.
pub(crate) fn is_position(position: u64) -> bool {
    position < LIMIT && position.is_multiple_of(ALIGN)
}

/// Tells a tail whose two words belong together, and to the queue with that key, from one that was cut between two stores.
#[inline]
pub(crate) fn tail_check(key: u64, position: u64, seq: u64) -> u64 {
    position.rotate_left(23) ^ seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key
}

/// The key of a queue for [`tail_check`].
pub(crate) fn tail_key(queue_id: &[u8; 16]) -> u64 {
    LittleEndian::read_u64(queue_id).rotate_left(32) ^ LittleEndian::read_u64(&queue_id[8..]) ^ INDEX_MAGIC
}

/// Offsets in the name of a consumer, in bytes.
pub(crate) mod name_at {
    pub(crate) const NAME_LEN: usize = 0;
    pub(crate) const NAME: usize = 1;
}
pub(crate) mod place_at {
    pub(crate) const PLACE_NUMBER: usize = 0;
    pub(crate) const PLACE_POSITION: usize = 8;
    pub(crate) const PLACE_SEQ: usize = 16;
    pub(crate) const PLACE_CRC: usize = 24;
    pub(crate) const PLACE_NAME: usize = 28;
}

/// Offsets in a slot of acknowledgements, in bytes.
pub(crate) mod acks_at {
    pub(crate) const ACKS_NUMBER: usize = 0;
    pub(crate) const ACKS_FROM: usize = 8;
    pub(crate) const ACKS_OWNER: usize = 16;
    pub(crate) const ACKS_LEN: usize = 20;
    pub(crate) const ACKS_CRC: usize = 24;
    pub(crate) const ACKS_RANGES: usize = 28;
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
    /// How many of `gap_before`, at its end, were only reserved.
    pub(crate) reserved: u64,
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

    /// The first of the numbers missing before it, or else its first one.
    pub(crate) fn missing_from(&self) -> u64 {
        self.first_seq.saturating_sub(self.gap_before)
    }

    /// With what the index's row of the same segment says to be missing before it: its file could not be written then.
    pub(crate) fn with_more_missing(self, row: &SegmentHeader) -> SegmentHeader {
        if row.gap_before <= self.gap_before {
            return self;
        }
        SegmentHeader { gap_before: row.gap_before, reserved: row.reserved, cause: row.cause, ..self }
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
            (at::RESERVED, self.reserved),
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
            reserved: u64_at(at::RESERVED),
            created: u64_at(at::CREATED),
            length: u64_at(at::LENGTH),
            allocated: u64_at(at::ALLOCATED),
            disk: u64_at(at::DISK),
            salt: LittleEndian::read_u32(&bytes[at::SALT..]),
        };
        let sound = header.length >= SEGMENT_HEADER_LEN + FRAGMENT_HEADER_LEN
            && header.length <= MAX_SEGMENT_LEN
            && header.allocated <= header.length
            && header.disk <= 2 * MAX_SEGMENT_LEN
            && is_position(header.base)
            && header.first_seq < LIMIT
            && header.gap_before <= header.first_seq
            && header.reserved <= header.gap_before
            && header.life < LIMIT
            && header.created < LIMIT;
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

/// What stands in an index header where the queue id does, whether or not the header is valid.
pub(crate) fn index_id(bytes: &[u8]) -> Option<[u8; 16]> {
    bytes.get(header_at::QUEUE_ID..header_at::QUEUE_ID + 16)?.try_into().ok()
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
    pub(crate) reserved: u64,
    pub(crate) cause: u8,
    pub(crate) held: u64,
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
            (at::DURABLE_RESERVED, self.reserved),
            (at::HELD_SEQ, self.held),
            (at::LATEST, self.latest),
        ] {
            LittleEndian::write_u64(&mut bytes[offset..], value);
        }
        LittleEndian::write_u64_into(&self.older, &mut bytes[at::OLDER..at::OLDER + 8 * OLDER_MARKS]);
        LittleEndian::write_u32(&mut bytes[at::CLEAN..], u32::from(self.clean));
        LittleEndian::write_u32(&mut bytes[at::DURABLE_CAUSE..], self.cause.into());
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
        let checkpoint = Checkpoint {
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
            reserved: u64_at(at::DURABLE_RESERVED),
            held: u64_at(at::HELD_SEQ),
            cause: LittleEndian::read_u32(&bytes[at::DURABLE_CAUSE..]) as u8,
            older: std::array::from_fn(|mark| u64_at(at::OLDER + 8 * mark)),
            latest: u64_at(at::LATEST),
        };
        let Checkpoint { number, seq, lease, next_life, dropped_seq, expired_seq, latest, .. } = checkpoint;
        let sound = [number, seq, lease, next_life, dropped_seq, expired_seq, latest].into_iter().all(|n| n < LIMIT)
            && is_position(checkpoint.position)
            && checkpoint.gap <= seq
            && checkpoint.reserved <= checkpoint.gap
            && checkpoint.held < LIMIT
            && checkpoint.older.iter().all(|mark| mark >> 1 < LIMIT);
        sound.then_some(checkpoint)
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

/// Where the parts of one consumer lie, in bytes from the beginning of its extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConsumerAt {
    pub(crate) name: usize,
    pub(crate) pair: usize,
    pub(crate) copy: usize,
}

impl ConsumerAt {
    /// Of the consumer in `row` of an extent of `rows`.
    pub(crate) fn new(row: u32, rows: u32) -> ConsumerAt {
        let (row, rows) = (row as usize, rows as usize);
        let pair = rows * NAME_ROW_LEN + row * PLACE_SLOT_LEN;
        ConsumerAt { name: row * NAME_ROW_LEN, pair, copy: pair + rows * PLACE_SLOT_LEN }
    }

    /// Of its three places.
    pub(crate) fn places(&self) -> [usize; 3] {
        [self.pair, self.pair + PLACE_HALF_LEN, self.copy]
    }
}

/// A consumer's name as its row says it.
pub(crate) fn encode_name(name: &str) -> [u8; NAME_ROW_LEN] {
    let mut bytes = [0; NAME_ROW_LEN];
    bytes[name_at::NAME_LEN] = name.len() as u8;
    bytes[name_at::NAME..name_at::NAME + name.len()].copy_from_slice(name.as_bytes());
    bytes
}

/// The name in those bytes: a row, or what a place's slot says of it.
pub(crate) fn decode_name(bytes: &[u8]) -> Option<&str> {
    let len = usize::from(*bytes.get(name_at::NAME_LEN)?);
    std::str::from_utf8(bytes.get(name_at::NAME..name_at::NAME + len)?).ok()
}

impl Place {
    /// What says, as the newest place, that the consumer was removed.
    pub(crate) fn removed(number: u64) -> Place {
        Place { number, position: u64::MAX, seq: 0 }
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.position == u64::MAX
    }

    /// A copy without a place, for a consumer of that name.
    pub(crate) fn empty_copy(name: &str) -> [u8; PLACE_SLOT_LEN] {
        let mut bytes = [0; PLACE_SLOT_LEN];
        if name.len() <= MAX_SHORT_NAME_LEN {
            bytes[place_at::PLACE_NAME] = name.len() as u8;
            bytes[place_at::PLACE_NAME + 1..][..name.len()].copy_from_slice(name.as_bytes());
        }
        bytes
    }

    /// The place in those bytes, if it is one of the consumer with that seed.
    pub(crate) fn decode(slot: &[u8], seed: u32) -> Option<Place> {
        let slot = slot.get(..place_at::PLACE_NAME)?;
        let place = Place {
            number: LittleEndian::read_u64(&slot[place_at::PLACE_NUMBER..]),
            position: LittleEndian::read_u64(&slot[place_at::PLACE_POSITION..]),
            seq: LittleEndian::read_u64(&slot[place_at::PLACE_SEQ..]),
        };
        let crc = LittleEndian::read_u32(&slot[place_at::PLACE_CRC..]);
        (crc == place.crc(seed) && (place.is_sound() || place.is_removed() && place.number < LIMIT)).then_some(place)
    }

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

    /// Every number in it is one that a queue can have.
    fn is_sound(&self) -> bool {
        self.number < LIMIT && is_position(self.position) && self.seq < LIMIT
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
    /// The slot for as many of the ranges as fit, the lowest first. What does not fit comes again after a crash. (Two of
    /// them may touch.)
    pub(crate) fn encode(
        number: u64,
        owner: u32,
        ranges: impl Iterator<Item = (u64, u64)>,
        seed: u32,
        bytes: &mut [u8; ACKS_SLOT_LEN],
    ) -> usize {
        use acks_at as at;
        let mut len = at::ACKS_RANGES;
        let mut bounds = None;
        for (first, last) in ranges {
            let (from, end) = bounds.unwrap_or((first, first));
            let (Ok(distance), Ok(count)) = (u32::try_from(first - end), u32::try_from(last - first + 1)) else {
                break;
            };
            let Some(behind) = put_short(bytes, len, distance).and_then(|len| put_short(bytes, len, count)) else {
                break;
            };
            len = behind;
            bounds = Some((from, last + 1));
        }
        LittleEndian::write_u64(&mut bytes[at::ACKS_NUMBER..], number);
        LittleEndian::write_u64(&mut bytes[at::ACKS_FROM..], bounds.map_or(0, |(from, _)| from));
        LittleEndian::write_u32(&mut bytes[at::ACKS_OWNER..], owner);
        LittleEndian::write_u32(&mut bytes[at::ACKS_LEN..], (len - at::ACKS_RANGES) as u32);
        let crc = Acks::crc(bytes, len, seed);
        LittleEndian::write_u32(&mut bytes[at::ACKS_CRC..], crc);
        len
    }

    /// The slot in those bytes, if it is one of the consumer with that row and seed.
    pub(crate) fn decode(bytes: &[u8], owner: u32, seed: u32) -> Option<Acks> {
        use acks_at as at;
        let bytes = bytes.get(..ACKS_SLOT_LEN)?;
        let len = at::ACKS_RANGES.checked_add(LittleEndian::read_u32(&bytes[at::ACKS_LEN..]) as usize)?;
        if len > ACKS_SLOT_LEN || LittleEndian::read_u32(&bytes[at::ACKS_OWNER..]) != owner {
            return None;
        }
        if LittleEndian::read_u32(&bytes[at::ACKS_CRC..]) != Acks::crc(bytes, len, seed) {
            return None;
        }
        let mut ranges = Vec::new();
        let mut end = LittleEndian::read_u64(&bytes[at::ACKS_FROM..]);
        let mut rest = &bytes[at::ACKS_RANGES..len];
        while !rest.is_empty() {
            let first = end.checked_add(take_short(&mut rest)?)?;
            end = first.checked_add(take_short(&mut rest)?)?;
            ranges.push((first, end.checked_sub(1).filter(|last| *last >= first && *last < LIMIT)?));
        }
        let number = LittleEndian::read_u64(&bytes[at::ACKS_NUMBER..]);
        (number < LIMIT).then_some(Acks { number, owner, ranges })
    }

    fn crc(bytes: &[u8], len: usize, seed: u32) -> u32 {
        !crc32c(crc32c(seed, &bytes[..acks_at::ACKS_CRC]), &bytes[acks_at::ACKS_RANGES..len])
    }
}

/// Writes a number in as few bytes as it takes; says where they end. `None` when they do not fit.
fn put_short(bytes: &mut [u8], mut at: usize, mut number: u32) -> Option<usize> {
    loop {
        let more = number >= 128;
        *bytes.get_mut(at)? = number as u8 & 127 | u8::from(more) << 7;
        (at, number) = (at + 1, number >> 7);
        if !more {
            return Some(at);
        }
    }
}

fn take_short(bytes: &mut &[u8]) -> Option<u64> {
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

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
