//! The positions ("places") of all consumers, as other threads see them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::format::Spot;
use crate::threads::ranks::{Rank, ranked};
use crate::threads::{AtomicU64, Mutex, RwLock};

/// A consumer's position as other threads see it, with its counts. Only the thread that holds the
/// consumer's lock stores to it.
#[derive(Debug, Default)]
pub(crate) struct PlaceCell {
    pub(crate) position: AtomicU64,
    pub(crate) seq: AtomicU64,
    /// With `taken`: how often the position or the acknowledgements changed in this run (see
    /// [`moves`](Self::moves)).
    pub(crate) changes: AtomicU64,
    /// Messages that the consumer took in this run.
    pub(crate) taken: AtomicU64,
    /// How many messages are delivered, but neither acknowledged nor returned.
    pub(crate) in_flight: AtomicU64,
    /// Whether it is no consumer, but only keeps segments for one that is being made or moved.
    pub(crate) is_stand_in: bool,
}

/// The counts of all consumers.
#[derive(Debug)]
pub(crate) struct PlaceCounts {
    pub(crate) consumers: u64,
    /// Messages taken in this run, by removed consumers too.
    pub(crate) taken: u64,
}

impl PlaceCell {
    pub(crate) fn spot(&self) -> Spot {
        Spot {
            position: self.position.load(Ordering::Acquire),
            seq: self.seq.load(Ordering::Acquire),
        }
    }

    /// Sets the consumer's position to `spot` before the cell is listed. `moves` is 1 when the
    /// index does not have the position yet.
    pub(crate) fn begin(&self, spot: Spot, moves: u64) {
        self.position.store(spot.position, Ordering::Release);
        self.seq.store(spot.seq, Ordering::Release);
        self.changes.store(moves, Ordering::Release);
        self.taken.store(0, Ordering::Release);
    }

    /// Returns how often the position or the acknowledgements changed, at least. A message that was
    /// taken is a change, and needs no second count.
    ///
    /// Both counts only grow, and each grows when all of its change is stored. So a flush that
    /// syncs the index after this call covers every change that the result has.
    pub(crate) fn moves(&self) -> u64 {
        self.changes.load(Ordering::Acquire) + self.taken.load(Ordering::Acquire)
    }

    /// Counts a change other than a message taken, so that the next flush syncs the index. Called
    /// after everything of the change is stored. The caller holds the consumer's lock.
    #[inline]
    pub(crate) fn count_change(&self) {
        self.changes.store(self.changes.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Counts messages that the consumer took. Called after the position was stored: a thread that
    /// sees this count sees the matching position, or a later one.
    #[inline(always)]
    pub(crate) fn count_taken(&self, count: u64) {
        self.taken.store(self.taken.load(Ordering::Relaxed) + count, Ordering::Release);
    }
}

#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) cells: RwLock<Vec<Arc<PlaceCell>>>,
    /// A thread holds it for reading while it drains segments that every consumer has passed, and
    /// for writing while it chooses a consumer's new position: so no thread drains that position's
    /// segment meanwhile.
    pub(crate) giving_back: RwLock<()>,
    /// Moves of consumers that were removed in this run.
    pub(crate) removed_moves: AtomicU64,
    /// Messages that consumers took which were removed in this run.
    removed_taken: AtomicU64,
    /// How many of all consumers' moves the index on disk covers.
    pub(crate) synced_moves: Mutex<u64>,
}

impl Places {
    /// Returns an empty list. `unsynced_moves` counts moves of an earlier run that the next flush
    /// must sync.
    pub(crate) fn new(unsynced_moves: u64) -> Places {
        Places {
            cells: RwLock::default(),
            giving_back: RwLock::default(),
            removed_moves: AtomicU64::new(unsynced_moves),
            removed_taken: AtomicU64::new(0),
            synced_moves: ranked(Rank::SyncedPlaces, 0),
        }
    }

    /// Returns the lowest position of all consumers; `None` when there is no consumer.
    pub(crate) fn lowest(&self) -> Option<u64> {
        self.cells.read().iter().map(|place| place.position.load(Ordering::Acquire)).min()
    }

    /// Returns the lowest sequence number that some consumer has not finished; 0 when there is no
    /// consumer.
    pub(super) fn lowest_seq(&self) -> u64 {
        let cells = self.cells.read();
        cells.iter().map(|place| place.seq.load(Ordering::Acquire)).min().unwrap_or(0)
    }

    /// Returns how many moves all consumers have made in this run.
    pub(crate) fn moves(&self) -> u64 {
        self.cells.read().iter().map(|place| place.moves()).sum::<u64>()
            + self.removed_moves.load(Ordering::Acquire)
    }

    pub(crate) fn count(&self) -> PlaceCounts {
        let cells = self.cells.read();
        let taken: u64 = cells.iter().map(|cell| cell.taken.load(Ordering::Acquire)).sum();
        PlaceCounts {
            consumers: cells.iter().filter(|cell| !cell.is_stand_in).count() as u64,
            taken: taken + self.removed_taken.load(Ordering::Acquire),
        }
    }

    /// Removes a consumer's cell. The removal counts as a move.
    pub(crate) fn remove(&self, cell: &Arc<PlaceCell>) {
        let mut cells = self.cells.write();
        self.removed_moves.fetch_add(cell.moves() + 1, Ordering::AcqRel);
        self.removed_taken.fetch_add(cell.taken.load(Ordering::Acquire), Ordering::AcqRel);
        check!(let count = cells.len());
        cells.retain(|other| !Arc::ptr_eq(other, cell));
        check!(let left = count - cells.len());
        holds!(left == 1, "a consumer that goes was listed once, and not {left} times");
    }
}
