//! A spot in a queue.

/// A position and the sequence number that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Spot {
    pub(crate) position: u64,
    pub(crate) seq: u64,
}
