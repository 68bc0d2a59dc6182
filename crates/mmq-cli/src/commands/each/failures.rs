//! Messages whose command has failed in this run, by number: so many that there are, they keep no
//! other one from its turn.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mmq::Delivery;

/// So long the queue keeps a message from this run that is tried no more, each time.
const AWAY: Duration = Duration::from_secs(60);
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
    /// How often it came before its time, and was given back: the queue counts these as tries.
    passed: u64,
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
        let failed = self.of.get(&delivery.seq());
        let (before, passed) = failed.map_or((0, 0), |failed| (failed.attempts, failed.passed));
        u64::from(delivery.attempts()).saturating_sub(passed).max(before + 1)
    }

    /// It comes again, after the delay if there is one.
    pub(super) fn note(&mut self, seq: u64, attempts: u64, delay: Option<Duration>) {
        let at = delay.and_then(|delay| Instant::now().checked_add(delay));
        self.set(seq, attempts, at.map_or(Again::AtOnce, Again::At));
    }

    /// It is tried no more by this run. Returns how long the queue is to keep it.
    pub(super) fn give_up(&mut self, seq: u64, attempts: u64) -> Duration {
        self.set(seq, attempts, Again::Never);
        AWAY
    }

    fn set(&mut self, seq: u64, attempts: u64, again: Again) {
        let passed = self.of.get(&seq).map_or(0, |failed| failed.passed);
        self.of.insert(seq, FailedJob { attempts, again, passed });
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

    /// Gives back what is kept: `each` has closed the queue.
    pub(super) fn release(&mut self) {
        self.kept.clear();
    }

    /// How long the message is to be given back for that came before its time, as it does when the
    /// owner of the queue has ended. `None`: it is to be tried now.
    pub(super) fn pass(&mut self, seq: u64) -> Option<Duration> {
        let failed = self.of.get_mut(&seq)?;
        let left = match failed.again {
            Again::AtOnce => return None,
            Again::At(at) => at.checked_duration_since(Instant::now())?,
            Again::Never => AWAY,
        };
        failed.passed += 1;
        Some(left)
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
