//! Segment files one by one.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Lost, Row};
use crate::error::LaterVersion;
use crate::events;
use crate::format::{self, ASIDE_SUFFIX, SEGMENT_HEADER_LEN, SegmentHeader};
use crate::storage::{Storage, StorageFile};

/// An open segment file in one of its lives.
#[derive(Debug)]
pub(crate) struct Segment<F> {
    pub(crate) slot: u32,
    pub(crate) header: SegmentHeader,
    pub(crate) seed: u32,
    pub(crate) file: F,
    /// Bytes of the file that are allocated.
    pub(super) allocated: AtomicU64,
    /// File offset from which on nothing was ever written when this life began: fresh space, dear
    /// to fault in.
    pub(super) fresh_from: u64,
    /// File offset up to which the fresh space was filled with zeros ahead of its use, or written:
    /// a store there meets pages that are in memory. Moved under the producers' lock alone.
    pub(super) filled: AtomicU64,
}

impl<F: StorageFile> Segment<F> {
    pub(crate) fn name(&self) -> String {
        format::segment_name(self.slot)
    }

    /// Offset in the file of a position of this segment.
    #[inline]
    pub(crate) fn offset(&self, position: u64) -> u64 {
        SEGMENT_HEADER_LEN + (position - self.header.base)
    }

    pub(crate) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Acquire)
    }

    /// The position up to which space is allocated.
    pub(crate) fn allocated_end(&self) -> u64 {
        let bytes = self.allocated().max(SEGMENT_HEADER_LEN) - SEGMENT_HEADER_LEN;
        self.header.base + (bytes / format::ALIGN * format::ALIGN).min(self.header.capacity())
    }

    /// Nothing is there from that position on for those who read: what a refused record left there
    /// is no damage, and no message.
    pub(super) fn end_at(&self, position: u64) {
        self.allocated.store(self.offset(position), Ordering::Release);
    }

    /// Whether nothing was ever written at `offset`, in this life or before.
    pub(crate) fn is_fresh(&self, offset: u64) -> bool {
        offset >= self.fresh_from
    }

    /// File offset up to which a store meets pages that are there already.
    pub(crate) fn filled(&self) -> u64 {
        self.filled.load(Ordering::Relaxed)
    }

    /// Fills the space between what is filled and `end` with zeros, behind the tail. Best effort:
    /// what is not filled is slower to store to, no more.
    pub(crate) fn fill(&self, end: u64) {
        let from = self.filled();
        if from < end {
            let _ = self.file.write_zeros_at(from, end - from);
            self.filled.store(end, Ordering::Relaxed);
        }
    }

    /// The writer is about to write up to `end` by a call.
    pub(crate) fn claim(&self, end: u64) {
        self.filled.fetch_max(end, Ordering::Relaxed);
    }
}

/// Bytes of disk a segment of that length may take besides its own, now or when its pages are
/// written out: a file in more than four pieces (ext4) needs a block that says where they are.
pub(crate) fn overhead(length: u64) -> u64 {
    if length > 16 << 10 { 4096 } else { 0 }
}

/// Bytes of disk a segment file is counted with.
pub(super) fn taken(row: &Row) -> u64 {
    row.header.disk.max(row.header.allocated + overhead(row.header.length))
}

/// Bytes of disk a file takes, at least its allocated length.
pub(super) fn disk_bytes<F: StorageFile>(file: &F, allocated: u64) -> u64 {
    file.disk_bytes().unwrap_or(0).max(allocated)
}

/// Random numbers, of which the system gives several at a time.
#[derive(Debug, Default)]
pub(super) struct Salts(Vec<u32>);

impl Salts {
    pub(super) fn draw<S: Storage>(&mut self, storage: &S) -> u32 {
        loop {
            if let Some(salt) = self.0.pop() {
                return salt;
            }
            let drawn = storage.random();
            self.0.extend(drawn.as_chunks::<4>().0.iter().map(|salt| u32::from_le_bytes(*salt)));
        }
    }
}

/// Reads the header of the segment file in `slot`.
pub(crate) fn read_header<S: Storage>(storage: &S, slot: u32) -> Result<SegmentHeader, Lost> {
    let file = storage.open(&format::segment_name(slot)).map_err(lost)?;
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    crate::storage::read_full(&file, &mut bytes, 0).map_err(Lost::Io)?;
    SegmentHeader::decode(&bytes).map_err(|_| Lost::Gone)
}

/// Opens the file in `slot` when it is the segment `header`; with the bytes of it that exist. A
/// file whose header is damaged is taken for it: its records carry their own proof.
pub(crate) fn open_life<S: Storage>(
    storage: &S,
    slot: u32,
    header: &SegmentHeader,
) -> Result<(S::File, u64), Lost> {
    let file = storage.open(&format::segment_name(slot)).map_err(lost)?;
    let len = file.len().map_err(Lost::Io)?;
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    crate::storage::read_full(&file, &mut bytes, 0).map_err(Lost::Io)?;
    match SegmentHeader::decode(&bytes) {
        Ok(found) if found.life != header.life || found.queue_id != header.queue_id => {
            Err(Lost::Gone)
        }
        // A later version's file is neither read nor written.
        Err(format::Invalid::Version(found)) => {
            let later = LaterVersion { found, supported: format::FORMAT_VERSION };
            Err(Lost::Io(io::Error::new(io::ErrorKind::Unsupported, later)))
        }
        _ => Ok((file, len.min(header.length))),
    }
}

pub(super) fn lost(error: io::Error) -> Lost {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::InvalidData => Lost::Gone,
        _ => Lost::Io(error),
    }
}

/// Renames a file that is not what it should be, so that it is out of the way and not lost. Best
/// effort: on failure it stays where it is.
pub(crate) fn set_aside<S: Storage>(storage: &S, name: &str) {
    for number in 0..10_000 {
        let aside = if number == 0 {
            format!("{name}{ASIDE_SUFFIX}")
        } else {
            format!("{name}.{number}{ASIDE_SUFFIX}")
        };
        // `rename` would replace a file of that name: look first. The directory is ours alone.
        match storage.open(&aside) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if storage.rename(name, &aside).is_ok() {
                    events::set_aside(storage.path(), name, &aside);
                }
                return;
            }
            _ => {}
        }
    }
}
