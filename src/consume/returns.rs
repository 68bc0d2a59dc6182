//! The ledger's side of failed deliveries: messages that come again, at once or after a delay, and
//! messages that are rejected.

use std::time::{Duration, Instant};

use crate::consume::ledger::{DeliveryState, Ledger, Open};
use crate::consume::redelivery_state::Redeliveries;
use crate::consume::step::DeliveryToken;
use crate::error::{Error, Gap, GapCause, Result};
use crate::storage::StorageFile;
use crate::threads::now;

/// So many messages that are due one look handles: less than a millisecond.
const MOST_AT_ONCE: usize = 250;

impl<F: StorageFile> Ledger<F> {
    /// The state of redelivery; the first call creates it.
    pub(crate) fn redelivery(&mut self) -> &mut Redeliveries<F> {
        self.redelivery.get_or_insert_with(Box::default)
    }

    /// Whether a read needs the time.
    fn needs_clock(&self) -> bool {
        self.redelivery.as_ref().is_some_and(|it| it.has_timers() || it.rules.lease.is_some())
    }

    /// Returns a message, which comes again after `delay`, or else by the rules. Returns false when
    /// no worker has it.
    pub(crate) fn give_back(&mut self, seq: u64, delay: Option<Duration>) -> bool {
        let Some(open) = self.open.get(&seq).filter(|open| open.state == DeliveryState::Out) else {
            return false;
        };
        let (attempts, mut wait) = (open.attempts, delay.unwrap_or_default());
        if let Some(redelivery) = &mut self.redelivery {
            redelivery.note_back(seq, attempts);
            if redelivery.is_spent(seq) {
                return self.reject(seq);
            }
            wait = delay.unwrap_or_else(|| redelivery.rules.delay(attempts));
        }
        if wait.is_zero() {
            self.put(seq, DeliveryState::Back, None);
        } else {
            // A time that overflows the clock means no end.
            self.put(seq, DeliveryState::Delayed, now().checked_add(wait));
        }
        true
    }

    /// Rejects an open message. Returns false when it is not open, or rejected already.
    pub(crate) fn reject(&mut self, seq: u64) -> bool {
        let Some(open) = self.open.get(&seq).filter(|open| open.state != DeliveryState::Rejected)
        else {
            return false;
        };
        if let Some(redelivery) = &mut self.redelivery {
            redelivery.note_rejected(seq, open.attempts);
        }
        self.put(seq, DeliveryState::Rejected, None);
        true
    }

    /// Rejects the returned messages that have used up their attempts by the current rules.
    pub(crate) fn reject_spent(&mut self) {
        let Some(redelivery) = &self.redelivery else {
            return;
        };
        let comes_again =
            |open: &Open| matches!(open.state, DeliveryState::Back | DeliveryState::Delayed);
        let is_spent =
            |(seq, open): &(&u64, &Open)| comes_again(open) && redelivery.is_spent(**seq);
        let spent: Vec<_> = self.open.iter().filter(is_spent).map(|(seq, _)| *seq).collect();
        for seq in spent {
            self.reject(seq);
        }
        check!(self.check());
    }

    /// Handles what is due by `now`: ends leases and delays, and retries dead letters. Leaves the
    /// rest of many for the next look, so that other threads get the consumer's lock meanwhile.
    pub(crate) fn tick(&mut self, now: Instant) {
        for _ in 0..MOST_AT_ONCE {
            let Some(seq) = self.redelivery.as_mut().and_then(|it| it.take_due(now)) else {
                break;
            };
            self.end_wait(seq);
        }
        check!(self.check());
    }

    /// Handles a message whose timer was taken: its lease, its delay, or the wait of its dead
    /// letter is over.
    fn end_wait(&mut self, seq: u64) {
        let Some(open) = self.open.get_mut(&seq) else {
            return;
        };
        open.due = None;
        match open.state {
            DeliveryState::Out => {
                self.give_back(seq, None);
            }
            DeliveryState::Delayed | DeliveryState::Back => {
                self.put(seq, DeliveryState::Back, None)
            }
            DeliveryState::Rejected => {
                self.rejected.insert(seq);
            }
        }
    }

    /// Handles what is due and returns the time, if a read needs the time.
    pub(crate) fn tick_if_needed(&mut self) -> Option<Instant> {
        let now = self.needs_clock().then(now)?;
        self.tick(now);
        Some(now)
    }

    /// Fails when the lease of the delivery has ended, and ends it if no look has yet. Another
    /// worker has, had or will get this message: the caller's lease is void.
    pub(crate) fn check_lease(&mut self, seq: u64, handed: DeliveryToken) -> Result<()> {
        if !handed.is_leased() {
            return Ok(());
        }
        let is_own =
            |open: &&Open| open.state == DeliveryState::Out && open.attempts == handed.attempts;
        let Some(due) = self.open.get(&seq).filter(is_own).map(|open| open.due) else {
            return Err(Error::Expired);
        };
        if due.is_none_or(|due| due > now()) {
            return Ok(());
        }
        self.redelivery().set_timer(seq, due, None);
        self.end_wait(seq);
        Err(Error::Expired)
    }

    /// How many rejected messages wait to go to another queue.
    pub(crate) fn pending_dead_letters(&self) -> usize {
        let go = self.redelivery.as_ref().is_some_and(|it| it.has_dead_letters());
        if go { self.rejected.len() } else { 0 }
    }

    /// Replaces the end of a lease that has not ended.
    pub(crate) fn extend(&mut self, seq: u64, due: Option<Instant>) {
        self.put(seq, DeliveryState::Out, due);
    }

    /// Takes the oldest rejected message to make its dead letter. The caller then calls
    /// [`dead_letter_failed`](Self::dead_letter_failed) or [`finish`](Self::finish).
    pub(crate) fn take_dead_letter(&mut self) -> Option<(u64, Open)> {
        let seq = self.rejected.pop_first()?;
        holds!(self.open.contains_key(&seq), "message {seq}, whose dead letter goes, is open");
        self.open.get(&seq).map(|open| (seq, *open))
    }

    /// Schedules the next attempt for the dead letter at `due`.
    pub(crate) fn dead_letter_failed(&mut self, seq: u64, due: Instant) {
        if self.open.get(&seq).is_some_and(|open| open.state == DeliveryState::Rejected) {
            self.put(seq, DeliveryState::Rejected, Some(due));
        }
    }

    /// Reports a rejected message that no other queue takes as a gap, and makes it done.
    pub(crate) fn report_rejected(&mut self) -> Option<Gap> {
        let rejected = self.rejected.first().filter(|_| self.pending_dead_letters() == 0);
        let seq = *self.unsendable.first().or(rejected)?;
        self.finish(seq);
        Some(Gap { first: seq, last: seq, cause: GapCause::Rejected })
    }

    /// Whether a read has a gap to report or a message to deliver that is not at the cursor.
    pub(crate) fn has_something(&self) -> bool {
        !self.returned.is_empty() || !self.stretches.is_empty() || self.has_rejected_to_report()
    }

    /// Whether the next read reports a rejected message as a gap, even when no message may be
    /// delivered.
    pub(crate) fn has_rejected_to_report(&self) -> bool {
        !self.unsendable.is_empty() || self.rejected.len() > self.pending_dead_letters()
    }

    /// Makes all postponed dead letters due now.
    pub(crate) fn dead_letters_at_once(&mut self) {
        let waits =
            |(_, open): &(&u64, &Open)| open.state == DeliveryState::Rejected && open.due.is_some();
        let waiting: Vec<_> = self.open.iter().filter(waits).map(|(seq, _)| *seq).collect();
        for seq in waiting {
            self.put(seq, DeliveryState::Rejected, None);
        }
    }

    /// Has a read report the message as a gap, for the other queue can never take it.
    pub(crate) fn dead_letter_refused(&mut self, seq: u64) {
        if self.open.get(&seq).is_some_and(|open| open.state == DeliveryState::Rejected) {
            self.unsendable.insert(seq);
        }
        check!(self.check());
    }

    /// Returns a rejected message whose record is gone: the next read reports the gap.
    pub(crate) fn dead_letter_lost(&mut self, seq: u64) {
        self.put(seq, DeliveryState::Back, None);
    }
}
