//! Computes the checksum seed of a segment whose header is lost.
//!
//! The checksum of an intact fragment is the exclusive or of the sums of its header and its payload
//! and the seed, so these determine the seed. The check of the fragment's header and the fragment
//! behind it show whether it was intact.

use std::io;

use super::scan::Scan;
use crate::format::{ALIGN, FRAGMENT_HEADER_LEN, Fragment, FragmentWords, Kind, Spot};
use crate::storage::Readable;

/// The seed of a segment, computed from its fragments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundSeed {
    pub(crate) seed: u32,
    /// A fragment from which it was computed, and its position.
    pub(crate) fragment: Fragment,
    pub(crate) position: u64,
    pub(crate) witnesses: Witnesses,
}

/// How many fragments confirm the seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Witnesses {
    /// One, at a place where a fragment has to be. Of 65,536 wrong seeds one passes.
    One,
    /// Two that follow each other.
    Two,
}

impl<F: Readable> Scan<'_, F> {
    /// Computes the seed from the fragments, ignoring this scan's own seed. Afterwards the scan
    /// uses the seed found.
    pub(crate) fn find_seed(&mut self) -> io::Result<Option<FoundSeed>> {
        let base = self.positions.start;
        let rest = self.likely_at(base)?.filter(|(_, fragment)| fragment.kind == Kind::Last);
        let behind_rest = rest.map_or(base, |(_, fragment)| base + fragment.total_len());
        let (mut alone, mut position) = (None, base);
        while position + FRAGMENT_HEADER_LEN <= self.limit {
            if let Some((words, fragment)) = self.likely_at(position)?
                && begins(fragment.kind)
            {
                let end = position + fragment.total_len();
                let next = self.likely_at(end)?.filter(|(_, next)| follows(&fragment, next));
                let has_to_be = position == base || position == behind_rest;
                if (next.is_some() || has_to_be)
                    && let Some(seed) = self.seed_at(words, &fragment, position, 0)?
                {
                    self.seed = seed;
                    let agrees = next.is_some() && self.fragment_at(end, 0)?.is_some()
                        || rest.is_some() && has_to_be && self.header_at(base)?.is_some();
                    let witnesses = if agrees { Witnesses::Two } else { Witnesses::One };
                    let found = FoundSeed { seed, fragment, position, witnesses };
                    if agrees {
                        return Ok(Some(found));
                    }
                    if has_to_be && alone.is_none() {
                        alone = Some(found);
                    }
                }
            }
            position += ALIGN;
        }
        self.seed = alone.map_or(self.seed, |alone| alone.seed);
        Ok(alone)
    }

    /// Returns the first valid fragment that begins a record or fills space, at or before the
    /// `known` one.
    pub(crate) fn first_beginning(&mut self, known: Spot) -> io::Result<Spot> {
        let mut position = self.positions.start;
        while position < known.position {
            if let Some(seen) = self.header_at(position)?
                && begins(seen.fragment.kind)
            {
                let seq = seen.fragment.seq_near(known.seq);
                // Each message between takes at least a header.
                let room = (known.position - position) / FRAGMENT_HEADER_LEN;
                if seq <= known.seq && known.seq - seq <= room && self.payload_holds(&seen)? {
                    return Ok(Spot { position, seq });
                }
            }
            position += ALIGN;
        }
        Ok(known)
    }

    /// Computes the seed of a segment that begins with the middle or end of the record `seq`, given
    /// the checksum `chain` of the fragment before it.
    pub(crate) fn find_seed_of_rest(&mut self, seq: u64, chain: u32) -> io::Result<Option<u32>> {
        let base = self.positions.start;
        let Some((words, fragment)) = self.likely_at(base)? else {
            return Ok(None);
        };
        if begins(fragment.kind) || !fragment.is_numbered(seq) {
            return Ok(None);
        }
        let found = self.seed_at(words, &fragment, base, chain)?;
        self.seed = found.unwrap_or(self.seed);
        Ok(found)
    }

    /// Returns the possible header of a fragment at `position`, unchecked.
    fn likely_at(&mut self, position: u64) -> io::Result<Option<(FragmentWords, Fragment)>> {
        let words = self.words_at(position)?;
        let likely = words.and_then(|words| Some((words, Fragment::unchecked(words)?)));
        Ok(likely.filter(|(_, fragment)| self.is_room_for(fragment, position)))
    }

    fn seed_at(
        &mut self,
        words: FragmentWords,
        fragment: &Fragment,
        position: u64,
        chain: u32,
    ) -> io::Result<Option<u32>> {
        let offset = position - self.positions.start;
        let sum = self.sum(fragment, position, None)?;
        Ok(sum.and_then(|payload| Fragment::seed_of(words, offset, chain, payload)))
    }
}

/// Returns whether a fragment of this kind begins a record or fills space.
fn begins(kind: Kind) -> bool {
    !matches!(kind, Kind::Middle | Kind::Last)
}

/// Returns whether `next` may follow `fragment` in one segment, by their kinds and sequence
/// numbers.
fn follows(fragment: &Fragment, next: &Fragment) -> bool {
    let expected = match fragment.kind {
        Kind::Whole => fragment.seq.wrapping_add(1),
        Kind::Padding | Kind::Gap => fragment.seq,
        // A first piece fills the rest of its segment.
        _ => return false,
    };
    begins(next.kind) && (next.is_numbered(expected) || next.kind == Kind::Gap)
}
