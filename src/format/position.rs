//! A spot in a queue, and a range of numbers.

/// A position and the sequence number of the record there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Spot {
    pub(crate) position: u64,
    pub(crate) seq: u64,
}

/// The sequence numbers from `first` to `last`, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NumberRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

#[cfg(test)]
pub(crate) fn numbers(first: u64, last: u64) -> NumberRange {
    NumberRange { first, last }
}
