//! What is known of numbers that are missing: which, why, and how often a reader was told.

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::error::{Gap, GapCause};
use crate::events;
use crate::format::{self, Spot};
use crate::index::losses::GivenUp;

#[derive(Debug)]
pub(crate) struct Gaps {
    /// Numbers known to be missing, in order, no two overlapping: what `len` subtracts.
    pub(crate) known: Mutex<Vec<Gap>>,
    has_known: AtomicU32,
    /// Which of the missing numbers were dropped, or had expired. Taken last of all locks.
    pub(crate) given_up: Mutex<GivenUp>,
    /// Gaps that consumers were told of in this run, and the numbers in them by cause.
    pub(crate) told: AtomicU64,
    pub(crate) lost: [AtomicU64; GapCause::ALL.len()],
}

impl Gaps {
    pub(crate) fn new(known: Vec<Gap>, given_up: GivenUp) -> Gaps {
        Gaps {
            has_known: AtomicU32::new(u32::from(!known.is_empty())),
            known: Mutex::new(known),
            given_up: Mutex::new(given_up),
            told: AtomicU64::new(0),
            lost: Default::default(),
        }
    }

    /// Why numbers that no segment states a cause for are missing, and the first one that may have
    /// another.
    pub(crate) fn cause_of(&self, seq: u64) -> (GapCause, u64) {
        if let Some(given_up) = self.given_up.lock().cause_of(seq) {
            return given_up;
        }
        // What recovery found to be missing behind the last segment is stated by the next one,
        // which may not be made yet.
        let gaps = self.known.lock();
        match gaps.iter().find(|gap| seq <= gap.last) {
            Some(gap) if gap.first <= seq => (gap.cause, gap.last + 1),
            Some(gap) => (GapCause::Damaged, gap.first),
            None => (GapCause::Damaged, u64::MAX),
        }
    }

    /// How many of the numbers `from .. to` are known to be missing.
    pub(crate) fn known_missing(&self, from: u64, to: u64) -> u64 {
        if self.has_known.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let gaps = self.known.lock();
        let overlap = |gap: &Gap| (gap.last + 1).min(to).saturating_sub(gap.first.max(from));
        gaps.iter().map(overlap).sum()
    }

    /// The end, or where the numbers begin that are known to be missing right before it: messages
    /// that were lost, and behind them perhaps what was only reserved.
    pub(super) fn before_lost_tail(&self, end: Spot) -> Spot {
        let gaps = self.known.lock();
        let mut first = end.seq;
        let mut lost = end.seq;
        for gap in gaps.iter().rev().skip_while(|gap| gap.first >= end.seq) {
            if gap.last + 1 != first {
                break;
            }
            first = gap.first;
            if gap.cause != GapCause::Reserved {
                lost = first;
            }
        }
        // The segment that is to state them begins a word behind what was there before.
        let position =
            if lost < end.seq { end.position.saturating_sub(format::ALIGN) } else { end.position };
        Spot { position, seq: lost }
    }

    /// Counts a gap that a consumer of the queue in `path` is told of.
    #[cold]
    pub(crate) fn count(&self, path: &Path, gap: &Gap) {
        events::gap(path, gap);
        self.told.fetch_add(1, Ordering::Relaxed);
        let cause = GapCause::ALL.iter().position(|cause| *cause == gap.cause).unwrap_or(0);
        self.lost[cause].fetch_add(gap.count(), Ordering::Relaxed);
    }
}
