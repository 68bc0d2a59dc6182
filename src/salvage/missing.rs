//! Numbers that the files state as missing.

use crate::error::GapCause;
use crate::format::MissingBefore;

/// Numbers that are missing, from `first` up to `end`, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) why: MissingFor,
}

impl Missing {
    /// What a file states as missing before `end`.
    pub(super) fn before(missing: MissingBefore, end: u64) -> impl Iterator<Item = Missing> {
        let why = MissingFor::Stated;
        missing.pieces(end).map(move |(first, end, cause)| Missing { first, end, why: why(cause) })
    }

    /// One number: the owner reused the segment with a piece of its record.
    pub(super) fn overtaken(seq: u64) -> Missing {
        Missing { first: seq, end: seq + 1, why: MissingFor::Overtaken }
    }
}

/// Why numbers are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingFor {
    /// The files state the cause.
    Stated(GapCause),
    /// The owner reused their segment during the salvage.
    Overtaken,
}
