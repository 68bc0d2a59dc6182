//! Bounds of what an opening may find after a crash: what must be there, and what may.

use std::collections::BTreeSet;

use super::{Bounds, Queue, Reported, Shown, dropped_of};
use crate::error::{Gap, GapCause};
use crate::tests::crash::held::{ConsumerModel, Finished, Presence};
use crate::tests::crash::model::{Check, Fate, Model, Sent, content, ensure};

impl Model {
    pub(super) fn check_new(&self, seq: u64, bytes: &[u8]) -> Check {
        let sent = self.messages.get(&seq);
        ensure!(
            sent.is_some_and(|sent| content(sent.id, sent.len) == bytes),
            "new message {seq} has other bytes"
        );
        Ok(())
    }
}

impl Bounds<'_> {
    pub(super) fn check_message(&self, seq: u64, bytes: &[u8]) -> Check {
        let sent = self
            .during
            .messages
            .get(&seq)
            .ok_or_else(|| format!("message {seq} was never enqueued"))?;
        ensure!(sent.fate != Fate::Lost, "message {seq} was lost and is back");
        ensure!(
            content(sent.id, sent.len) == bytes,
            "message {seq} has other bytes than were enqueued"
        );
        Ok(())
    }

    /// The message may be gone because it was evicted on purpose.
    pub(crate) fn is_evicted(&self, seq: u64, sent: &Sent) -> bool {
        seq < self.after.dropped || self.is_old(sent)
    }

    pub(super) fn is_old(&self, sent: &Sent) -> bool {
        sent.old || self.age.is_some_and(|age| sent.is_older(self.after.elapsed, age))
    }

    pub(super) fn check_gap(&self, gap: &Gap) -> Check {
        self.check_gap_in(gap, None)
    }

    /// With a queue that has gone on since, which may have dropped more.
    pub(super) fn check_gap_in(&self, gap: &Gap, queue: Option<&Queue>) -> Check {
        let dropped = queue.map_or(0, dropped_of).max(self.after.dropped);
        let numbers = gap.first..gap.last + 1;
        match gap.cause {
            GapCause::Unflushed | GapCause::Reserved => {
                // What everybody had passed is nobody's loss: it may be reported to a new consumer
                // with the rest.
                let numbers =
                    numbers.start.max(self.before.released)..numbers.end.max(self.before.released);
                for (seq, sent) in self.before.messages.range(numbers) {
                    ensure!(
                        sent.fate != Fate::Acknowledged || self.cut && *seq >= self.before.claimed,
                        "message {seq} was acknowledged (durable below {}) and is in {gap:?}",
                        self.before.claimed
                    );
                }
                if !self.cut {
                    self.before.check_gap(gap)?;
                }
            }
            GapCause::Dropped => {
                ensure!(gap.last < dropped, "{gap:?}, and dropped was what is below {dropped}")
            }
            GapCause::Expired => {
                let mut sent = self.before.messages.range(numbers);
                let young = sent.find(|(seq, sent)| {
                    // What was dropped before others expired may be reported with those; and what
                    // says how old it is may be lost, as it may be itself.
                    let may_be_lost = self.cut && **seq >= self.before.claimed;
                    sent.fate == Fate::Acknowledged
                        && !self.is_old(sent)
                        && **seq >= dropped
                        && !may_be_lost
                });
                ensure!(young.is_none(), "{gap:?}, and {young:?} was not too old");
            }
            cause => {
                return Err(format!(
                    "{gap:?} is reported as {cause}, not as what a power cut took"
                ));
            }
        }
        Ok(())
    }

    /// What is missing and reported by nobody: lost, or evicted on purpose.
    pub(super) fn check_tail_gap(&self, first: u64, end: u64) -> Check {
        let mut lost = self.before.messages.range(first..end.max(first)).filter(|(seq, sent)| {
            sent.fate == Fate::Acknowledged
                && !self.is_evicted(**seq, sent)
                && !(self.cut && **seq >= self.before.claimed)
        });
        let lost = lost.next();
        ensure!(
            lost.is_none(),
            "{lost:?} was acknowledged (durable below {}) and is gone",
            self.before.claimed
        );
        let evicted = |seq: &u64| {
            self.before.messages.get(seq).is_some_and(|sent| self.is_evicted(*seq, sent))
        };
        // After a mere kill no number is missing that was not before.
        let known = self.cut
            || (first..end.min(first + 10_000)).all(|seq| {
                evicted(&seq) || seq < self.after.dropped || self.before.is_missing(seq..seq + 1)
            });
        ensure!(known, "{first} .. {end} is missing, and only {:?} was", self.before.missing);
        Ok(())
    }

    /// Whether reads reported the same to two readers, but for what was evicted between them.
    pub(super) fn agree(&self, queue: &Queue, first: &[Reported], second: &[Reported]) -> bool {
        if first == second {
            return true;
        }
        let dropped = dropped_of(queue).max(self.after.dropped);
        let messages = |reported: &[Reported]| -> BTreeSet<u64> {
            reported.iter().filter_map(Reported::message).collect()
        };
        let evicted = |seq: &u64| {
            *seq < dropped || self.during.messages.get(seq).is_some_and(|sent| self.is_old(sent))
        };
        // Without such a thing gaps are the same, too.
        let on_purpose = |reported: &Reported| match reported {
            Reported::Gap(gap) => matches!(gap.cause, GapCause::Dropped | GapCause::Expired),
            Reported::Message(_) => false,
        };
        first.iter().chain(second).any(on_purpose)
            && messages(first).symmetric_difference(&messages(second)).all(evicted)
    }

    pub(crate) fn consumers(&self, name: &str) -> [Option<&ConsumerModel>; 2] {
        [self.before.consumers.get(name), self.after.consumers.get(name)]
    }

    /// What the consumer has dealt with, and a next opening knows of.
    pub(crate) fn done(&self, name: &str) -> Finished {
        let done = |consumer: &ConsumerModel| {
            if self.cut { consumer.kept.clone() } else { consumer.finished.clone() }
        };
        match self.consumers(name) {
            [Some(before), Some(after)] if before.delivers && after.delivers => {
                done(before).common(&done(after))
            }
            _ => Finished::default(),
        }
    }

    /// What it may have dealt with.
    pub(crate) fn perhaps_done(&self, name: &str) -> Finished {
        let consumers =
            self.consumers(name).into_iter().flatten().filter(|consumer| consumer.delivers);
        consumers.fold(Finished::default(), |done, consumer| done.and(&consumer.finished))
    }

    pub(super) fn is_done(&self, name: &str, seq: u64) -> bool {
        self.done(name).has(seq)
    }

    pub(super) fn may_be_done(&self, name: &str, seq: u64) -> bool {
        self.perhaps_done(name).has(seq)
    }

    pub(super) fn check_passed(&self, name: &str, from: u64, to: u64) -> Check {
        let passed = self.perhaps_done(name).next_open(from);
        ensure!(
            passed >= to,
            "{to} is reported to {name:?}, and nothing of {passed}, where {from} comes next"
        );
        Ok(())
    }

    pub(super) fn check_batches(&self, name: &str, place: u64, reported: &[Reported]) -> Check {
        let delivered: BTreeSet<u64> = reported.iter().filter_map(Reported::message).collect();
        for seq in &delivered {
            let batch = self.during.messages.get(seq).map_or(0..0, |sent| sent.batch.clone());
            for other in batch.start.max(place)..batch.end {
                let evicted = self
                    .during
                    .messages
                    .get(&other)
                    .is_some_and(|sent| self.is_evicted(other, sent));
                ensure!(
                    delivered.contains(&other) || evicted || self.may_be_done(name, other),
                    "of the batch {batch:?} message {seq} is there, {other} is not"
                );
            }
        }
        Ok(())
    }

    pub(super) fn check_consumers(&self, shown: &Shown) -> Check {
        for (name, consumer) in &self.after.consumers {
            let before = self.before.consumers.get(name);
            let found = shown.consumers.get(name).map(|view| view.place);
            let (must, may) = self.presence(before, consumer);
            ensure!(found.is_some() || !must, "consumer {name:?} is gone: {consumer:?}");
            ensure!(found.is_none() || may, "consumer {name:?} is back: {consumer:?}");
            let from = match before {
                Some(before) if self.cut => before.flushed,
                Some(before) if before.exists => before.had.len() - 1,
                // It came into being under way.
                Some(before) => before.had.len(),
                None => 0,
            };
            if let Some(place) = found {
                let had = consumer.had.get(from..).unwrap_or_default();
                ensure!(
                    had.contains(&place),
                    "consumer {name:?} stands at {place}, and it was at {had:?}"
                );
            }
        }
        let unknown = shown.consumers.keys().find(|name| !self.after.consumers.contains_key(*name));
        ensure!(unknown.is_none(), "consumer {unknown:?} never was");
        Ok(())
    }

    /// Whether the consumer must, and whether it may exist.
    pub(super) fn presence(
        &self,
        before: Option<&ConsumerModel>,
        after: &ConsumerModel,
    ) -> (bool, bool) {
        if self.cut {
            let durable = [before.map_or(Presence::No, |before| before.durable), after.durable];
            (durable == [Presence::Yes; 2], durable != [Presence::No; 2])
        } else {
            let exists = [before.is_some_and(|before| before.exists), after.exists];
            (exists == [true; 2], exists != [false; 2])
        }
    }
}
