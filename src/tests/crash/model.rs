//! What the queue promised so far, kept apart from the queue.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::attempts::Attempts;
use super::held::{ConsumerModel, Finished, Presence};
use crate::consume::step::DeliveryToken;
use crate::error::{Gap, GapCause};
use crate::tests::sim::Rng;

/// A broken promise, in words.
pub(super) type Check<T = ()> = Result<T, String>;

/// Fails with the text unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}
pub(super) use ensure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// A crash came while it was being enqueued, and no reader has seen it since: it comes whole or
    /// not at all.
    Tried,
    Acknowledged,
    /// Reported missing, and missing from then on.
    Lost,
}

/// A message as it was enqueued.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// What its bytes are made from.
    pub(super) id: u64,
    pub(super) len: usize,
    /// The numbers of its batch.
    pub(super) batch: Range<u64>,
    pub(super) fate: Fate,
    /// How much time had passed when it was enqueued, in milliseconds.
    pub(super) written: u64,
    /// The `max_age` with which it was written, while every run since had that one, and what the
    /// clock showed at most until then.
    pub(super) dated: Option<(u64, u64)>,
    /// It was too old once: it may be passed over from then on.
    pub(super) old: bool,
}

thread_local! {
    /// What was drawn last: the same few messages are asked for again and again.
    static DRAWN: RefCell<BTreeMap<u64, Vec<u8>>> = const { RefCell::new(BTreeMap::new()) };
}

/// The bytes of the message with this number: of two lengths the shorter begins as the longer does.
pub(super) fn content(id: u64, len: usize) -> Vec<u8> {
    DRAWN.with_borrow_mut(|drawn| {
        if drawn.len() > 500 {
            drawn.clear();
        }
        let bytes = drawn.entry(id).or_default();
        if bytes.len() < len {
            *bytes = draw(id, len);
        }
        bytes[..len].to_vec()
    })
}

fn draw(id: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng(id);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    pub(super) messages: BTreeMap<u64, Sent>,
    /// Numbers that will never come, as recovery reported.
    pub(super) missing: Finished,
    pub(super) consumers: BTreeMap<String, ConsumerModel>,
    /// No number at or above it was seen by anybody.
    pub(super) next: u64,
    /// Everything acknowledged below it was said to be durable.
    pub(super) claimed: u64,
    /// Everything below may have been given back: every consumer there was had passed it.
    pub(super) released: u64,
    /// Messages below it may have been dropped to make room.
    pub(super) dropped: u64,
    /// Time that has passed, in milliseconds: a clock that is set back does not count.
    pub(super) elapsed: u64,
    /// What the clock shows, and what it has shown at most.
    pub(super) clock: u64,
    pub(super) latest: u64,
    /// The `max_age` of the run that is under way.
    pub(super) age: Option<u64>,
    last_id: u64,
}

impl Model {
    /// Notes what is about to be enqueued, from the number `first` on.
    pub(super) fn try_messages(&mut self, first: u64, lens: &[usize]) -> Vec<Vec<u8>> {
        let batch = first..first + lens.len() as u64;
        let (written, dated) = (self.elapsed, self.age.map(|age| (age, self.latest)));
        let sent = batch.clone().zip(lens).map(|(seq, len)| {
            self.last_id += 1;
            // Numbers taken at random must not look like one another.
            let id = self.last_id << 20;
            let sent = Sent {
                id,
                len: *len,
                batch: batch.clone(),
                fate: Fate::Tried,
                written,
                dated,
                old: false,
            };
            self.messages.insert(seq, sent);
            content(id, *len)
        });
        sent.collect()
    }

    pub(super) fn acknowledge(&mut self, range: Range<u64>) -> Check {
        ensure!(
            range.start >= self.next,
            "number {} was given out before (next {})",
            range.start,
            self.next
        );
        for seq in range.clone() {
            match self.messages.get_mut(&seq) {
                Some(sent) if sent.fate == Fate::Tried => sent.fate = Fate::Acknowledged,
                other => {
                    return Err(format!(
                        "number {seq} was given to a message, which was to be {other:?}"
                    ));
                }
            }
        }
        self.next = range.end;
        Ok(())
    }

    pub(super) fn refuse(&mut self, range: Range<u64>) {
        for seq in range {
            self.messages.remove(&seq);
        }
    }

    /// Everybody's place is on disk.
    pub(super) fn flush_places(&mut self) {
        for consumer in self.consumers.values_mut() {
            consumer.flushed = consumer.had.len().saturating_sub(1);
            consumer.durable = if consumer.exists { Presence::Yes } else { Presence::No };
            consumer.kept = consumer.finished.clone();
        }
    }

    /// What is older than `age` now may be passed over.
    pub(super) fn note_old(&mut self, age: Option<u64>) {
        if let Some(age) = age {
            self.messages
                .values_mut()
                .for_each(|sent| sent.old |= sent.is_older(self.elapsed, age));
        }
    }

    /// A run with that `max_age` begins.
    pub(super) fn begin_run(&mut self, age: Option<u64>) {
        self.age = age;
        self.messages
            .values_mut()
            .for_each(|sent| sent.dated = sent.dated.filter(|(under, _)| Some(*under) == age));
    }

    /// There was no room for another segment: the messages from `first` on live longer.
    pub(super) fn live_longer(&mut self, first: u64) {
        let latest = self.latest;
        for (_, sent) in self.messages.range_mut(first..) {
            sent.dated = sent.dated.map(|(age, _)| (age, latest));
        }
    }

    pub(super) fn note_clock(&mut self, now: u64) {
        (self.clock, self.latest) = (now, self.latest.max(now));
    }

    /// When one of the messages from `oldest` on, which may be held now, may be held no longer: a
    /// message lives for `max_age`, and at most for an eighth of it longer. While the clock is
    /// behind what it has shown before nothing is known to be too old.
    pub(super) fn first_overdue(&self, oldest: u64) -> Option<u64> {
        let held =
            self.messages.range(oldest..).filter(|(_, sent)| sent.fate == Fate::Acknowledged);
        let overdue =
            held.filter_map(|(_, sent)| sent.dated.map(|(age, at)| at + age + age / 8)).min();
        overdue.map(|overdue| overdue.max(self.latest))
    }

    /// The storage worker has looked at the time `now`, and `oldest` is the first number that is
    /// held.
    pub(super) fn check_expired(&self, oldest: u64, now: u64) -> Check {
        let overdue = self.first_overdue(oldest);
        ensure!(
            overdue.is_none_or(|overdue| overdue > now),
            "held too long at {now}, from {oldest} on"
        );
        Ok(())
    }

    pub(super) fn add_consumer(&mut self, name: &str, place: u64) {
        let fresh = ConsumerModel {
            had: Vec::new(),
            flushed: 0,
            exists: true,
            durable: Presence::No,
            cursor: place,
            open: BTreeMap::new(),
            returned: BTreeSet::new(),
            delivers: false,
            finished: Finished::default(),
            kept: Finished::default(),
            attempts: Attempts::default(),
        };
        let consumer = self.consumers.entry(name.to_owned()).or_insert(fresh);
        consumer.exists = true;
        consumer.start_at(place, Finished::default());
        consumer.kept = Finished::default();
        consumer.delivers = false;
        let ever = std::mem::take(&mut consumer.attempts.ever);
        consumer.attempts = Attempts { ever, ..Attempts::default() };
        consumer.had.push(place);
        if consumer.durable == Presence::No {
            consumer.flushed = consumer.had.len() - 1;
            consumer.durable = Presence::Perhaps;
        }
    }

    pub(super) fn remove_consumer(&mut self, name: &str) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.exists = false;
            // What it had acknowledged is forgotten before it is gone.
            (consumer.finished, consumer.kept) = Default::default();
            if consumer.durable == Presence::Yes {
                consumer.durable = Presence::Perhaps;
            }
        }
        self.note_released();
    }

    /// A seek: what was in flight is called off.
    pub(super) fn move_to(&mut self, name: &str, place: u64) {
        if let Some(consumer) = self.consumers.get_mut(name) {
            let Attempts { asked, ever, .. } = consumer.attempts.clone();
            consumer.had.push(place);
            consumer.start_at(place, Finished::default());
            consumer.kept = Finished::default();
            consumer.attempts = Attempts { asked, ever, ..Attempts::default() };
        }
        self.note_released();
    }

    /// The consumer's place is now this: nothing that is open lies before it, nor anything that
    /// was not reported to it.
    pub(super) fn note_place(&mut self, name: &str, place: u64) -> Check {
        if let Some(consumer) = self.consumers.get_mut(name) {
            let before = consumer.place();
            let lowest = consumer.open.keys().next().copied().unwrap_or(u64::MAX);
            let limit = consumer.finished.next_open(consumer.cursor).min(lowest);
            ensure!(
                before <= place && place <= limit,
                "{name:?} stands at {place}, was at {before}, may be at {limit}"
            );
            let behind = consumer.finished.next_open(place.min(consumer.cursor));
            ensure!(
                behind >= limit,
                "{name:?} stands at {place} and has dealt with nothing but what is below {behind}"
            );
            if place != before {
                consumer.had.push(place);
            }
        }
        self.note_released();
        Ok(())
    }

    fn note_released(&mut self) {
        let places =
            self.consumers.values().filter(|consumer| consumer.exists).map(ConsumerModel::place);
        self.released = places.min().unwrap_or(0).max(self.released);
    }

    pub(super) fn place(&self, name: &str) -> Option<u64> {
        self.consumers.get(name).filter(|consumer| consumer.exists).map(ConsumerModel::place)
    }

    /// Whether something is stored of deliveries in vain.
    pub(super) fn has_counted(&self) -> bool {
        let has = |consumer: &ConsumerModel| consumer.attempts != Attempts::default();
        self.consumers.values().any(has)
    }

    /// Whether the consumer has a message in flight.
    pub(super) fn is_open(&self, name: &str) -> bool {
        self.in_flight(name, 0).is_some()
    }

    /// One of those in flight.
    pub(super) fn in_flight(&self, name: &str, which: u64) -> Option<(u64, DeliveryToken)> {
        let consumer = self.consumers.get(name).filter(|consumer| consumer.exists)?;
        let mut open: Vec<_> = consumer.open.iter().map(|(seq, handed)| (*seq, *handed)).collect();
        let out = consumer.out();
        open.retain(|(seq, _)| out.contains(seq));
        let len = open.len().max(1) as u64;
        open.get((which % len) as usize).copied()
    }

    /// A fork begins with what the other one has dealt with.
    pub(super) fn copy_finished(&mut self, from: &str, name: &str, place: u64) {
        let Some(other) = self.consumers.get(from).cloned() else {
            return;
        };
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.start_at(place, other.finished);
            consumer.delivers = other.delivers;
        }
    }

    /// Whether all numbers of the range are known to be missing.
    pub(super) fn is_missing(&self, range: Range<u64>) -> bool {
        self.missing.next_open(range.start) >= range.end
    }

    /// Whether there is nothing left in the range: lost, dropped or too old.
    pub(super) fn is_gone(&self, range: Range<u64>) -> bool {
        let mut sent = self.messages.range(range.start..range.end.max(range.start));
        sent.all(|(seq, sent)| *seq < self.dropped || !sent.is_young())
    }

    /// A message that was read while the queue ran.
    pub(super) fn check_read(&self, seq: u64, bytes: &[u8]) -> Check {
        let sent =
            self.messages.get(&seq).ok_or_else(|| format!("message {seq} was never enqueued"))?;
        ensure!(sent.fate != Fate::Lost, "message {seq} is {:?} and was delivered", sent.fate);
        ensure!(
            content(sent.id, sent.len) == bytes,
            "message {seq} has other bytes than were enqueued"
        );
        Ok(())
    }

    /// A gap that was reported while the queue ran: nobody may have lost anything meanwhile but
    /// what was evicted on purpose.
    pub(super) fn check_gap(&self, gap: &Gap) -> Check {
        match gap.cause {
            GapCause::Unflushed | GapCause::Reserved => {
                ensure!(
                    self.is_missing(gap.first..gap.last + 1),
                    "{gap:?} was not known: only {:?}",
                    self.missing
                );
            }
            GapCause::Dropped => {
                ensure!(
                    gap.last < self.dropped,
                    "{gap:?}, and dropped was what is below {}",
                    self.dropped
                )
            }
            GapCause::Expired => {
                // What was dropped before others expired may be reported with those.
                let first = gap.first.max(self.dropped).min(gap.last + 1);
                let young =
                    self.messages.range(first..gap.last + 1).find(|(_, sent)| sent.is_young());
                ensure!(young.is_none(), "{gap:?}, and {young:?} was not too old");
            }
            cause => return Err(format!("{gap:?} is reported as {cause}")),
        }
        Ok(())
    }
}

impl Sent {
    pub(super) fn is_older(&self, elapsed: u64, age: u64) -> bool {
        self.written + age <= elapsed
    }

    /// It is there, and was never too old.
    pub(super) fn is_young(&self) -> bool {
        self.fate == Fate::Acknowledged && !self.old
    }
}
