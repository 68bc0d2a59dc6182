//! Where the consumers of a queue stand, as others see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::format::Spot;

/// A consumer's place as others see it, and what it has taken. Stored under the consumer's lock.
#[derive(Debug, Default)]
pub(crate) struct PlaceCell {
    pub(crate) position: AtomicU64,
    pub(crate) seq: AtomicU64,
    /// Moves made in this run, changes of what is acknowledged included.
    pub(crate) moves: AtomicU64,
    /// Messages taken in this run.
    pub(crate) taken: AtomicU64,
}

impl PlaceCell {
    pub(crate) fn spot(&self) -> Spot {
        Spot {
            position: self.position.load(Ordering::Acquire),
            seq: self.seq.load(Ordering::Acquire),
        }
    }

    /// The place, or what is acknowledged, has changed: what is stored of it is part of the next
    /// sync.
    #[inline(always)]
    pub(crate) fn count_move(&self) {
        self.moves.store(self.moves.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// After the place was stored: whoever sees the count sees the place that belongs to it, or a
    /// later one.
    #[inline(always)]
    pub(crate) fn count_taken(&self) {
        self.taken.store(self.taken.load(Ordering::Relaxed) + 1, Ordering::Release);
    }
}

#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) cells: RwLock<Vec<Arc<PlaceCell>>>,
    /// Held for reading by who gives back what every place has passed, for writing by who looks for
    /// a new place: nothing is given back meanwhile.
    pub(crate) giving_back: RwLock<()>,
    /// Moves of consumers that were removed, and messages they took.
    pub(crate) removed_moves: AtomicU64,
    removed_taken: AtomicU64,
    /// Moves of all consumers that the index on disk knows of.
    pub(crate) synced_moves: Mutex<u64>,
    /// Where messages began that expired while there was no consumer: the first one that comes is
    /// told of them.
    pub(crate) unread: Mutex<Option<Spot>>,
}

impl Places {
    /// Before the consumers are taken up. `unsynced_moves` of an earlier run are the next flush's
    /// to sync.
    pub(crate) fn new(unsynced_moves: u64) -> Places {
        Places {
            cells: RwLock::default(),
            giving_back: RwLock::default(),
            removed_moves: AtomicU64::new(unsynced_moves),
            removed_taken: AtomicU64::new(0),
            synced_moves: Mutex::new(0),
            unread: Mutex::default(),
        }
    }

    /// The position that every consumer has reached; `None` when there is no consumer.
    pub(crate) fn lowest(&self) -> Option<u64> {
        self.cells.read().iter().map(|place| place.position.load(Ordering::Acquire)).min()
    }

    /// Messages from that spot on have expired.
    pub(crate) fn note_unread(&self, from: Spot) {
        if self.cells.read().is_empty() {
            self.unread.lock().get_or_insert(from);
        }
    }

    /// Moves all consumers have made in this run.
    pub(crate) fn moves(&self) -> u64 {
        self.cells.read().iter().map(|place| place.moves.load(Ordering::Acquire)).sum::<u64>()
            + self.removed_moves.load(Ordering::Acquire)
    }

    /// How many consumers there are, and how many messages all there ever were have taken in this
    /// run.
    pub(crate) fn count(&self) -> (u64, u64) {
        let cells = self.cells.read();
        let taken: u64 = cells.iter().map(|cell| cell.taken.load(Ordering::Acquire)).sum();
        (cells.len() as u64, taken + self.removed_taken.load(Ordering::Acquire))
    }

    /// Takes the place of a consumer out that was removed; being removed counts as a move.
    pub(crate) fn remove(&self, cell: &Arc<PlaceCell>) {
        let mut cells = self.cells.write();
        self.removed_moves.fetch_add(cell.moves.load(Ordering::Acquire) + 1, Ordering::AcqRel);
        self.removed_taken.fetch_add(cell.taken.load(Ordering::Acquire), Ordering::AcqRel);
        cells.retain(|other| !Arc::ptr_eq(other, cell));
    }
}
