//! What a history's choices are made from: a seed, or bytes first.

use crate::tests::sim::Rng;

#[derive(Debug)]
pub(in crate::tests::crash) struct Choices {
    /// Each choice takes some, from the last one on, until there are none.
    bytes: Vec<u8>,
    pub(super) rng: Rng,
}

impl Choices {
    pub(super) fn new(seed: u64, bytes: &[u8]) -> Choices {
        Choices { bytes: bytes.iter().rev().copied().collect(), rng: Rng(seed) }
    }

    pub(super) fn has_bytes(&self) -> bool {
        !self.bytes.is_empty()
    }

    pub(super) fn next(&mut self) -> u64 {
        match self.bytes.pop() {
            Some(byte) => Rng(u64::from(byte)).next(),
            None => self.rng.next(),
        }
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        let Some(first) = self.bytes.pop() else { return self.rng.below(end) };
        let more = if end > 256 { self.bytes.pop().unwrap_or(0) } else { 0 };
        (u64::from(first) | u64::from(more) << 8) % end
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}
