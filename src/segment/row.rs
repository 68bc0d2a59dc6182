//! A segment as the list and an opening have it: without file and mapping.

use std::io;

use crate::format::SegmentHeader;

/// A segment as the list has it: without file and mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub(crate) slot: u32,
    /// The header, with `allocated` and `disk` kept up to date. (`disk` includes what the file
    /// system needs to find the file's bytes.)
    pub(crate) header: SegmentHeader,
    /// The number of the latest store (`List::last_store`) that no sync covers yet; zero when
    /// there is none.
    pub(super) unsynced_store: u64,
    /// It was begun because the time of the segment before it was over, until that one is
    /// cut.
    pub(super) early_end: Option<EarlyEnd>,
    /// Its file was cut, and not synced since.
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

/// The segment files that an opening found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) live: Vec<Row>,
    pub(crate) spares: Vec<Row>,
    /// Segments that are live by their headers and not needed: every consumer has passed them, or
    /// they were begun for a record that was never committed.
    pub(crate) drained: Vec<Row>,
    /// Slots whose file names are taken by something that is no segment.
    pub(crate) foreign_slots: Vec<u32>,
    pub(crate) next_life: u64,
    /// The first number that may still be in the queue: the disk says that all below were given
    /// back.
    pub(crate) retained_from: u64,
    /// The first number behind all segments.
    pub(crate) end: u64,
    /// Bytes of disk that files other than segments and the index take.
    pub(crate) other_bytes: u64,
    /// Every segment has its row in the index.
    pub(crate) rows_complete: bool,
}

/// Why a live segment cannot be opened.
#[derive(Debug)]
pub(crate) enum Lost {
    /// Its file is gone, or holds something else.
    Gone,
    Io(io::Error),
}
