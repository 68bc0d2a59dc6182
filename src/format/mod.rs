#![doc = include_str!("../../docs/format.md")]
//!
//! # Source files
//!
//! | File | What it holds | What it does |
//! |---|---|---|
//! | `fragment` | `Fragment`, `Seal`, `Batch`: a record's header | encodes, decodes, checks |
//! | `segment` | `SegmentHeader` | encodes, decodes, seeds checksums |
//! | `index_layout` | offsets; `Checkpoint`, `Extent`, the header | encodes, decodes |
//! | `consumer_row` | `Place`, `Acks`: a consumer in the index | encodes, decodes |
//! | `attempts_row` | `Attempts`: attempt counts | encodes, decodes |
//! | `forward_row` | `ForwardSlot`: what a forwarder knows | encodes, decodes |
//! | `figures_row` | `Figures`: the holder's counters | encodes, decodes |
//! | `origin_row` | `Origin` of a dead letter | encodes, decodes |
//! | `position` | `Spot`, `NumberRange` | |

mod attempts_row;
mod consumer_row;
mod figures_row;
mod forward_row;
mod fragment;
mod index_layout;
mod missing_before;
mod origin_row;
mod position;
mod segment;

#[cfg(test)]
mod tests;

use byteorder::{ByteOrder, LittleEndian};

pub(crate) use attempts_row::*;
pub(crate) use consumer_row::*;
pub(crate) use figures_row::*;
pub(crate) use forward_row::*;
pub(crate) use fragment::*;
pub(crate) use index_layout::*;
pub(crate) use missing_before::*;
pub use origin_row::Origin;
pub(crate) use origin_row::*;
pub(crate) use position::*;
pub(crate) use segment::*;

/// The newest version that this library reads and writes. A queue keeps version 3 until it stores
/// something that needs a higher one.
///
/// ```
/// println!("reads files up to format version {}", mmq::FORMAT_VERSION);
/// ```
pub const FORMAT_VERSION: u32 = Version::Origins as u32;
/// The longest message, in bytes: 4 GiB - 1.
///
/// ```
/// let file = vec![0u8; 1_000];
/// assert!(file.len() as u64 <= mmq::MAX_MESSAGE_LEN);
/// ```
pub const MAX_MESSAGE_LEN: u64 = u32::MAX as u64;

/// Smallest and largest arena in bytes.
pub(crate) const MIN_ARENA: u64 = 4 << 10;
pub(crate) const MAX_ARENA: u64 = 1 << 30;
/// The smallest `max_bytes`, in bytes: an index and three segments of two pages each.
pub(crate) const MIN_MAX_BYTES: u64 = 64 << 10;
/// Arenas smaller than this share a segment of this length in bytes.
pub(crate) const SHARED_SEGMENT_LEN: u64 = 4 << 20;
/// The largest file that counts as a segment, in bytes.
pub(crate) const MAX_SEGMENT_LEN: u64 = MAX_ARENA;

/// Slots are numbered below this. A new segment takes the lowest free slot, so this bounds the
/// number of segments, and what an absurd file name can make a reader of the directory allocate.
pub(crate) const MAX_SLOTS: u32 = 1 << 24;

pub(crate) const INDEX_NAME: &str = "index";
/// The socket of an owner that shares the queue. It holds nothing of the queue.
pub(crate) const SOCKET_NAME: &str = "socket";

/// Name of the new index file with which an opening replaces a damaged one, until it is durable.
pub(crate) const INDEX_NEW_NAME: &str = "index.new";
/// Name of the new file that an opening makes of another one, until it has that one's name.
pub(crate) const RENEWED_NAME: &str = "renewed";
pub(crate) const SEGMENT_PREFIX: &str = "segment-";
/// Ending of the names of quarantined files; mmq never removes them.
pub(crate) const QUARANTINE_SUFFIX: &str = ".damaged";

pub(crate) const INDEX_MAGIC: u64 = u64::from_le_bytes(*b"mmqindex");
pub(crate) const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"mmqsegmt");

/// Every record begins at a multiple of this many bytes.
pub(crate) const ALIGN: u64 = 8;
pub(crate) const SEGMENT_HEADER_LEN: u64 = 128;
pub(crate) const FRAGMENT_HEADER_LEN: u64 = 16;
/// Bytes of the seal after the payload of a batch's last fragment.
pub(crate) const SEAL_LEN: u64 = 8;

/// Every number, position, life and time in a file is below this. Decoders refuse higher ones, so
/// the sum of two valid values cannot overflow.
pub(crate) const LIMIT: u64 = 1 << 62;

/// Whether a queue can have this position.
pub(crate) fn is_position(position: u64) -> bool {
    position < LIMIT && position.is_multiple_of(ALIGN)
}

/// Name of the segment file in `slot`.
pub(crate) fn segment_name(slot: u32) -> String {
    format!("{SEGMENT_PREFIX}{slot:08}")
}

/// The slot of a segment file's name, if the name is exactly the result of [`segment_name`].
pub(crate) fn segment_slot(name: &str) -> Option<u32> {
    let slot = name.strip_prefix(SEGMENT_PREFIX)?.parse().ok()?;
    (slot < MAX_SLOTS && segment_name(slot) == name).then_some(slot)
}

/// Rounds up to the next multiple of 8.
#[inline]
pub(crate) const fn align_up(len: u64) -> u64 {
    (len + (ALIGN - 1)) & !(ALIGN - 1)
}

/// The length of a fragment with `payload` bytes.
#[inline]
pub(crate) const fn fragment_len(payload: u64) -> u64 {
    FRAGMENT_HEADER_LEN + align_up(payload)
}

/// The bytes that a disk writes whole or not at all.
pub(crate) const SECTOR: usize = 512;

/// The version of a file: the format that a reader must know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(crate) enum Version {
    /// Everything that the other versions do not add.
    #[default]
    Plain = 3,
    /// The queue may hold dead letters with their origins.
    Origins = 4,
}

impl Version {
    /// The version with this number; an error when this library does not know it.
    pub(crate) fn from_number(number: u32) -> Result<Version, Invalid> {
        match number {
            3 => Ok(Version::Plain),
            4 => Ok(Version::Origins),
            other => Err(Invalid::Version(other)),
        }
    }
}

/// Why bytes are not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// The magic number or the checksum is wrong.
    Damaged,
    /// Intact, but of this unknown version.
    Version(u32),
}

/// Why a header whose checksum does not hold is invalid. The first files of the versions 1 and 2
/// had a CRC32C there: these are intact, and of that version.
#[cold]
pub(crate) fn invalid_header(bytes: &[u8]) -> Invalid {
    let (covered, sum) = bytes.split_at(bytes.len() - 4);
    let shifted = |crc: u32| crc >> 1 ^ (crc & 1).wrapping_neg() & 0x82f6_3b78;
    let crc = covered
        .iter()
        .fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| shifted(crc)));
    let (is_older, version) = (sum == (!crc).to_le_bytes(), LittleEndian::read_u32(&bytes[8..]));
    if is_older { Invalid::Version(version) } else { Invalid::Damaged }
}
