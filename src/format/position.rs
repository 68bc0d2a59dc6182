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

/// Returns the numbers that every consumer is done with, as ranges in order. Each consumer is given
/// by its place and by the ranges, in order, that it is done with beyond the place; some may lie
/// before it.
pub(crate) fn done_by_all<I: Iterator<Item = NumberRange>>(
    consumers: impl Iterator<Item = (u64, I)>,
) -> Vec<NumberRange> {
    let done_by = consumers.map(|(place, beyond)| {
        let before = place.checked_sub(1).map(|last| NumberRange { first: 0, last });
        let beyond = beyond.filter(|range| range.last >= place);
        let beyond = beyond.map(|range| NumberRange { first: range.first.max(place), ..range });
        before.into_iter().chain(beyond).collect()
    });
    done_by.reduce(|one: Vec<_>, other| in_both(&one, &other)).unwrap_or_default()
}

/// Returns the numbers that are in both lists, whose ranges are in order.
fn in_both(mut one: &[NumberRange], mut other: &[NumberRange]) -> Vec<NumberRange> {
    let mut both = Vec::new();
    while let ([a, after_a @ ..], [b, after_b @ ..]) = (one, other) {
        let (first, last) = (a.first.max(b.first), a.last.min(b.last));
        if first <= last {
            both.push(NumberRange { first, last });
        }
        if a.last <= b.last { one = after_a } else { other = after_b }
    }
    both
}

#[cfg(test)]
pub(crate) fn numbers(first: u64, last: u64) -> NumberRange {
    NumberRange { first, last }
}
