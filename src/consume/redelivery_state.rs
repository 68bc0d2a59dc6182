//! What becomes of messages that were handed out in vain: the ends of leases and delays, counts of
//! attempts, and what a death of the process says of the messages that were handed out.
//!
//! It is stored before a message is handed out that it is: all messages below a mark may have been,
//! and each that was handed out in vain has its count. So the messages between the consumer's place
//! and the mark that are not done may have ended a process that died. They come again one at a
//! time, and only a death with one of them alone counts against it.
//!
//! While messages are left behind, the mark would pass them, and they would be suspected. It stays
//! then, and each message beyond it that is handed out is listed among the counts, with a bit.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::consume::ranges::Ranges;
use crate::error::Result;
use crate::format::{Attempts, LISTED, Origin, REJECTED};
use crate::index::AttemptsRow;
use crate::storage::StorageFile;

/// Where rejected messages go: another queue.
pub(crate) trait DeadLetters: Send + Sync {
    /// Puts in the payload of a message, and where it comes from. Never waits for room, and not
    /// for long for a lock.
    fn put(&self, payload: &[u8], origin: &Origin) -> Result<()>;

    /// Makes what was put in durable.
    fn flush(&self) -> Result<()>;

    /// An error when nothing can ever go there: the queue is the parent process's.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// A number that names the queue within the process.
    fn id(&self) -> usize;

    /// Where the rejected messages of that queue's own consumers go.
    fn dead_letters(&self) -> Vec<Arc<dyn DeadLetters>>;
}

/// When a message comes again.
#[derive(Clone, Default)]
pub(crate) struct Rules {
    pub(crate) lease: Option<Duration>,
    /// The first delay, and the longest.
    pub(crate) backoff: Option<(Duration, Duration)>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) dead_letters: Option<Arc<dyn DeadLetters>>,
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
    /// How long a message stays away that was handed out in vain so often.
    pub(crate) fn delay(&self, attempts: u32) -> Duration {
        let Some((first, longest)) = self.backoff else {
            return Duration::ZERO;
        };
        let doublings = attempts.saturating_sub(1);
        let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        first.checked_mul(factor).map_or(longest, |delay| delay.min(longest))
    }
}

/// The part of a ledger for a consumer that wants leases, delays or counts.
#[derive(Debug)]
pub(crate) struct Redeliveries<F> {
    pub(crate) rules: Rules,
    /// When something is due for an open message.
    timers: BTreeSet<(Instant, u64)>,
    /// The earliest time that the delivery worker was notified of, which has yet to come.
    notified: Option<Instant>,
    /// How often messages were handed out in vain that are not done.
    counts: BTreeMap<u64, u32>,
    /// The counts from this number on did not fit into the row.
    stored_below: u64,
    row: Option<AttemptsRow<F>>,
    /// Messages below this number may have been handed out.
    below: u64,
    /// The message that was handed out while no other was with a worker, as it is stored.
    alone: Option<u64>,
    /// Messages below this number may have ended a process, and so may `suspects`: each goes out
    /// alone.
    suspects_below: u64,
    suspects: BTreeSet<u64>,
    /// Messages that were rejected and are not counted yet.
    rejections: Vec<u64>,
    /// Dead letters that are in another queue, by its number, and that it could not make durable.
    unflushed: BTreeMap<u64, usize>,
}

impl<F> Default for Redeliveries<F> {
    fn default() -> Redeliveries<F> {
        Redeliveries {
            rules: Rules::default(),
            timers: BTreeSet::new(),
            notified: None,
            counts: BTreeMap::new(),
            stored_below: u64::MAX,
            row: None,
            below: 0,
            alone: None,
            suspects_below: 0,
            suspects: BTreeSet::new(),
            rejections: Vec::new(),
            unflushed: BTreeMap::new(),
        }
    }
}

impl<F: StorageFile> Redeliveries<F> {
    pub(crate) fn has_row(&self) -> bool {
        self.row.is_some()
    }

    /// Takes over what an earlier run stored in the `row`. The consumer stands at `place`, with
    /// `done` beyond it.
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
        let listed = self.counts.iter().filter(|(_, count)| **count & LISTED != 0);
        self.suspects.extend(listed.map(|(seq, _)| *seq));
        if stored.below > place {
            self.suspects_below = stored.below;
        }
        self.below = self.below.max(stored.below);
        self.store();
    }

    /// Stores what changed. What does not fit stays in memory, and nothing new goes out.
    fn store(&mut self) {
        let counts = self.counts.iter().map(|(seq, count)| (*seq, *count));
        if let Some(row) = &mut self.row {
            let left_out = row.store(self.below, self.alone, counts);
            self.stored_below = left_out.unwrap_or(u64::MAX);
        }
    }

    /// The run ends in order: what is with workers is not held against it. Returns the rules, which
    /// may hold another queue: the caller drops them without a lock.
    pub(crate) fn end_run(&mut self) -> Rules {
        (self.below, self.alone) = (0, None);
        self.counts.retain(|_, count| {
            *count &= !LISTED;
            *count != 0
        });
        self.store();
        // Nothing is stored any more: the files may be another's.
        self.row = None;
        std::mem::take(&mut self.rules)
    }

    /// A seek has called everything off, and the row was cleared.
    pub(crate) fn clear(&mut self) {
        self.timers.clear();
        self.counts.clear();
        (self.below, self.alone, self.suspects_below) = (0, None, 0);
        self.suspects.clear();
        self.stored_below = u64::MAX;
        self.unflushed.clear();
    }

    /// Replaces the rules. Dead letters that another queue could not make durable are put in anew.
    pub(super) fn set_rules(&mut self, rules: Rules) -> Rules {
        self.unflushed.clear();
        std::mem::replace(&mut self.rules, rules)
    }

    /// The dead letter is in that queue, which could not make it durable.
    pub(super) fn note_unflushed(&mut self, seq: u64, queue: usize) {
        self.unflushed.insert(seq, queue);
    }

    /// Whether the dead letter is in that queue, and needs a flush alone.
    pub(super) fn is_put_into(&self, seq: u64, queue: usize) -> bool {
        self.unflushed.get(&seq) == Some(&queue)
    }

    pub(crate) fn has_dead_letters(&self) -> bool {
        self.rules.dead_letters.is_some()
    }

    /// The messages with a count.
    pub(crate) fn counted(&self) -> impl Iterator<Item = u64> + '_ {
        self.counts.keys().copied()
    }

    /// How often the message was handed out in vain.
    pub(crate) fn count(&self, seq: u64) -> u32 {
        self.counts.get(&seq).map_or(0, |count| count & !(REJECTED | LISTED))
    }

    /// Whether the message is handed out no more.
    pub(crate) fn is_spent(&self, seq: u64) -> bool {
        let Some(count) = self.counts.get(&seq) else {
            return false;
        };
        count & REJECTED != 0 || self.rules.max_attempts.is_some_and(|most| count & !LISTED >= most)
    }

    /// Whether the message may be handed out while `out` others are with workers.
    pub(crate) fn may_go(&self, seq: u64, out: usize) -> bool {
        let suspect_is_out = out > 0 && self.alone.is_some_and(|seq| self.is_suspect(seq));
        out == 0 || !self.is_suspect(seq) && !suspect_is_out
    }

    fn is_suspect(&self, seq: u64) -> bool {
        seq < self.suspects_below || self.suspects.contains(&seq)
    }

    /// Whether the count of a message that comes again is stored.
    pub(crate) fn is_stored(&self, seq: u64) -> bool {
        seq < self.stored_below
    }

    /// Whether the message at the cursor may be counted: the counts that there are fit into the
    /// row, or an earlier run handed it out, and its own count is stored.
    pub(crate) fn has_room(&self, next: u64) -> bool {
        let comes_again = self.is_suspect(next) || self.counts.contains_key(&next);
        self.stored_below == u64::MAX || comes_again && self.is_stored(next)
    }

    /// Stores that the message is handed out, before it is, while so many others are with workers.
    pub(crate) fn note_handed_out(&mut self, seq: u64, others: usize) {
        let is_alone = others == 0 || planted!(InnocentsBlamed);
        let (below, alone) = (self.below.max(seq + 1), is_alone.then_some(seq));
        if (below, alone) != (self.below, self.alone) {
            (self.below, self.alone) = (below, alone);
            self.store();
        }
    }

    /// As [`note_handed_out`](Self::note_handed_out), while messages below this one are left behind
    /// that were not.
    pub(crate) fn list_handed_out(&mut self, seq: u64, others: usize) {
        let alone = (others == 0).then_some(seq);
        let is_new = seq >= self.below && {
            let count = self.counts.entry(seq).or_default();
            let before = std::mem::replace(count, *count | LISTED);
            before != *count
        };
        if is_new || alone != self.alone {
            self.alone = alone;
            self.store();
        }
    }

    /// The message was given back: stores how often it was handed out in vain.
    pub(crate) fn note_back(&mut self, seq: u64, attempts: u32) {
        self.set_count(seq, attempts.min(LISTED - 1));
    }

    /// The message is handed out no more: stores that.
    pub(crate) fn note_rejected(&mut self, seq: u64, attempts: u32) {
        // (One that an earlier run rejected was counted then.)
        if self.counts.get(&seq).is_none_or(|count| count & REJECTED == 0) {
            self.rejections.push(seq);
        }
        let mark = if planted!(RejectionNotStored) { 0 } else { REJECTED };
        self.set_count(seq, attempts | mark);
    }

    fn set_count(&mut self, seq: u64, count: u32) {
        self.counts.insert(seq, count);
        self.alone = self.alone.filter(|alone| *alone != seq);
        self.store();
    }

    /// Messages are done. Their counts need no room any more.
    pub(crate) fn note_done(&mut self, first: u64, last: u64) {
        while let Some(seq) = self.unflushed.range(first..=last).next().map(|(seq, _)| *seq) {
            self.unflushed.remove(&seq);
        }
        let mut has_room = false;
        while let Some(seq) = self.counts.range(first..=last).next().map(|(seq, _)| *seq) {
            self.counts.remove(&seq);
            has_room = true;
        }
        if has_room && self.stored_below != u64::MAX {
            self.store();
        }
    }

    pub(crate) fn set_timer(&mut self, seq: u64, was: Option<Instant>, due: Option<Instant>) {
        if let Some(was) = was {
            self.timers.remove(&(was, seq));
        }
        if let Some(due) = due {
            self.timers.insert((due, seq));
        }
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| *due)
    }

    pub(crate) fn has_timers(&self) -> bool {
        !self.timers.is_empty()
    }

    /// The next message for which something was due by `now`.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<u64> {
        let (due, seq) = *self.timers.first()?;
        (due <= now).then(|| {
            self.timers.remove(&(due, seq));
            seq
        })
    }

    /// The delivery worker looks: it has to be notified of the next time anew.
    pub(crate) fn worker_looks(&mut self) {
        self.notified = None;
    }

    /// When the delivery worker is to look, if it was not notified of that already: at once, when
    /// there are `dead_letters`.
    pub(crate) fn time_to_notify(&mut self, now: Instant, dead_letters: usize) -> Option<Instant> {
        let next = if dead_letters > 0 { now } else { self.next_due()? };
        // Nobody may have been notified of one that is past: the worker may have ended.
        if self.notified.is_some_and(|notified| notified <= next && notified > now) {
            return None;
        }
        self.notified = Some(next);
        Some(next)
    }

    /// A rejection that is not counted yet.
    pub(crate) fn take_rejection(&mut self) -> Option<u64> {
        self.rejections.pop()
    }
}
