//! How much may be in flight: little at first, more while the far side answers quickly.

use std::time::Duration;

/// What may be in flight at first, in bytes.
const FIRST: u64 = 64 << 10;
/// The least that a slow link leaves.
const LEAST: u64 = 16 << 10;
/// An acknowledgement within this time lets more go. A far side that takes one send at a time
/// stands idle for two round trips meanwhile: a fifth of it, where a round trip takes 0.6 s.
const QUICK: Duration = Duration::from_secs(6);
/// An acknowledgement after this time lets less go.
const SLOW: Duration = Duration::from_secs(12);
/// The slowest link on which a send still arrives in time, in bytes a second, while it has shown no
/// better one.
const SLOWEST: u64 = 4 << 10;
/// What arrives at this part of the best rate so far is in time.
const IN_TIME: u64 = 4;

/// How many bytes may be in flight. On a slow link more would only wait in the socket, be late for
/// every time-out, and be sent again after a loss.
#[derive(Debug)]
pub(super) struct LinkRate {
    bytes: u64,
    /// The best rate of an acknowledgement since the last trouble, in bytes a second.
    best: u64,
}

impl LinkRate {
    pub(super) fn new() -> LinkRate {
        LinkRate { bytes: FIRST, best: 0 }
    }

    pub(super) fn bytes(&self) -> u64 {
        if planted!(ForwardAllAtOnce) { u64::MAX } else { self.bytes }
    }

    /// Notes that `bytes` were acknowledged, `after` they were sent: the link took them and all
    /// before them that were in flight then, together `under_way`. `most` is what the far side
    /// takes.
    pub(super) fn note_acknowledged(
        &mut self,
        bytes: u64,
        under_way: u64,
        after: Duration,
        most: u64,
    ) {
        // Little that arrives quickly shows no high rate. (Without a time the send itself waited.)
        if let Ok(millis @ 1..) = u64::try_from(after.as_millis()) {
            self.best = self.best.max(bytes.saturating_mul(1000) / millis.saturating_add(1000));
        }
        if after <= QUICK {
            // A little that arrives quickly does not say that much would.
            let most = most.max(LEAST).min(self.bytes.max(under_way.saturating_mul(2)));
            self.bytes = self.bytes.saturating_add(bytes).min(most);
        } else if after >= SLOW {
            self.note_trouble();
        }
    }

    /// Notes that a session ended with messages in flight.
    pub(super) fn note_trouble(&mut self) {
        self.bytes = (self.bytes / 2).max(LEAST.min(self.bytes));
        self.best = 0;
    }

    /// Notes that the far side answered nothing in time. What was in flight is lost, so it begins
    /// anew with little: the link may be another one.
    pub(super) fn note_silence(&mut self) {
        self.bytes = self.bytes.min(FIRST);
    }

    /// Notes that the far side asks for a pause: it has no room for what was sent, and perhaps some
    /// for less.
    pub(super) fn note_full(&mut self) {
        self.bytes = (self.bytes / 2).max(1);
    }

    /// How long `in_flight` bytes may take on a link that has become slower.
    pub(super) fn longest(&self, in_flight: u64) -> Duration {
        let in_flight = if planted!(ForwardPatienceFixed) { 0 } else { in_flight };
        let rate = SLOWEST.max(self.best / IN_TIME);
        Duration::from_millis(in_flight.saturating_mul(1000) / rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_quick_far_side_gets_more_and_a_slow_one_less() {
        let mut link_rate = LinkRate::new();
        let mut seen = vec![link_rate.bytes()];
        for _ in 0..8 {
            link_rate.note_acknowledged(link_rate.bytes(), link_rate.bytes(), SECOND, 4 << 20);
            seen.push(link_rate.bytes());
        }
        assert_eq!(seen, [64, 128, 256, 512, 1024, 2048, 4096, 4096, 4096].map(|kib| kib << 10));
        link_rate.note_acknowledged(4 << 20, 4 << 20, 7 * SECOND, 4 << 20);
        assert_eq!(link_rate.bytes(), 4 << 20, "neither quick nor slow");
        link_rate.note_acknowledged(4 << 20, 4 << 20, 13 * SECOND, 4 << 20);
        assert_eq!(link_rate.bytes(), 2 << 20);
        for _ in 0..20 {
            link_rate.note_trouble();
        }
        assert_eq!(link_rate.bytes(), LEAST);
    }

    #[test]
    fn little_that_is_quick_lets_no_more_go() {
        let mut link_rate = LinkRate::new();
        for _ in 0..1000 {
            link_rate.note_acknowledged(100, 1000, SECOND, 4 << 20);
        }
        assert_eq!(link_rate.bytes(), FIRST);
        link_rate.note_acknowledged(100, FIRST, SECOND, 4 << 20);
        assert_eq!(link_rate.bytes(), FIRST + 100);
    }

    #[test]
    fn a_long_message_on_a_slow_link_has_the_time_that_it_takes() {
        let mut link_rate = LinkRate::new();
        assert_eq!(link_rate.longest(900_000).as_secs(), 219, "112 s at 8 kB/s");
        assert_eq!(link_rate.longest(0), Duration::ZERO);
        // A quick link that has vanished is left soon, and so is a slow one behind it.
        link_rate.note_acknowledged(1 << 20, 2 << 20, SECOND, 4 << 20);
        assert_eq!(link_rate.longest(4 << 20), 32 * SECOND);
        link_rate.note_silence();
        link_rate.note_trouble();
        assert_eq!(link_rate.bytes(), FIRST / 2);
        assert_eq!(link_rate.longest(FIRST), 16 * SECOND);
    }

    #[test]
    fn a_far_side_with_little_room_gets_little() {
        let mut link_rate = LinkRate::new();
        for _ in 0..20 {
            link_rate.note_full();
        }
        assert_eq!(link_rate.bytes(), 1);
        link_rate.note_trouble();
        assert_eq!(link_rate.bytes(), 1, "a trouble lets no more go");
        for _ in 0..20 {
            link_rate.note_acknowledged(link_rate.bytes(), link_rate.bytes(), SECOND, 4 << 20);
        }
        assert_eq!(link_rate.bytes(), 1 << 20);
    }
}
