//! A set of sequence numbers, kept as ranges.

use std::collections::BTreeMap;

use crate::format::NumberRange;

/// Ranges of numbers, first to last. No two overlap or touch.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Looks at the range that holds `seq`, or that begins behind it, and at its neighbours.
    #[cfg(any(test, fuzzing, mmq_holds))]
    fn check_around(&self, seq: u64) {
        let before = self.0.range(..seq).next_back();
        let own = self.0.range(seq..).next();
        let behind = own.and_then(|(first, _)| self.0.range(first + 1..).next());
        for (first, last) in [before, own, behind].into_iter().flatten() {
            holds!(first <= last, "the range {first} to {last} is not empty");
        }
        for ((_, last), (first, _)) in before.zip(own).into_iter().chain(own.zip(behind)) {
            holds!(
                last.saturating_add(1) < *first,
                "a range that ends at {last} does not touch the one that begins at {first}"
            );
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = NumberRange> + '_ {
        self.iter_from(0)
    }

    /// The ranges that begin at `first` or after it.
    pub(super) fn iter_from(
        &self,
        first: u64,
    ) -> impl DoubleEndedIterator<Item = NumberRange> + '_ {
        self.0.range(first..).map(|(first, last)| NumberRange { first: *first, last: *last })
    }

    /// The highest number.
    pub(super) fn last(&self) -> Option<u64> {
        self.0.last_key_value().map(|(_, last)| *last)
    }

    fn range_of(&self, seq: u64) -> Option<NumberRange> {
        let (first, last) = self.0.range(..=seq).next_back()?;
        (*last >= seq).then_some(NumberRange { first: *first, last: *last })
    }

    pub(super) fn contains(&self, seq: u64) -> bool {
        self.range_of(seq).is_some()
    }

    /// Adds a range, which may overlap others.
    pub(super) fn insert(&mut self, mut first: u64, mut last: u64) {
        if let Some(before) = self.range_of(first.saturating_sub(1)) {
            first = before.first;
            last = last.max(before.last);
        }
        while let Some((other, end)) =
            self.0.range(first..=last.saturating_add(1)).next().map(|(a, b)| (*a, *b))
        {
            self.0.remove(&other);
            last = last.max(end);
        }
        self.0.insert(first, last);
        check!(self.check_around(first));
    }

    pub(super) fn forget_before(&mut self, seq: u64) {
        while let Some(entry) = self.0.first_entry() {
            let (first, last) = (*entry.key(), *entry.get());
            if first >= seq {
                break;
            }
            entry.remove();
            if last >= seq {
                self.0.insert(seq, last);
            }
        }
        check!(let lowest = self.0.first_key_value());
        holds!(
            lowest.is_none_or(|(first, _)| *first >= seq),
            "no range begins below {seq}, before which all is forgotten: {lowest:?}"
        );
        check!(self.check_around(seq));
    }

    /// The parts of `first ..= last` that are in no range.
    pub(super) fn not_in(&self, first: u64, last: u64) -> Vec<NumberRange> {
        let mut parts = Vec::new();
        let mut from = first;
        let start = self.range_of(first).map_or(first, |range| range.first);
        for (begin, end) in self.0.range(start..=last) {
            if *begin > from {
                parts.push(NumberRange { first: from, last: begin - 1 });
            }
            from = from.max(end + 1);
        }
        if from <= last {
            parts.push(NumberRange { first: from, last });
        }
        holds!(
            parts.iter().all(|part| first <= part.first && part.last <= last),
            "what {first} to {last} has in no range lies within it: {parts:?}"
        );
        holds!(
            parts.iter().all(|part| !self.contains(part.first) && !self.contains(part.last)),
            "what is said to be in no range is in none: {parts:?}"
        );
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_are_the_numbers_that_were_put_in() {
        let mut state = 1u64;
        let mut random = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for _ in 0..200 {
            let (mut ranges, mut numbers) = (Ranges::default(), BTreeSet::new());
            for _ in 0..60 {
                let first = random(100);
                let last = first + random(6);
                if random(8) == 0 {
                    ranges.forget_before(first);
                    numbers.retain(|number| *number >= first);
                } else {
                    ranges.insert(first, last);
                    numbers.extend(first..=last);
                }
                let held: BTreeSet<u64> =
                    ranges.0.iter().flat_map(|(first, last)| *first..=*last).collect();
                assert_eq!(held, numbers);
                let apart = ranges
                    .0
                    .iter()
                    .zip(ranges.0.iter().skip(1))
                    .all(|((_, end), (begin, _))| end + 1 < *begin);
                assert!(apart, "{:?}", ranges.0);
                let between: BTreeSet<u64> = ranges
                    .not_in(20, 70)
                    .into_iter()
                    .flat_map(|part| part.first..=part.last)
                    .collect();
                let wanted: BTreeSet<u64> =
                    (20..=70).filter(|number| !numbers.contains(number)).collect();
                assert_eq!(between, wanted);
            }
        }
    }
}
