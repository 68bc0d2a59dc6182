//! The result of the walk over the records.

use std::ops::Range;

use crate::format::Spot;

/// The result of a walk.
#[derive(Debug)]
pub(super) struct Walked {
    /// The end of the last whole unit.
    pub(super) tail: Spot,
    pub(super) holes: Vec<Range<Spot>>,
    /// Padding and gap fragments.
    pub(super) empty: Vec<Range<Spot>>,
    /// The published tail's position; `u64::MAX` when it is not known.
    pub(super) published: u64,
    pub(super) units_behind: u64,
}
