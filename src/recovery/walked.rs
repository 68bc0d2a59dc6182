//! The result of the walk over the records.

use std::ops::Range;

use crate::format::Spot;

/// The result of a walk.
#[derive(Debug)]
pub(super) struct Walked {
    /// The end of the last whole unit.
    pub(super) tail: Spot,
    /// A hole between two segments may have numbers, but no bytes.
    pub(super) holes: Vec<Range<Spot>>,
    /// Padding and gap fragments.
    pub(super) empty: Vec<Range<Spot>>,
    /// The published tail's position; `u64::MAX` when it is not known.
    pub(super) published: u64,
    pub(super) units_behind: u64,
}

impl Walked {
    /// A walk from `start` has a tail behind it, and between them holes that do not overlap.
    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) fn check(&self, start: Spot) {
        let (tail, holes) = (self.tail, &self.holes);
        holds!(
            start.position <= tail.position && start.seq <= tail.seq,
            "a walk from {start:?} ends behind it, at {tail:?}"
        );
        for hole in holes {
            let (from, to) = (hole.start, hole.end);
            holds!(
                from.position <= to.position && from.seq <= to.seq && from != to,
                "bytes or numbers lie between the ends of a hole: {hole:?}"
            );
            holds!(
                start.position <= from.position && to.position <= tail.position,
                "a hole lies between the start, {start:?}, and the tail, {tail:?}: {hole:?}"
            );
        }
        holds!(
            holes.windows(2).all(|holes| holes[0].end.position <= holes[1].start.position),
            "holes are in order and do not overlap: {holes:?}"
        );
        holds!(
            self.empty.iter().all(|empty| empty.start.position < empty.end.position),
            "space without records has bytes: {:?}",
            self.empty
        );
    }
}
