//! The link to a far side in memory: on a slow one bytes take their time.

use std::time::Duration;

use super::super::stored::Stored;
use crate::tests::sim::Rng;

/// At least as fast as the slowest link on which a send arrives in time.
const SLOWEST: u64 = 4 << 10;

#[derive(Debug, Default)]
pub(in super::super) struct Link {
    /// Bytes in a second; 0 for a link that takes no time.
    rate: u64,
    /// The time from the last byte to the acknowledgement.
    pub(super) lag: Duration,
    pub(in super::super) now: Duration,
}

impl Link {
    /// A slow one: from 4 to 512 KiB a second.
    pub(in super::super) fn slow(rng: &mut Rng) -> Link {
        let lag = Duration::from_millis(rng.below(1000));
        Link { rate: SLOWEST << rng.below(8), lag, ..Link::default() }
    }

    pub(in super::super) fn is_slow(&self) -> bool {
        self.rate > 0
    }

    /// Returns until when it is busy with these messages, behind what it is busy with.
    pub(super) fn busy_until(&self, busy: Duration, messages: &[Stored]) -> Duration {
        let bytes: usize = messages.iter().map(|it| it.bytes.len()).sum();
        let millis = (bytes as u64 * 1000).checked_div(self.rate);
        busy.max(self.now) + Duration::from_millis(millis.unwrap_or_default())
    }

    /// The client waits until the answer to what has left the link is there.
    pub(super) fn wait_for(&mut self, busy: Duration, is_stuck: bool) {
        if !is_stuck {
            self.now = self.now.max(busy + self.lag);
        }
    }

    /// What is under way is lost when the link breaks: it is no more than the link takes in a few
    /// seconds, or one message.
    pub(super) fn check<'a>(&self, under_way: impl Iterator<Item = &'a Stored>) {
        let lens: Vec<usize> = under_way.map(|it| it.bytes.len()).filter(|len| *len > 0).collect();
        let (bytes, most) = (lens.iter().sum::<usize>() as u64, (64 << 10) + 12 * self.rate);
        let fine = !self.is_slow() || bytes <= most || lens.len() == 1;
        assert!(fine, "{bytes} bytes are under way at {} bytes a second", self.rate);
    }
}
