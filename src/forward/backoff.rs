//! Chooses how long to wait before the next session.

use std::time::Duration;

/// The pauses between sessions: each twice as long as the one before, with jitter, until the far
/// side acknowledges something.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    /// The next pause, before jitter.
    next: Duration,
    /// The state of the jitter generator, so that many forwarders that lost one far side do not all
    /// return at once.
    random: u64,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration, seed: u64) -> Backoff {
        // Spread the bits, so that similar seeds give different pauses.
        let random = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Backoff { first, longest, next: first, random }
    }

    /// Returns the pause after a trouble that demands `at_least`. It is between half of the doubled
    /// pause and the whole of it.
    pub(super) fn pause(&mut self, at_least: Duration) -> Duration {
        let whole = self.next.min(self.longest);
        self.next = whole.saturating_mul(2).min(self.longest);
        // xorshift64: any seed but 0 will do.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let half = whole / 2;
        let jitter = half.mul_f64((self.random >> 11) as f64 / (1u64 << 53) as f64);
        holds!(half + jitter <= self.longest, "a pause of {whole:?} is no longer than the longest");
        (half + jitter).max(at_least)
    }

    /// Resets the pause after an acknowledgement of the far side.
    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_double_up_to_the_longest_and_an_acknowledgement_ends_that() {
        for seed in 0..100 {
            let mut backoff = Backoff::new(100 * MS, 30_000 * MS, seed);
            for round in 0..2 {
                for doubled in
                    [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]
                {
                    let pause = backoff.pause(Duration::ZERO);
                    let fits = pause >= doubled * MS / 2 && pause <= doubled * MS;
                    assert!(fits, "seed {seed}, round {round}: {pause:?}, not about {doubled} ms");
                }
                backoff.reset();
            }
            assert_eq!(backoff.pause(5_000 * MS), 5_000 * MS, "what the far side asks for");
        }
    }

    #[test]
    fn two_forwarders_wait_for_different_times() {
        let pauses: std::collections::BTreeSet<_> = (0..100)
            .map(|seed| Backoff::new(100 * MS, 100 * MS, seed * 2).pause(Duration::ZERO))
            .collect();
        assert!(pauses.len() > 90, "{pauses:?}");
    }
}
