//! What the allocator needs for one call: limits, how a segment begins, how many spares it keeps.

use crate::error::{Error, Result};
use crate::format::{self, MissingBefore, Spot};
use crate::index::Index;
use crate::index::losses::Evicted;
use crate::segment::pool::Pool;
use crate::storage::Storage;
use crate::threads::Mutex;

/// The longest segment of which an idle queue keeps [`SPARES_SMALL`] spares.
pub(super) const SMALL_SEGMENT: u64 = 16 << 20;
/// Spares that an idle queue keeps of segments up to [`SMALL_SEGMENT`].
pub(super) const SPARES_SMALL: usize = 2;
/// Spares that an idle queue keeps of longer segments.
pub(super) const SPARES_LARGE: usize = 1;
/// Spares that a busy queue keeps of segments up to [`BUSY_SEGMENT`]. A drained segment is free
/// only after a sync, and producers need others meanwhile. With fewer spares a queue at full speed
/// makes and removes files all the time, at ten times the cost.
pub(super) const SPARES_BUSY: usize = 6;
/// The longest segment of which a busy queue keeps [`SPARES_BUSY`] spares.
pub(super) const BUSY_SEGMENT: u64 = 4 << 20;

/// How a new segment begins. The fields that are not explained here are those of the header.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Plan {
    pub(crate) base: u64,
    pub(crate) first_seq: u64,
    pub(crate) missing: MissingBefore,
    /// Bytes behind the header that the first record needs.
    pub(crate) need: u64,
    /// Bytes before the tail that a consumer has still to read.
    pub(crate) backlog: u64,
    /// Payload bytes of the whole record that begins in the segment, or goes on in it.
    pub(crate) whole: u64,
    pub(crate) created: u64,
    pub(crate) until: u64,
}

/// Limits on disk space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiskLimits {
    pub(crate) max_bytes: Option<u64>,
    pub(crate) min_free_bytes: u64,
}

impl DiskLimits {
    /// No limit is set.
    pub(super) fn are_none(&self) -> bool {
        self.max_bytes.is_none() && self.min_free_bytes == 0
    }

    /// Without a limit, spares are kept for busy times.
    pub(super) fn pace(&self) -> Pace {
        if self.are_none() { Pace::Busy } else { Pace::Idle }
    }
}

/// The times for which spares are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    Busy,
    Idle,
}

/// How many spares of that length are kept.
pub(super) fn spares_wanted(length: u64, pace: Pace) -> usize {
    match length {
        0..=BUSY_SEGMENT if pace == Pace::Busy => SPARES_BUSY,
        0..=SMALL_SEGMENT => SPARES_SMALL,
        _ => SPARES_LARGE,
    }
}

/// What the allocator needs of the queue for one call.
pub(crate) struct Context<'a, S: Storage> {
    pub(crate) storage: &'a S,
    pub(crate) index: &'a Index<S>,
    pub(crate) pool: &'a Pool,
    pub(crate) limits: DiskLimits,
    /// The durable mark: position and sequence number up to which everything is on disk.
    pub(crate) durable: Spot,
    /// Up to which number messages were evicted, and why. It is noted before anybody can see that
    /// a segment with such messages is drained, and is on disk before the segment's file goes.
    pub(crate) evicted: &'a Mutex<Evicted>,
    /// Fresh space is filled with zeros ahead of its use: no flush comes after every few bytes,
    /// which would write the zeros out.
    pub(crate) fills: bool,
    pub(crate) reclaims: &'a dyn Reclaims,
}

/// Reclaims drained segments for a producer, which waits for it. The queue does it, because it may
/// have to flush first.
pub(crate) trait Reclaims {
    fn have_reclaimed(&self) -> Result<()>;
}

impl<S: Storage> Context<'_, S> {
    /// The error of a queue that takes `used` bytes and may not take `needed` more.
    #[cold]
    pub(super) fn full(&self, used: u64, limit: u64, needed: u64) -> Error {
        let path = self.storage.path().to_owned();
        Error::Full { path, option: "max_bytes", used, limit, needed, free: None, held_by: None }
    }

    /// Notes in the index that its rows of segments may be wrong; called before segments change.
    pub(super) fn begin_changing(&self) -> Result<()> {
        let path = || self.storage.path().join(format::INDEX_NAME);
        self.index.begin_changing().map_err(|error| Error::io("write", path(), error))
    }

    /// As [`begin_changing`](Self::begin_changing), before the header of the life below `next_life`
    /// is written.
    pub(super) fn begin_life(&self, next_life: u64) -> Result<()> {
        let path = || self.storage.path().join(format::INDEX_NAME);
        self.index.begin_life(next_life).map_err(|error| Error::io("write", path(), error))
    }
}
