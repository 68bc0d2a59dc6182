//! The wait of a reader between two looks for a message.

/// The more messages came during the last pause, the longer the next one is: a reader reads a
/// stream of messages in long runs, and a single message at once. A reader that polls without a
/// pause takes the cache line of the tail from the producer for each message: both then wait for
/// the line most of the time.
///
/// [`SHORTEST`] is about a tenth of a microsecond, [`LONGEST`] several microseconds. Measured with
/// two threads and messages of 128 bytes (medians per message): without a pause 91 ns. Where a
/// cache line needs 0.55 us to another processor and back: 82 ns with 32 spins, 57 with 96, 51 with
/// 256, 49 with 768; where it needs 0.13 us: 21 ns with any of them.
#[derive(Debug)]
pub(super) struct Pause {
    /// How many spin hints the next pause executes.
    spins: u32,
}

const SHORTEST: u32 = 8;
const LONGEST: u32 = 512;
/// With at least one message in this many spins (a stream), the next pause is longer.
const STREAM: u64 = 16;
/// With fewer than one message in this many spins (a trickle), the next pause is shorter.
const TRICKLE: u64 = 64;

impl Pause {
    pub(super) fn new() -> Pause {
        Pause { spins: SHORTEST }
    }

    /// Waits.
    pub(super) fn spin(&self) {
        (0..self.spins).for_each(|_| std::hint::spin_loop());
    }

    /// Sets the length of the next pause, after `came` new messages during this one.
    pub(super) fn adapt(&mut self, came: u64) {
        let spins = u64::from(self.spins);
        if came.saturating_mul(STREAM) >= spins {
            self.spins = (2 * self.spins).min(LONGEST);
        } else if came.saturating_mul(TRICKLE) < spins {
            self.spins = (self.spins / 2).max(SHORTEST);
        }
        holds!((SHORTEST..=LONGEST).contains(&self.spins), "a pause has {} spins", self.spins);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_makes_pauses_longer_and_a_trickle_shorter_within_bounds() {
        let mut pause = Pause::new();
        let mut adapt = |came| {
            pause.adapt(came);
            pause.spins
        };
        assert_eq!([16, 32, 64].map(|spins| (adapt(1000), spins)), [(16, 16), (32, 32), (64, 64)]);
        // Between a stream and a trickle the pause keeps its length.
        assert_eq!((adapt(3), adapt(4)), (64, 128));
        assert_eq!((adapt(2), adapt(1), adapt(1)), (128, 64, 64));
        assert_eq!((0..9).map(|_| adapt(u64::MAX)).last(), Some(LONGEST));
        assert_eq!((0..9).map(|_| adapt(0)).last(), Some(SHORTEST));
    }
}
