//! The record that the writer writes next.

/// The record, or the rest of a record, that the writer writes next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    /// Bytes that it takes as one fragment.
    pub(super) total: u64,
    /// Payload bytes of the record, all fragments together.
    pub(super) whole: u64,
    pub(super) part: Part,
}

/// Which part of a record the writer writes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The record begins.
    Beginning,
    /// Fragments of the record are stored already.
    Rest,
}
