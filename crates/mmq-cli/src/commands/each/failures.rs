//! Messages whose command has failed in this run, and those that are kept at hand so that others
//! pass them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mmq::Delivery;

/// Messages that are kept at hand, at most, and their bytes. No further ones are taken then.
const MOST_KEPT: usize = 1000;
const MOST_KEPT_BYTES: u64 = 64 << 20;
/// How long after its time a message is waited for.
const LATE: Duration = Duration::from_secs(1);

/// When a message is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    AtOnce,
    At(Instant),
    /// Not by this run: it has failed too often, and there is no queue for the dead.
    Never,
}

#[derive(Debug, Clone, Copy)]
struct FailedJob {
    attempts: u64,
    again: Again,
}

/// The owner of the queue counts attempts and delays while it has it open; this counts over the
/// ends of owners, too.
#[derive(Debug, Default)]
pub(super) struct Failures {
    of: BTreeMap<u64, FailedJob>,
    kept: Vec<Delivery>,
}

impl Failures {
    /// How often the message was tried, with this time.
    pub(super) fn attempts(&self, delivery: &Delivery) -> u64 {
        let before = self.of.get(&delivery.seq()).map_or(0, |failed| failed.attempts);
        u64::from(delivery.attempts()).max(before + 1)
    }

    /// It comes again, after the delay if there is one.
    pub(super) fn note(&mut self, seq: u64, attempts: u64, delay: Option<Duration>) {
        let at = delay.and_then(|delay| Instant::now().checked_add(delay));
        self.of.insert(seq, FailedJob { attempts, again: at.map_or(Again::AtOnce, Again::At) });
    }

    /// It is tried no more by this run.
    pub(super) fn give_up(&mut self, delivery: Delivery, attempts: u64) {
        self.of.insert(delivery.seq(), FailedJob { attempts, again: Again::Never });
        self.keep(delivery);
    }

    /// It is done.
    pub(super) fn forget(&mut self, seq: u64) {
        self.of.remove(&seq);
    }

    /// How many are tried no more.
    pub(super) fn given_up(&self) -> u64 {
        self.of.values().filter(|failed| failed.again == Again::Never).count() as u64
    }

    /// Keeps a message until `each` has closed the queue: to give it back before would count as a
    /// try.
    pub(super) fn keep(&mut self, delivery: Delivery) {
        self.kept.push(delivery);
    }

    pub(super) fn is_full(&self) -> bool {
        let bytes = || self.kept.iter().map(|kept| kept.len() as u64).sum::<u64>();
        self.kept.len() >= MOST_KEPT || bytes() >= MOST_KEPT_BYTES
    }

    /// Gives back what is kept: `each` has closed the queue.
    pub(super) fn release(&mut self) {
        self.kept.clear();
    }

    /// The message, if it is to be tried now; else it is kept.
    pub(super) fn pass(&mut self, delivery: Delivery) -> Option<Delivery> {
        if self.is_due(delivery.seq()) {
            return Some(delivery);
        }
        self.keep(delivery);
        None
    }

    /// One that is kept and is to be tried now.
    pub(super) fn next_due(&mut self) -> Option<Delivery> {
        let at = (0..self.kept.len())
            .find(|at| self.kept.get(*at).is_some_and(|kept| self.is_due(kept.seq())))?;
        Some(self.kept.remove(at))
    }

    fn is_due(&self, seq: u64) -> bool {
        self.of.get(&seq).is_none_or(|failed| match failed.again {
            Again::AtOnce => true,
            Again::At(at) => at <= Instant::now(),
            Again::Never => false,
        })
    }

    /// The message is being tried.
    pub(super) fn begin(&mut self, seq: u64) {
        if let Some(failed) = self.of.get_mut(&seq) {
            failed.again = Again::AtOnce;
        }
    }

    /// When the next message is due that waits for its delay. One that has not come so long after
    /// its time was done by another process, or is being tried there.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let is_awaited =
            |at: &Instant| at.checked_add(LATE).is_none_or(|until| Instant::now() < until);
        let times = self.of.values().filter_map(|failed| match failed.again {
            Again::At(at) => Some(at),
            _ => None,
        });
        times.filter(is_awaited).min()
    }
}
