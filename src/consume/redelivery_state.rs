//! Messages that were delivered without an acknowledgement: ends of leases and delays, attempt
//! counts, and which messages a crashed process had in flight.
//!
//! Write-ahead: before a delivery the consumer persists a high-water mark, and one attempt count
//! per failed message. Of the messages between the consumer's place and the mark that are not done,
//! those are in flight that have no count, or whose count has the bit `IN_FLIGHT`. The opening
//! after a crash adds one attempt to each of them.
//!
//! While the cursor has skipped messages, the mark would count these. The mark stays then, and each
//! message beyond it that is delivered gets a count with the bit.
//!
//! A count that does not fit into the row is not stored. Nothing waits for that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::consume::ranges::Ranges;
use crate::error::{Error, Result};
use crate::format::{Attempts, IN_FLIGHT, Origin, REJECTED};
use crate::index::AttemptsRow;
use crate::storage::StorageFile;

/// The other queue that takes rejected messages.
pub(crate) trait DeadLetters: Send + Sync {
    /// Enqueues a message's payload and its origin. Never waits for space, nor long for a lock.
    fn put(&self, payload: &[u8], origin: &Origin) -> Result<()>;

    /// Makes the enqueued dead letters durable.
    fn flush(&self) -> Result<()>;

    /// Fails when the queue can never take a dead letter: it belongs to the parent process.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Identifies the queue within the process.
    fn id(&self) -> usize;

    /// The dead-letter queues of that queue's own consumers.
    fn dead_letters(&self) -> Vec<Arc<dyn DeadLetters>>;
}

/// When a message is delivered again.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    pub(crate) lease: Option<Duration>,
    /// The first delay and the longest.
    pub(crate) backoff: Option<(Duration, Duration)>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) dead_letters: Option<Arc<dyn DeadLetters>>,
}

impl Rules {
    /// Refuses rules by which no message could be handed out, or acknowledged.
    pub(crate) fn check(&self, path: &Path) -> Result<()> {
        let refuse = |what, reason: &str| Err(Error::invalid_argument(path, what, reason));
        if self.lease.is_some_and(|lease| lease < Duration::from_millis(1)) {
            return refuse(
                "lease",
                "shorter than a millisecond: no delivery could be acknowledged",
            );
        }
        if self.backoff.is_some_and(|(first, max)| first > max) {
            return refuse("backoff", "the first delay is longer than the longest one");
        }
        if self.max_attempts == Some(0) {
            return refuse("max_attempts", "0 would hand out nothing: at least 1");
        }
        Ok(())
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("lease", &self.lease)
            .field("backoff", &self.backoff)
            .field("max_attempts", &self.max_attempts)
            .field("dead_letters", &self.dead_letters.is_some())
            .finish()
    }
}

impl Rules {
    /// The delay before the next delivery of a message that failed `attempts` times.
    pub(crate) fn delay(&self, attempts: u32) -> Duration {
        let Some((first, longest)) = self.backoff else {
            return Duration::ZERO;
        };
        let doublings = attempts.saturating_sub(1);
        let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        first.checked_mul(factor).map_or(longest, |delay| delay.min(longest))
    }
}

/// How the row of attempts says that a message is in flight that has failed no attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InFlightBy {
    /// The high-water mark: the cursor has skipped no lower message.
    Mark,
    /// A count of 0, with the bit.
    Count,
}

/// The part of a ledger for a consumer that uses leases, delays or attempt counts.
#[derive(Debug)]
pub(crate) struct Redeliveries<F> {
    pub(crate) rules: Rules,
    /// When a lease, a delay or a dead letter's retry time ends, and for which open message.
    timers: BTreeSet<(Instant, u64)>,
    /// The earliest time, not yet past, that the delivery worker knows of.
    notified: Option<Instant>,
    /// Messages that are not done, with how often each was delivered without an acknowledgement.
    counts: BTreeMap<u64, u32>,
    row: Option<AttemptsRow<F>>,
    /// Counts have changed since the last store.
    is_changed: bool,
    /// Some counts do not fit into the row.
    is_full: bool,
    /// That some counts do not fit has not been reported yet.
    to_report_full: bool,
    /// The persisted high-water mark.
    below: u64,
    /// Rejected messages that the statistics do not count yet.
    rejections: Vec<u64>,
    /// Dead letters that another queue took but could not flush, each with that queue's id.
    unflushed: BTreeMap<u64, usize>,
}

impl<F> Default for Redeliveries<F> {
    fn default() -> Redeliveries<F> {
        Redeliveries {
            rules: Rules::default(),
            timers: BTreeSet::new(),
            notified: None,
            counts: BTreeMap::new(),
            row: None,
            is_changed: false,
            is_full: false,
            to_report_full: false,
            below: 0,
            rejections: Vec::new(),
            unflushed: BTreeMap::new(),
        }
    }
}

impl<F: StorageFile> Redeliveries<F> {
    /// What is stored agrees with what is known.
    #[cfg(any(test, fuzzing, mmq_holds))]
    fn check(&self) {
        holds!(!self.is_full || !self.counts.is_empty(), "a row without counts is not full");
        if crate::holds::are_looked_at(self.counts.len()) {
            let nothing = self.counts.iter().find(|(_, count)| **count == 0);
            holds!(nothing.is_none(), "a message without a count is not counted: {nothing:?}");
        }
    }

    pub(crate) fn has_row(&self) -> bool {
        self.row.is_some()
    }

    /// Takes over the attempts that an earlier run stored in `row`. The consumer is at `place`; the
    /// numbers in `done` beyond it are done.
    pub(super) fn take_up(
        &mut self,
        row: AttemptsRow<F>,
        stored: Attempts,
        place: u64,
        done: &Ranges,
    ) {
        self.row = Some(row);
        let is_left = |seq: u64| seq >= place && !done.contains(seq);
        self.counts.extend(stored.counts.into_iter().filter(|(seq, _)| is_left(*seq)));
        holds!(stored.below == 0, "the opening has ended the run before");
        self.store();
    }

    /// Stores the mark and the counts. Counts that do not fit stay in memory only.
    fn store(&mut self) {
        let counts = self.counts.iter().map(|(seq, count)| (*seq, *count));
        if let Some(row) = &mut self.row {
            let was_full = std::mem::replace(&mut self.is_full, !row.store(self.below, counts));
            self.to_report_full |= self.is_full && !was_full;
        }
        self.is_changed = false;
        check!(self.check());
    }

    /// Ends the run in order: it counts against no message that workers have. Returns the rules,
    /// which may hold another queue: the caller drops them without holding a lock.
    pub(crate) fn end_run(&mut self) -> Rules {
        self.below = 0;
        self.counts.retain(|_, count| {
            *count &= !IN_FLIGHT;
            *count != 0
        });
        self.store();
        // After the close the files may belong to another process.
        self.row = None;
        std::mem::take(&mut self.rules)
    }

    /// Clears everything after a seek; the caller has cleared the row.
    pub(crate) fn clear(&mut self) {
        self.timers.clear();
        self.counts.clear();
        (self.below, self.is_full) = (0, false);
        self.unflushed.clear();
    }

    /// Replaces the rules. Dead letters that another queue could not flush will be enqueued again.
    pub(super) fn set_rules(&mut self, rules: Rules) -> Rules {
        self.unflushed.clear();
        std::mem::replace(&mut self.rules, rules)
    }

    /// Notes that `queue` took the dead letter but could not flush it.
    pub(super) fn note_unflushed(&mut self, seq: u64, queue: usize) {
        self.unflushed.insert(seq, queue);
    }

    /// Whether `queue` already has the dead letter, so that only a flush is missing.
    pub(super) fn is_put_into(&self, seq: u64, queue: usize) -> bool {
        self.unflushed.get(&seq) == Some(&queue)
    }

    pub(crate) fn has_dead_letters(&self) -> bool {
        self.rules.dead_letters.is_some()
    }

    /// How often the message was delivered without an acknowledgement.
    pub(crate) fn count(&self, seq: u64) -> u32 {
        self.counts.get(&seq).map_or(0, |count| count & !(REJECTED | IN_FLIGHT))
    }

    /// Whether the message must not be delivered again.
    pub(crate) fn is_spent(&self, seq: u64) -> bool {
        let Some(count) = self.counts.get(&seq) else {
            return false;
        };
        count & REJECTED != 0
            || self.rules.max_attempts.is_some_and(|most| count & !IN_FLIGHT >= most)
    }

    /// Write-ahead of a delivery: stores that the message is in flight, by a bit in its count if it
    /// has one.
    pub(super) fn note_in_flight(&mut self, seq: u64, without_count: InFlightBy) {
        if without_count == InFlightBy::Count && seq >= self.below {
            self.counts.entry(seq).or_default();
        }
        if planted!(InFlightNotStored) {
            return;
        }
        let is_new = match self.counts.get_mut(&seq) {
            Some(count) => std::mem::replace(count, *count | IN_FLIGHT) & IN_FLIGHT == 0,
            None => {
                let before = self.below;
                self.below = before.max(seq + 1);
                self.below != before
            }
        };
        if is_new {
            self.store();
        }
    }

    /// Counts the attempts of a returned message.
    pub(crate) fn note_back(&mut self, seq: u64, attempts: u32) {
        holds!(attempts > 0, "the returned message {seq} was delivered before");
        self.set_count(seq, attempts.min(IN_FLIGHT - 1));
    }

    /// Notes that the message is rejected.
    pub(crate) fn note_rejected(&mut self, seq: u64, attempts: u32) {
        // An earlier run that rejected the message counted it then.
        if self.counts.get(&seq).is_none_or(|count| count & REJECTED == 0) {
            self.rejections.push(seq);
        }
        let mark = if planted!(RejectionNotStored) { 0 } else { REJECTED };
        self.set_count(seq, attempts | mark);
        holds!(self.is_spent(seq), "the rejected message {seq} is not delivered again");
    }

    fn set_count(&mut self, seq: u64, count: u32) {
        self.counts.insert(seq, count);
        self.is_changed = true;
    }

    /// Stores the counts that changed, once for all messages of a call.
    pub(crate) fn store_changed(&mut self) {
        if self.is_changed {
            self.store();
        }
    }

    /// Drops the counts of done messages, which frees space in the row.
    pub(crate) fn note_done(&mut self, first: u64, last: u64) {
        while let Some(seq) = self.unflushed.range(first..=last).next().map(|(seq, _)| *seq) {
            self.unflushed.remove(&seq);
        }
        let mut has_room = false;
        while let Some(seq) = self.counts.range(first..=last).next().map(|(seq, _)| *seq) {
            self.counts.remove(&seq);
            has_room = true;
        }
        if has_room && self.is_full {
            self.store();
        }
        check!(self.check());
    }

    pub(crate) fn set_timer(&mut self, seq: u64, was: Option<Instant>, due: Option<Instant>) {
        if let Some(was) = was {
            holds!(self.timers.contains(&(was, seq)), "what is due for message {seq} is known");
            self.timers.remove(&(was, seq));
        }
        if let Some(due) = due {
            holds!(!self.timers.contains(&(due, seq)), "message {seq} has one timer at a time");
            self.timers.insert((due, seq));
        }
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| *due)
    }

    #[cfg(any(test, fuzzing, mmq_holds))]
    pub(super) fn count_timers(&self) -> usize {
        self.timers.len()
    }

    pub(crate) fn has_timers(&self) -> bool {
        !self.timers.is_empty()
    }

    /// Takes the next message with a timer that ended by `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<u64> {
        let (due, seq) = *self.timers.first()?;
        (due <= now).then(|| {
            self.timers.remove(&(due, seq));
            seq
        })
    }

    /// Called when the delivery worker looks: it must be notified of the next time again.
    pub(crate) fn worker_looks(&mut self) {
        self.notified = None;
    }

    /// When the delivery worker must look next, unless it knows that already; now, if there are
    /// `dead_letters`.
    pub(crate) fn time_to_notify(&mut self, now: Instant, dead_letters: usize) -> Option<Instant> {
        let next = if dead_letters > 0 { now } else { self.next_due()? };
        // A time that is past proves nothing: the worker may have ended before it looked.
        if self.notified.is_some_and(|notified| notified <= next && notified > now) {
            return None;
        }
        self.notified = Some(next);
        Some(next)
    }

    /// Whether to report now that some counts are not stored.
    pub(crate) fn take_report_full(&mut self) -> bool {
        std::mem::take(&mut self.to_report_full)
    }

    /// Takes a rejection that the statistics do not count yet.
    pub(crate) fn take_rejection(&mut self) -> Option<u64> {
        self.rejections.pop()
    }
}
