//! One segment file: opens it, reads its header, measures its disk usage, quarantines it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::row::{Lost, Row};
use crate::error::LaterVersion;
use crate::events;
use crate::format::{self, Invalid, QUARANTINE_SUFFIX, SEGMENT_HEADER_LEN, SegmentHeader};
use crate::storage::{Readable, Storage, StorageFile};
use crate::threads::AtomicU64;

/// An open segment file in one of its lives.
#[derive(Debug)]
pub(crate) struct Segment<F> {
    pub(crate) slot: u32,
    pub(crate) header: SegmentHeader,
    pub(crate) seed: u32,
    pub(crate) file: F,
    /// Bytes of the file that are allocated.
    pub(super) allocated: AtomicU64,
    /// File offset where fresh space began when this life began. Nothing was ever written behind
    /// it, so page faults there are expensive.
    pub(super) fresh_from: u64,
    /// File offset up to which fresh space was filled with zeros or written: pages below it are in
    /// memory. Changed only under the producers' lock.
    pub(super) filled: AtomicU64,
}

/// A segment file that recovery opened and passes to the list.
#[derive(Debug)]
pub(crate) struct Opened<F> {
    pub(crate) life: u64,
    pub(crate) file: F,
    /// Bytes of the file that are allocated.
    pub(crate) allocated: u64,
}

impl<F> Opened<F> {
    /// Returns the live segment `row` with this file.
    pub(super) fn segment_of(self, row: &Row) -> Arc<Segment<F>> {
        Arc::new(Segment {
            slot: row.slot,
            header: row.header,
            seed: row.header.seed(),
            file: self.file,
            allocated: AtomicU64::new(self.allocated),
            fresh_from: self.allocated,
            filled: AtomicU64::new(self.allocated),
        })
    }
}

impl<F: StorageFile> Segment<F> {
    pub(crate) fn name(&self) -> String {
        format::segment_name(self.slot)
    }

    /// Returns the file offset of a position of this segment.
    #[inline]
    pub(crate) fn offset(&self, position: u64) -> u64 {
        check!(let (base, end) = (self.header.base, self.header.end()));
        holds!(
            base <= position && position <= end,
            "position {position} lies in the segment from {base} to {end}"
        );
        SEGMENT_HEADER_LEN + (position - self.header.base)
    }

    pub(crate) fn allocated(&self) -> u64 {
        self.allocated.load(Ordering::Acquire)
    }

    /// Returns the position up to which space is allocated.
    pub(crate) fn allocated_end(&self) -> u64 {
        let bytes = self.allocated().max(SEGMENT_HEADER_LEN) - SEGMENT_HEADER_LEN;
        self.header.base + (bytes / format::ALIGN * format::ALIGN).min(self.header.capacity())
    }

    /// Ends the segment at `position` for readers: bytes behind it are from a rejected record,
    /// neither a message nor damage.
    pub(super) fn end_at(&self, position: u64) {
        // The next segment may begin a word behind this one's end.
        let within = position.min(self.header.end());
        self.allocated.store(self.offset(within), Ordering::Release);
    }

    /// Returns whether nothing had ever been written at `offset` when this life began.
    pub(crate) fn is_fresh(&self, offset: u64) -> bool {
        offset >= self.fresh_from
    }

    /// Returns the file offset up to which pages are in memory.
    pub(crate) fn filled(&self) -> u64 {
        self.filled.load(Ordering::Relaxed)
    }

    /// Fills fresh space up to `end` with zeros. The caller holds the producers' lock, and the tail
    /// lies before that space. Best effort: stores to space that could not be filled are only
    /// slower.
    pub(crate) fn fill(&self, end: u64) {
        let from = self.filled();
        check!(let allocated = self.allocated());
        holds!(end <= allocated, "fresh space is filled to {end}, within {allocated}");
        if from < end {
            let _ = self.file.write_zeros_at(from, end - from);
            self.filled.store(end, Ordering::Relaxed);
        }
    }

    /// Notes that the writer is about to write up to `end` by a write call.
    pub(crate) fn claim(&self, end: u64) {
        self.filled.fetch_max(end, Ordering::Relaxed);
    }
}

/// Returns the disk bytes that a segment of that length may take beyond its length, now or when its
/// pages are written out: ext4 needs one more block for a file of more than four extents.
pub(crate) fn overhead(length: u64) -> u64 {
    if length > 16 << 10 { 4096 } else { 0 }
}

/// Returns the disk bytes that a segment file counts for.
pub(super) fn taken(row: &Row) -> u64 {
    row.header.disk.max(row.header.allocated + overhead(row.header.length))
}

/// Returns the disk bytes that a file takes, at least its allocated length. Where the file system
/// does not report them, uses the last `known` value, since a cut may have failed.
pub(super) fn disk_bytes<F: StorageFile>(file: &F, known: u64, allocated: u64) -> u64 {
    file.disk_bytes().unwrap_or(known).max(allocated)
}

/// Buffered random numbers: the system returns several at a time.
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
    header_in(&file).map_err(Lost::Io)?.map_err(|_| Lost::Gone)
}

/// Reads the header at the beginning of a segment file.
pub(crate) fn header_in<F: Readable>(file: &F) -> io::Result<Result<SegmentHeader, Invalid>> {
    let mut bytes = [0; SEGMENT_HEADER_LEN as usize];
    crate::storage::read_full(file, &mut bytes, 0)?;
    Ok(SegmentHeader::decode(&bytes))
}

/// Opens the file in `slot` if it is the segment `header`. Accepts a file with a damaged header as
/// that segment: its records have checksums of their own.
pub(crate) fn open_life<S: Storage>(
    storage: &S,
    slot: u32,
    header: &SegmentHeader,
) -> Result<Opened<S::File>, Lost> {
    open_and_compare(storage, slot, header).map(|(opened, _)| opened)
}

/// Opens the file in `slot` if it is the segment `header`, or its header is damaged. Also returns
/// whether the file's header [agrees with `header`](SegmentHeader::begins_as).
pub(crate) fn open_and_compare<S: Storage>(
    storage: &S,
    slot: u32,
    header: &SegmentHeader,
) -> Result<(Opened<S::File>, bool), Lost> {
    let file = storage.open(&format::segment_name(slot)).map_err(lost)?;
    let len = file.found_len().map_err(Lost::Io)?;
    let begins_so = match header_in(&file).map_err(Lost::Io)? {
        Ok(found) if found.life != header.life || found.queue_id != header.queue_id => {
            return Err(Lost::Gone);
        }
        // This version neither reads nor writes a file of a later version.
        Err(Invalid::Version(found)) => {
            let later = LaterVersion { found, supported: format::FORMAT_VERSION };
            return Err(Lost::Io(io::Error::new(io::ErrorKind::Unsupported, later)));
        }
        Ok(found) => found.begins_as(header),
        Err(Invalid::Damaged) => false,
    };
    storage.fill_holes(&file).map_err(Lost::Io)?;
    Ok((Opened { life: header.life, file, allocated: len.min(header.length) }, begins_so))
}

pub(crate) fn lost(error: io::Error) -> Lost {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::InvalidData => Lost::Gone,
        _ => Lost::Io(error),
    }
}

/// Renames a file that is not the expected one: frees its name and keeps its bytes. On failure the
/// file keeps its name.
pub(crate) fn quarantine<S: Storage>(storage: &S, name: &str) -> io::Result<()> {
    for number in 0..10_000 {
        let quarantined = if number == 0 {
            format!("{name}{QUARANTINE_SUFFIX}")
        } else {
            format!("{name}.{number}{QUARANTINE_SUFFIX}")
        };
        // `rename` would replace a file of that name, so look first. Only this process changes the
        // directory.
        match storage.open(&quarantined) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                storage.rename(name, &quarantined)?;
                events::quarantined(storage.path(), name, &quarantined);
                return Ok(());
            }
            _ => {}
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Returns the `opened` files that belong to `live` segments.
pub(super) fn handed_on<F>(live: &[Row], opened: Vec<Opened<F>>) -> Vec<Arc<Segment<F>>> {
    let segment_of = |opened: Opened<F>| {
        let row = live.iter().find(|row| row.header.life == opened.life)?;
        Some(opened.segment_of(row))
    };
    opened.into_iter().filter_map(segment_of).collect()
}
