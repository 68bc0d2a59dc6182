//! Numbers that the files say are missing.

use crate::error::GapCause;

/// Numbers that are missing, from `first` up to `end`, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) why: MissingFor,
}

impl Missing {
    /// The `gap` numbers before `seq`, of which the last ones were only `reserved`.
    pub(super) fn before(seq: u64, gap: u64, reserved: u64, cause: u8) -> [Missing; 2] {
        let (first, from) = (seq.saturating_sub(gap), seq.saturating_sub(reserved));
        let why = MissingFor::Stated(GapCause::from_number(cause));
        let reserved = MissingFor::Stated(GapCause::Reserved);
        [Missing { first, end: from, why }, Missing { first: from, end: seq, why: reserved }]
    }

    /// One number: the owner used the segment of a piece of it again.
    pub(super) fn overtaken(seq: u64) -> Missing {
        Missing { first: seq, end: seq + 1, why: MissingFor::Overtaken }
    }
}

/// Why numbers are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingFor {
    /// The files say it.
    Stated(GapCause),
    /// The owner used their segment again meanwhile.
    Overtaken,
}
