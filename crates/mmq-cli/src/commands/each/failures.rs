//! Messages whose command has failed in this run, by number: so many that there are, they keep no
//! other one from its turn.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use mmq::Delivery;

/// How long after its time a message is waited for.
const LATE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
struct FailedJob {
    attempts: u64,
    /// When it comes again, if it waits for that.
    at: Option<Instant>,
}

/// The owner of the queue counts attempts and delays while it has it open; this counts over the
/// ends of owners, too.
#[derive(Debug, Default)]
pub(super) struct Failures {
    of: BTreeMap<u64, FailedJob>,
    /// Those that wait, by their times.
    waiting: BTreeSet<(Instant, u64)>,
    /// Those that have failed too often and stay in the queue.
    given_up: BTreeSet<u64>,
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
        self.of.insert(seq, FailedJob { attempts, at });
        self.waiting.extend(at.map(|at| (at, seq)));
    }

    /// It has failed too often, and stays in the queue.
    pub(super) fn give_up(&mut self, seq: u64, attempts: u64) {
        self.note(seq, attempts, None);
        self.given_up.insert(seq);
    }

    /// It is done.
    pub(super) fn forget(&mut self, seq: u64) {
        self.of.remove(&seq);
        self.given_up.remove(&seq);
    }

    /// How many have failed too often and stay in the queue.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up.len() as u64
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

    /// The message is being tried: it waits no more.
    pub(super) fn begin(&mut self, seq: u64) {
        if let Some(at) = self.of.get_mut(&seq).and_then(|failed| failed.at.take()) {
            self.waiting.remove(&(at, seq));
        }
    }

    /// When the next message is due that waits for its delay. One that has not come so long after
    /// its time was done by another process, or is being tried there.
    pub(super) fn next_time(&mut self) -> Option<Instant> {
        while let Some((at, _)) = self.waiting.first() {
            if at.checked_add(LATE).is_none_or(|until| Instant::now() < until) {
                return Some(*at);
            }
            self.waiting.pop_first();
        }
        None
    }
}
