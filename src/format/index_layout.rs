//! The parts of the index file except the consumers': header, checkpoints, extents, live part.

use byteorder::{ByteOrder, LittleEndian};

use super::Spot;
use super::*;
use crate::memory::checksum::checksum;

/// Offsets of the parts of the index file, in bytes.
pub(crate) mod index_at {
    pub(crate) const INDEX_HEADER: usize = 0;
    pub(crate) const CHECKPOINT_A: usize = 1024;
    pub(crate) const EXTENTS: usize = 2048;
    pub(crate) const CHECKPOINT_B: usize = 4096;
    pub(crate) const UNREPORTED: usize = 4608;
    pub(crate) const FIGURES: usize = 5120;
    pub(crate) const ATTEMPTS: usize = 6144;
    pub(crate) const LIVE: usize = 8192;
    pub(crate) const ACKS: usize = 8704;
    pub(crate) const EXTENTS_AGAIN: usize = 11776;
    pub(crate) const CONSUMERS: usize = 12288;
    pub(crate) const SEGMENTS: usize = 36864;
    /// Length in bytes of a new index file.
    pub(crate) const END: usize = 40960;
}
// Reserved: no release writes there, and an opening does not change it.
const _: () = assert!(index_at::CHECKPOINT_B + CHECKPOINT_LEN <= index_at::UNREPORTED);
const _: () = assert!(index_at::UNREPORTED + SECTOR == index_at::FIGURES);
const _: () = assert!(index_at::FIGURES + 2 * FIGURES_LEN == index_at::ATTEMPTS);
const _: () = assert!(FIGURES_LEN == SECTOR && index_at::FIGURES.is_multiple_of(SECTOR));
const _: () = assert!(index_at::ATTEMPTS + ATTEMPTS_ROWS * ATTEMPTS_ROW_LEN == index_at::LIVE);
pub(crate) const EXTENT_ROW_LEN: usize = 16;
pub(crate) const EXTENT_ROWS: usize = 32;
const _: () =
    assert!(index_at::EXTENTS_AGAIN + EXTENT_ROWS * EXTENT_ROW_LEN == index_at::CONSUMERS);
pub(crate) const SEGMENT_ROW_LEN: usize = SEGMENT_HEADER_LEN as usize;
pub(crate) const SEGMENT_ROWS: usize = 32;
mod header_at {
    pub(super) const INDEX_MAGIC: usize = 0;
    pub(super) const VERSION: usize = 8;
    pub(super) const QUEUE_ID: usize = 16;
    pub(super) const CREATED: usize = 32;
    pub(super) const INDEX_SUM: usize = 60;
}
pub(crate) const INDEX_HEADER_LEN: usize = 64;

mod checkpoint_at {
    pub(super) const CHECKPOINT_NUMBER: usize = 0;
    pub(super) const CHECKPOINT_NONCE: usize = 8;
    pub(super) const DURABLE_POSITION: usize = 16;
    pub(super) const DURABLE_SEQ: usize = 24;
    pub(super) const RESERVATION: usize = 32;
    pub(super) const NEXT_LIFE: usize = 40;
    pub(super) const DROPPED_SEQ: usize = 48;
    pub(super) const EXPIRED_SEQ: usize = 56;
    pub(super) const CLEAN: usize = 64;
    pub(super) const DURABLE_CAUSE: usize = 68;
    pub(super) const DURABLE_GAP: usize = 72;
    pub(super) const DURABLE_RESERVED: usize = 120;
    pub(super) const RETAINED_FROM: usize = 128;
    pub(super) const CHECKPOINT_SUM: usize = 188;
}
pub(crate) const CHECKPOINT_LEN: usize = 192;

/// Offsets in the live part, in bytes.
pub(crate) mod live_at {
    pub(crate) const BOOT_TOKEN: usize = 0;
    pub(crate) const FILE_TOKEN: usize = 8;
    pub(crate) const MOUNT_TOKEN: usize = 16;
    pub(crate) const LIVE_NONCE: usize = 24;
    pub(crate) const LIVE_SINCE: usize = 32;
    pub(crate) const LIVE_PID: usize = 40;
    pub(crate) const CHANGED: usize = 48;
    pub(crate) const TAIL_SEQ: usize = 64;
    pub(crate) const TAIL_POSITION: usize = 72;
    pub(crate) const TAIL_CHECK: usize = 80;
    pub(crate) const RUN_A: usize = 128;
    pub(crate) const RUN_B: usize = 256;
    pub(crate) const SYNCED_A: usize = 384;
    pub(crate) const SYNCED_B: usize = 408;
}
pub(crate) const LIVE_LEN: usize = 512;

/// Offsets in the run record, in bytes.
pub(crate) mod run_at {
    pub(crate) const RUN_FLAGS: usize = 0;
    pub(crate) const RUN_CAUSE: usize = 4;
    pub(crate) const RUN_NEXT_LIFE: usize = 8;
    pub(crate) const RUN_RESERVATION: usize = 16;
    pub(crate) const RUN_DROPPED_SEQ: usize = 24;
    pub(crate) const RUN_EXPIRED_SEQ: usize = 32;
    pub(crate) const RUN_NEXT_BASE: usize = 80;
    pub(crate) const RUN_NEXT_SEQ: usize = 88;
    pub(crate) const RUN_NEXT_GAP: usize = 96;
    pub(crate) const RUN_NEXT_RESERVED: usize = 104;
    pub(crate) const RUN_SUM: usize = 124;
}
pub(crate) const RUN_LEN: usize = 128;
/// Bits of `RUN_FLAGS`.
pub(crate) const FLAG_CHANGING: u32 = 1;
/// No run has synced the files that it found here. (Somebody copied them, or they are of an earlier
/// boot.)
pub(crate) const FLAG_UNSYNCED_FILES: u32 = 2;
/// The run has withdrawn the mark of the clean end before it.
pub(crate) const FLAG_BEGUN: u32 = 4;
/// A sync has failed: the page cache may take bytes for stored that the disk does not have.
pub(crate) const FLAG_SYNC_FAILED: u32 = 8;

/// The check word of a tail (or a durable mark): it is valid only for this position with this
/// number in the queue with this `key`. A kill between the stores of the words leaves an invalid
/// one.
#[inline]
pub(crate) fn tail_check(key: u64, position: u64, seq: u64) -> u64 {
    position.rotate_left(23) ^ seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key
}

/// The key of a queue for [`tail_check`].
pub(crate) fn tail_key(queue_id: &[u8; 16]) -> u64 {
    LittleEndian::read_u64(queue_id).rotate_left(32)
        ^ LittleEndian::read_u64(&queue_id[8..])
        ^ INDEX_MAGIC
}

pub(crate) fn encode_index_header(
    queue_id: &[u8; 16],
    created: u64,
    version: Version,
) -> [u8; INDEX_HEADER_LEN] {
    let mut bytes = [0; INDEX_HEADER_LEN];
    LittleEndian::write_u64(&mut bytes[header_at::INDEX_MAGIC..], INDEX_MAGIC);
    LittleEndian::write_u32(&mut bytes[header_at::VERSION..], version as u32);
    bytes[header_at::QUEUE_ID..header_at::QUEUE_ID + 16].copy_from_slice(queue_id);
    LittleEndian::write_u64(&mut bytes[header_at::CREATED..], created);
    let sum = checksum(0, &bytes[..header_at::INDEX_SUM]);
    LittleEndian::write_u32(&mut bytes[header_at::INDEX_SUM..], sum);
    holds!(
        decode_index_header(&bytes) == Ok(*queue_id),
        "a header of the index that is written can be read, as version {version:?}"
    );
    bytes
}

/// The queue's id in an index header, whether or not the header is valid.
pub(crate) fn index_id(bytes: &[u8]) -> Option<[u8; 16]> {
    bytes.get(header_at::QUEUE_ID..header_at::QUEUE_ID + 16)?.try_into().ok()
}

/// When the queue was created, in milliseconds since 1970; 0 when the index header is invalid.
pub(crate) fn index_created(bytes: &[u8]) -> u64 {
    match decode_index_header(bytes) {
        Ok(_) => LittleEndian::read_u64(&bytes[header_at::CREATED..]),
        Err(_) => 0,
    }
}

/// The version in a valid header of the index of the queue `queue_id`; the lowest version if the
/// header is invalid.
pub(crate) fn index_version(bytes: &[u8], queue_id: &[u8; 16]) -> Version {
    if decode_index_header(bytes) != Ok(*queue_id) {
        return Version::default();
    }
    let version = LittleEndian::read_u32(&bytes[header_at::VERSION..]);
    Version::from_number(version).unwrap_or_default()
}

/// The queue's id in a valid index header.
pub(crate) fn decode_index_header(bytes: &[u8]) -> Result<[u8; 16], Invalid> {
    let bytes = bytes.get(..INDEX_HEADER_LEN).ok_or(Invalid::Damaged)?;
    let sum = checksum(0, &bytes[..header_at::INDEX_SUM]);
    let holds = LittleEndian::read_u32(&bytes[header_at::INDEX_SUM..]) == sum;
    if LittleEndian::read_u64(&bytes[header_at::INDEX_MAGIC..]) != INDEX_MAGIC {
        return Err(Invalid::Damaged);
    }
    if !holds {
        return Err(invalid_header(bytes));
    }
    Version::from_number(LittleEndian::read_u32(&bytes[header_at::VERSION..]))?;
    let mut queue_id = [0; 16];
    queue_id.copy_from_slice(&bytes[header_at::QUEUE_ID..header_at::QUEUE_ID + 16]);
    Ok(queue_id)
}

/// A checkpoint: it states what is on the disk. The fields are those of docs/format.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Checkpoint {
    pub(crate) number: u64,
    pub(crate) nonce: u64,
    /// Every record before this position is on the disk.
    pub(crate) position: u64,
    /// The number at `position`.
    pub(crate) seq: u64,
    pub(crate) reservation: u64,
    pub(crate) next_life: u64,
    pub(crate) dropped_seq: u64,
    pub(crate) expired_seq: u64,
    /// The mark of a clean end.
    pub(crate) clean: bool,
    /// The numbers right before `seq` that the segment at `position` is to state as missing.
    pub(crate) missing: MissingBefore,
    /// No message below this number is held.
    pub(crate) retained_from: u64,
}

impl Checkpoint {
    /// What a checkpoint says grows, but for the reservation.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(crate) fn check_behind(&self, before: &Checkpoint) {
        holds!(
            before.position <= self.position && before.seq <= self.seq,
            "a checkpoint does not go back, from {:?} to {:?}",
            before.spot(),
            self.spot()
        );
        holds!(
            before.next_life <= self.next_life,
            "the next life in a checkpoint does not fall, from {} to {}",
            before.next_life,
            self.next_life
        );
        holds!(
            before.dropped_seq <= self.dropped_seq && before.expired_seq <= self.expired_seq,
            "what was evicted stays evicted: {before:?} is followed by {self:?}"
        );
        holds!(
            before.retained_from <= self.retained_from,
            "the first retained number does not fall, from {} to {}",
            before.retained_from,
            self.retained_from
        );
        holds!(
            self.clean || before.clean || before.reservation <= self.reservation,
            "a reservation to {} is not cut to {} before the run ends",
            before.reservation,
            self.reservation
        );
    }

    /// The spot before which every record is on the disk.
    pub(crate) fn spot(&self) -> Spot {
        Spot { position: self.position, seq: self.seq }
    }

    pub(crate) fn encode(&self, queue_id: &[u8; 16]) -> [u8; CHECKPOINT_LEN] {
        use checkpoint_at as at;
        let mut bytes = [0; CHECKPOINT_LEN];
        for (offset, value) in [
            (at::CHECKPOINT_NUMBER, self.number),
            (at::CHECKPOINT_NONCE, self.nonce),
            (at::DURABLE_POSITION, self.position),
            (at::DURABLE_SEQ, self.seq),
            (at::RESERVATION, self.reservation),
            (at::NEXT_LIFE, self.next_life),
            (at::DROPPED_SEQ, self.dropped_seq),
            (at::EXPIRED_SEQ, self.expired_seq),
            (at::DURABLE_GAP, self.missing.gap),
            (at::DURABLE_RESERVED, self.missing.reserved),
            (at::RETAINED_FROM, self.retained_from),
        ] {
            LittleEndian::write_u64(&mut bytes[offset..], value);
        }
        LittleEndian::write_u32(&mut bytes[at::CLEAN..], u32::from(self.clean));
        LittleEndian::write_u32(&mut bytes[at::DURABLE_CAUSE..], self.missing.cause.into());
        let sum = checksum(checksum(0, queue_id), &bytes[..at::CHECKPOINT_SUM]);
        LittleEndian::write_u32(&mut bytes[at::CHECKPOINT_SUM..], sum);
        holds!(
            Checkpoint::decode(&bytes, queue_id).is_none_or(|read| read == *self),
            "a checkpoint that is written is read as it was, if a queue can have it: {self:?}"
        );
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], queue_id: &[u8; 16]) -> Option<Checkpoint> {
        use checkpoint_at as at;
        let bytes = bytes.get(..CHECKPOINT_LEN)?;
        let sum = checksum(checksum(0, queue_id), &bytes[..at::CHECKPOINT_SUM]);
        let holds = LittleEndian::read_u32(&bytes[at::CHECKPOINT_SUM..]) == sum;
        if !holds {
            return None;
        }
        let u64_at = |offset: usize| LittleEndian::read_u64(&bytes[offset..]);
        let checkpoint = Checkpoint {
            number: u64_at(at::CHECKPOINT_NUMBER),
            nonce: u64_at(at::CHECKPOINT_NONCE),
            position: u64_at(at::DURABLE_POSITION),
            seq: u64_at(at::DURABLE_SEQ),
            reservation: u64_at(at::RESERVATION),
            next_life: u64_at(at::NEXT_LIFE),
            dropped_seq: u64_at(at::DROPPED_SEQ),
            expired_seq: u64_at(at::EXPIRED_SEQ),
            clean: LittleEndian::read_u32(&bytes[at::CLEAN..]) == 1,
            missing: MissingBefore {
                gap: u64_at(at::DURABLE_GAP),
                reserved: u64_at(at::DURABLE_RESERVED),
                cause: LittleEndian::read_u32(&bytes[at::DURABLE_CAUSE..]) as u8,
            },
            retained_from: u64_at(at::RETAINED_FROM),
        };
        let Checkpoint { number, seq, reservation, next_life, dropped_seq, expired_seq, .. } =
            checkpoint;
        let sound = [number, seq, reservation, next_life, dropped_seq, expired_seq]
            .into_iter()
            .all(|n| n < LIMIT)
            && is_position(checkpoint.position)
            && checkpoint.missing.is_sound(seq)
            && checkpoint.retained_from < LIMIT;
        sound.then_some(checkpoint)
    }
}

/// The kind of rows in an extent of the index file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExtentKind {
    Consumers,
    Segments,
    Acks,
    Forwards,
    /// A kind of a later release, by its number: this release does not change its rows.
    Later(u32),
}

impl ExtentKind {
    fn number(self) -> u32 {
        match self {
            ExtentKind::Consumers => 1,
            ExtentKind::Segments => 2,
            ExtentKind::Acks => 3,
            ExtentKind::Forwards => 6,
            ExtentKind::Later(number) => number,
        }
    }

    fn from_number(number: u32) -> Option<ExtentKind> {
        Some(match number {
            0 => return None,
            1 => ExtentKind::Consumers,
            2 => ExtentKind::Segments,
            3 => ExtentKind::Acks,
            6 => ExtentKind::Forwards,
            later => ExtentKind::Later(later),
        })
    }
}

/// A range of the index file with rows of one kind.
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
            ExtentKind::Forwards => FORWARD_ROW_LEN,
            ExtentKind::Later(_) => SECTOR,
        }
    }

    /// Offset of the first byte after it.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.offset) + u64::from(self.rows) * self.row_len() as u64
    }

    /// A new extent with at least `rows` rows, in whole pages, at the end of a file of `len` bytes.
    /// `None` when the file would be too long.
    pub(crate) fn behind(kind: ExtentKind, len: u64, rows: u32, page: u64) -> Option<Extent> {
        let offset = u32::try_from(len.next_multiple_of(page)).ok()?;
        let mut extent = Extent { kind, offset, rows };
        let bytes = (extent.end() - u64::from(offset)).next_multiple_of(page);
        extent.rows = u32::try_from(bytes / extent.row_len() as u64).ok()?;
        holds!(
            extent.rows >= rows && extent.end() <= u64::from(offset) + bytes,
            "an extent has {rows} rows at least, and fills {bytes} bytes: {extent:?}"
        );
        Some(extent)
    }

    pub(crate) fn encode(&self, queue_id: &[u8; 16]) -> [u8; EXTENT_ROW_LEN] {
        let mut bytes = [0; EXTENT_ROW_LEN];
        LittleEndian::write_u32(&mut bytes, self.kind.number());
        LittleEndian::write_u32(&mut bytes[4..], self.offset);
        LittleEndian::write_u32(&mut bytes[8..], self.rows);
        let sum = checksum(checksum(0, queue_id), &bytes[..12]);
        LittleEndian::write_u32(&mut bytes[12..], sum);
        holds!(
            Extent::decode(&bytes, queue_id).is_none_or(|read| read == *self),
            "a row of an extent that is written is read as it was: {self:?}"
        );
        bytes
    }

    pub(crate) fn decode(bytes: &[u8], queue_id: &[u8; 16]) -> Option<Extent> {
        let bytes = bytes.get(..EXTENT_ROW_LEN)?;
        let kind = ExtentKind::from_number(LittleEndian::read_u32(bytes))?;
        let sum = checksum(checksum(0, queue_id), &bytes[..12]);
        if LittleEndian::read_u32(&bytes[12..]) != sum {
            return None;
        }
        Some(Extent {
            kind,
            offset: LittleEndian::read_u32(&bytes[4..]),
            rows: LittleEndian::read_u32(&bytes[8..]),
        })
    }
}
