//! The committed tail, which readers load without a lock.

use std::sync::atomic::Ordering;

use crate::format::Spot;
use crate::threads::AtomicU64;

/// The tail as other threads see it. The writer stores `seq` before `position`, so a thread that
/// reads the position and then the number gets that position's number or a higher one.
#[derive(Debug, Default)]
pub(crate) struct SharedTail {
    pub(crate) position: AtomicU64,
    pub(crate) seq: AtomicU64,
}

impl SharedTail {
    pub(crate) fn spot(&self) -> Spot {
        Spot {
            position: self.position.load(Ordering::Acquire),
            seq: self.seq.load(Ordering::Acquire),
        }
    }

    #[inline]
    pub(crate) fn publish(&self, spot: Spot) {
        if planted!(PositionBeforeNumber) {
            self.position.store(spot.position, Ordering::Release);
        }
        check!(let before = self.spot());
        holds!(
            before.position <= spot.position && before.seq <= spot.seq,
            "the end of the queue does not go back, from {before:?} to {spot:?}"
        );
        self.seq.store(spot.seq, Ordering::Relaxed);
        self.position.store(spot.position, Ordering::Release);
    }
}
