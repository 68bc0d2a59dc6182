//! What the list and recovery know of a segment without its file and mapping.

use std::io;

use crate::error::{Error, Result};
use crate::format::{SegmentHeader, segment_name};
use crate::storage::Storage;

/// A segment in the list, without its file and mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) slot: u32,
    /// The header, with `allocated` and `disk` kept up to date. (`disk` includes the file system's
    /// blocks for the file's extents.)
    pub(crate) header: SegmentHeader,
    /// The number of the latest store (`List::last_store`) that no sync covers yet; zero when
    /// there is none.
    pub(super) unsynced_store: u64,
    /// Set while the segment before it, closed early because its time span was over, is still to be
    /// cut.
    pub(super) early_end: Option<EarlyEnd>,
    /// Whether its file was cut and not synced since.
    pub(super) is_cut: bool,
}

impl Row {
    pub(crate) fn new(slot: u32, header: SegmentHeader) -> Row {
        Row { slot, header, unsynced_store: 0, early_end: None, is_cut: false }
    }
}

/// Where the segment before another one ends early.
#[derive(Debug, Clone, Copy)]
pub(super) struct EarlyEnd {
    /// The life of the segment that ends.
    pub(super) life: u64,
    /// The file offset behind its last bytes.
    pub(super) offset: u64,
}

/// The segment files that recovery found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) live: Vec<Row>,
    pub(crate) spares: Vec<Row>,
    /// Segments that their headers call live but no consumer needs: every consumer has passed them,
    /// or a writer began them for a record that was never committed.
    pub(crate) drained: Vec<Row>,
    /// Slots whose file name belongs to something that is not a segment.
    pub(crate) foreign_slots: Vec<u32>,
    pub(crate) next_life: u64,
    /// The first sequence number that may still be in the queue: the disk says that all below were
    /// evicted or consumed.
    pub(crate) retained_from: u64,
    /// Where the first consumer begins: see `List::unclaimed_from`.
    pub(crate) unclaimed_from: u64,
    /// The first sequence number behind all segments.
    pub(crate) end: u64,
    /// Bytes of disk that files other than segments and the index take.
    pub(crate) other_bytes: u64,
    /// Whether every segment has its row in the index.
    pub(crate) rows_complete: bool,
}

/// Why a live segment cannot be opened.
#[derive(Debug)]
pub(crate) enum Lost {
    /// Its file is missing, or is not this segment.
    Gone,
    Io(io::Error),
}

/// Returns what was opened in `slot`; `None` if damage has lost the file, or it was reclaimed.
pub(crate) fn present<S: Storage, T>(
    storage: &S,
    slot: u32,
    opened: std::result::Result<T, Lost>,
) -> Result<Option<T>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Lost::Gone) => Ok(None),
        Err(Lost::Io(error)) => {
            Err(Error::io("open", storage.path().join(segment_name(slot)), error))
        }
    }
}
