//! What the model knows of messages that a consumer was handed in vain, and what an opening must
//! know of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::examine::{Bounds, consumer_of, names_of, open};
use super::model::{Check, Fate, ensure};
use crate::consume::redelivery_state::Rules;
use crate::engine::reading;
use crate::error::{Error, Gap, GapCause};
use crate::options::Options;
use crate::tests::sim::SimStorage;

/// What a run asks for, for one consumer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Asked {
    /// It has not received anything yet.
    #[default]
    NotYet,
    /// Deliveries alone.
    Deliveries,
    /// Redelivery, with so many attempts at most.
    Redelivery(Option<u32>),
}

/// What is stored of messages that were handed out in vain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) counts: BTreeMap<u64, u32>,
    /// They are handed out no more.
    pub(super) rejected: BTreeSet<u64>,
}

impl Stored {
    fn note(&mut self, seq: u64, count: u32) {
        let most = self.counts.entry(seq).or_default();
        *most = count.max(*most);
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attempts {
    pub(super) asked: Asked,
    pub(super) stored: Stored,
    /// All that ever was: a power cut may bring back any of it.
    pub(super) ever: Stored,
    /// They are with workers.
    pub(super) in_flight: BTreeSet<u64>,
    /// They come again in a later run.
    pub(super) delayed: BTreeSet<u64>,
    /// Rejected, and not reported yet.
    pub(super) unreported: BTreeSet<u64>,
}

impl Attempts {
    /// The most counts that a consumer has at a time: they fit into its row, wherever they lie.
    pub(super) const MOST: usize = 20;

    pub(super) fn are_counted(&self) -> bool {
        matches!(self.asked, Asked::Redelivery(_))
    }

    /// How often this run's first delivery says that the message was handed out.
    pub(super) fn first(&self, seq: u64) -> u32 {
        let count = self.stored.counts.get(&seq).filter(|_| self.are_counted());
        1 + count.copied().unwrap_or(0)
    }

    /// Whether the message is handed out no more.
    pub(super) fn is_spent(&self, seq: u64) -> bool {
        let Asked::Redelivery(most) = self.asked else { return false };
        let count = self.stored.counts.get(&seq).copied().unwrap_or(0);
        self.stored.rejected.contains(&seq) || most.is_some_and(|most| count >= most)
    }

    /// The first receive of a run asks for redelivery, or does without.
    pub(super) fn ask(&mut self, asked: Asked) {
        self.asked = asked;
    }

    pub(super) fn hand_out(&mut self, seq: u64) {
        if self.are_counted() {
            self.in_flight.insert(seq);
        }
    }

    /// Whether the message comes again.
    pub(super) fn give_back(&mut self, seq: u64, attempts: u32) -> bool {
        if self.are_counted() {
            self.stored.note(seq, attempts);
            self.ever.note(seq, attempts);
            self.in_flight.remove(&seq);
            if self.is_spent(seq) {
                self.reject(seq, attempts);
                return false;
            }
        }
        true
    }

    pub(super) fn reject(&mut self, seq: u64, attempts: u32) {
        for stored in [&mut self.stored, &mut self.ever] {
            stored.note(seq, attempts);
            stored.rejected.insert(seq);
        }
        self.unreported.insert(seq);
        self.in_flight.remove(&seq);
    }

    /// It is reported as rejected: perhaps an earlier run has handed it out too often.
    pub(super) fn report_rejected(&mut self, seq: u64) {
        self.ever.rejected.insert(seq);
    }

    pub(super) fn finish(&mut self, numbers: &Range<u64>) {
        let is_left = |at: &u64| !numbers.contains(at);
        self.stored.counts.retain(|at, _| is_left(at));
        self.stored.rejected.retain(is_left);
        self.delayed.retain(is_left);
        self.unreported.retain(is_left);
        self.in_flight.retain(is_left);
    }

    /// Another run begins.
    pub(super) fn begin_run(&mut self) {
        self.asked = Asked::NotYet;
        self.delayed.clear();
        self.unreported.clear();
        self.in_flight.clear();
    }

    /// What an opening found is what was `stored`.
    pub(super) fn resume(&mut self, stored: Stored) {
        stored.counts.iter().for_each(|(seq, count)| self.ever.note(*seq, *count));
        self.stored = stored;
        self.begin_run();
    }
}

/// What is stored of each consumer's messages. The image is used up.
pub(super) fn attempts_of(
    image: SimStorage,
    bounds: &Bounds<'_>,
    options: &Options,
    blame: Blame,
) -> Check<BTreeMap<String, Stored>> {
    // What expires for one opening comes again, with its count, in one that keeps messages longer.
    let queue = open(image, &options.clone().max_age(None))?;
    let mut all = BTreeMap::new();
    for name in names_of(&queue) {
        let consumer = consumer_of(&queue, &name)?;
        let asked = queue.set_redelivery(&consumer, Rules::default());
        asked.map_err(|error| format!("{name:?} cannot be redelivered: {error}"))?;
        let mut found = Stored::default();
        loop {
            match queue.receive(&consumer, reading::AsMessage) {
                Ok(Some((message, handed))) => {
                    let seq = message.seq();
                    drop(message);
                    if handed.attempts > 1 {
                        found.counts.insert(seq, handed.attempts - 1);
                    }
                    let acked = queue.ack(&consumer, seq, handed);
                    acked.map_err(|error| format!("cannot acknowledge {seq}: {error}"))?;
                }
                Ok(None) => break,
                Err(Error::Gap(Gap { first, cause: GapCause::Rejected, .. })) => {
                    found.rejected.insert(first);
                }
                Err(Error::Gap(_)) => {}
                Err(error) => return Err(format!("{name:?} cannot receive: {error}")),
            }
        }
        bounds
            .check_attempts(&name, &mut found, blame)
            .map_err(|broken| format!("{name:?}: {broken}"))?;
        all.insert(name, found);
    }
    Ok(all)
}

/// Whether the crash counts against a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// Only the process died.
    Surely,
    /// Power was cut after the process had died, or within a call.
    Perhaps,
    Never,
}

impl Bounds<'_> {
    /// What was found of a consumer's messages is what was stored of them.
    fn check_attempts(&self, name: &str, found: &mut Stored, blame: Blame) -> Check {
        // A consumer may have come into being under way.
        let nothing = Attempts::default();
        let consumers = self.consumers(name);
        let [before, after] = consumers.map(|it| it.map_or(&nothing, |it| &it.attempts));
        let seqs: BTreeSet<u64> = [&before.stored, &after.stored, found]
            .iter()
            .flat_map(|stored| stored.counts.keys().chain(&stored.rejected))
            .chain(&before.in_flight)
            .chain(&after.in_flight)
            .copied()
            .collect();
        for seq in seqs {
            let stored = before.stored.counts.get(&seq).copied().unwrap_or(0);
            let ever = [before, after].map(|it| it.ever.counts.get(&seq).copied().unwrap_or(0));
            let was_rejected = [before, after].iter().any(|it| it.ever.rejected.contains(&seq));
            let count = found.counts.get(&seq).copied().unwrap_or(0);
            let is_rejected = found.rejected.contains(&seq);
            ensure!(!is_rejected || was_rejected, "{seq} is rejected, and never was");
            let most = ever[0].max(ever[1]) + u32::from(blame != Blame::Never);
            ensure!(count <= most, "{seq} was handed out {count} times in vain, at most {most}");
            if is_rejected {
                found.counts.insert(seq, ever[0].max(ever[1]));
            }
            let sent = self.before.messages.get(&seq);
            let is_there = sent
                .is_some_and(|sent| sent.fate == Fate::Acknowledged && !self.is_evicted(seq, sent));
            if blame == Blame::Surely && is_there {
                let expected = stored + u32::from(before.in_flight.contains(&seq));
                let was_rejected = before.stored.rejected.contains(&seq);
                ensure!(is_rejected == was_rejected, "{seq} was rejected, and comes again");
                ensure!(
                    is_rejected || count == expected,
                    "{seq} was handed out {count} times in vain, not {expected}"
                );
            }
        }
        Ok(())
    }
}
