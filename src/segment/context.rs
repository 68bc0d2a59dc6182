//! The allocator's input for one call: limits, the next segment's header, how many spares to keep.

use crate::error::{Error, Result};
use crate::format::{self, MissingBefore, Spot};
use crate::index::Index;
use crate::index::losses::Evicted;
use crate::segment::pool::Pool;
use crate::storage::Storage;
use crate::threads::Mutex;

/// The longest segment of which an idle queue keeps [`SPARES_SMALL`] spares, in bytes.
pub(super) const SMALL_SEGMENT: u64 = 16 << 20;
/// Spares that an idle queue keeps of segments up to [`SMALL_SEGMENT`].
pub(super) const SPARES_SMALL: usize = 2;
/// Spares that an idle queue keeps of longer segments.
pub(super) const SPARES_LARGE: usize = 1;
/// Spares that a busy queue keeps of segments up to [`BUSY_SEGMENT`]. A drained segment is free
/// only after a sync, and producers need others meanwhile. With fewer spares a queue at full speed
/// keeps creating and removing files, at ten times the cost.
pub(super) const SPARES_BUSY: usize = 6;
/// A busy queue that has a spare waits until so many segments are drained, and reclaims them with
/// one sync. It keeps [`SPARES_BUSY`] files: the others serve its producers during that sync.
pub(super) const RECLAIMED_TOGETHER: usize = 4;
/// The longest segment of which a busy queue keeps [`SPARES_BUSY`] spares.
pub(super) const BUSY_SEGMENT: u64 = 4 << 20;

/// The first fields of a new segment. Fields without a comment are those of its header.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Plan {
    pub(crate) base: u64,
    pub(crate) first_seq: u64,
    pub(crate) missing: MissingBefore,
    /// Bytes behind the header that the first record needs.
    pub(crate) need: u64,
    /// Bytes before the tail that a consumer has still to read.
    pub(crate) backlog: u64,
    /// Payload bytes of the whole record that begins or continues in the segment.
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
    /// Returns whether no limit is set.
    pub(super) fn are_none(&self) -> bool {
        self.max_bytes.is_none() && self.min_free_bytes == 0
    }

    /// Returns `Busy` when no limit is set: then the queue keeps spares for busy times.
    pub(super) fn pace(&self) -> Pace {
        if self.are_none() { Pace::Busy } else { Pace::Idle }
    }
}

/// For which load the queue keeps spares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    Busy,
    Idle,
}

/// Returns how many spares of that length the queue keeps.
pub(super) fn spares_wanted(length: u64, pace: Pace) -> usize {
    match length {
        0..=BUSY_SEGMENT if pace == Pace::Busy => SPARES_BUSY,
        0..=SMALL_SEGMENT => SPARES_SMALL,
        _ => SPARES_LARGE,
    }
}

/// The parts of the queue that the allocator uses in one call.
pub(crate) struct Context<'a, S: Storage> {
    pub(crate) storage: &'a S,
    pub(crate) index: &'a Index<S>,
    pub(crate) pool: &'a Pool,
    pub(crate) limits: DiskLimits,
    /// The durable mark: position and sequence number up to which everything is on disk.
    pub(crate) durable: Spot,
    /// Up to which sequence number messages were evicted, and why. The evicting thread updates it
    /// before any thread can see that a segment with such messages is drained; it is on disk before
    /// the segment's file is reused or removed.
    pub(crate) evicted: &'a Mutex<Evicted>,
    /// Whether to fill fresh space with zeros ahead of its use. Off where a flush follows every few
    /// bytes, since each flush would write the zeros out.
    pub(crate) fills: bool,
    pub(crate) reclaims: &'a dyn Reclaims,
}

/// Reclaims drained segments while the calling producer waits. The queue implements it, because it
/// may have to flush first.
pub(crate) trait Reclaims {
    fn have_reclaimed(&self) -> Result<()>;
}

impl<S: Storage> Context<'_, S> {
    /// Returns whether another program takes the space that `min_free_bytes` keeps free.
    pub(super) fn lacks_free(&self) -> bool {
        let least = self.limits.min_free_bytes;
        least > 0 && self.storage.free_bytes().is_ok_and(|free| free < least)
    }

    /// Returns the error of a queue that takes `used` bytes and may not take `needed` more.
    #[cold]
    pub(super) fn full(&self, used: u64, limit: u64, needed: u64) -> Error {
        let path = self.storage.path().to_owned();
        Error::Full { path, option: "max_bytes", used, limit, needed, free: None, held_by: None }
    }

    /// Marks the index's segment rows as possibly wrong; called before segments change.
    pub(super) fn begin_changing(&self) -> Result<()> {
        let path = || self.storage.path().join(format::INDEX_NAME);
        self.index.begin_changing().map_err(|error| Error::io("write", path(), error))
    }

    /// Marks the index's segment rows as possibly wrong, before the header of the life below
    /// `next_life` is written (see [`begin_changing`](Self::begin_changing)).
    pub(super) fn begin_life(&self, next_life: u64) -> Result<()> {
        let path = || self.storage.path().join(format::INDEX_NAME);
        self.index.begin_life(next_life).map_err(|error| Error::io("write", path(), error))
    }
}
