//! Ends deliveries: acknowledges, returns or rejects them, ends their leases, and takes out dead
//! letters for another queue.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::commit::Core;
use crate::consume::consumer_state::{ConsumerState, LockedState};
use crate::consume::ledger::Ledger;
use crate::consume::redelivery_state::{DeadLetters, Rules};
use crate::consume::slow::Done;
use crate::consume::step::DeliveryToken;
use crate::error::{Error, Result};
use crate::events;
use crate::format::Spot;
use crate::message::Message;
use crate::read::{Cursor, Record};
use crate::storage::Storage;
use crate::threads::now;

/// A rejected message on its way to another queue.
#[derive(Debug)]
pub(crate) struct DeadLetter {
    pub(crate) seq: u64,
    pub(crate) attempts: u32,
    pub(crate) message: Message,
    /// The other queue took it but could not flush it.
    pub(crate) is_put: bool,
    epoch: u64,
}

/// Identifies a dead letter after its message is released.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeadLetterStub {
    pub(crate) seq: u64,
    attempts: u32,
    epoch: u64,
}

/// Rejected messages of a consumer, and the queue that is to take them.
pub(crate) type DeadLetterBatch = (Arc<dyn DeadLetters>, Vec<DeadLetter>);

/// The most dead letters, and about the most bytes of them, in one batch: they are copies, or keep
/// their segments from being reclaimed.
const DEAD_LETTERS: usize = 64;
const DEAD_LETTER_BYTES: usize = if cfg!(test) { 64 << 10 } else { 16 << 20 };
/// The retry time of a dead letter that the other queue did not take, where no backoff is set.
const TRY_AGAIN: Duration = Duration::from_secs(1);

impl<S: Storage> ConsumerState<S> {
    /// Acknowledges a delivery. Returns whether the place left a segment; `None` when the delivery
    /// is void or is done already.
    pub(crate) fn acknowledge(
        &self,
        core: &Core<S>,
        seq: u64,
        handed: DeliveryToken,
    ) -> Result<Option<bool>> {
        core.check_readable()?;
        let mut locked = self.locked.lock();
        locked.check(core, self)?;
        self.end_delivery(&mut locked, core, seq, handed)
    }

    /// Acknowledges a delivery under the lock. The caller has checked that the consumer exists.
    fn end_delivery(
        &self,
        locked: &mut LockedState<S>,
        core: &Core<S>,
        seq: u64,
        handed: DeliveryToken,
    ) -> Result<Option<bool>> {
        let before = locked.ledger.as_ref().and_then(|ledger| ledger.lowest_segment_end());
        if !self.finish_delivery(locked, core, seq, handed)? {
            return Ok(None);
        }
        Ok(Some(self.store_progress(locked, core, before, Done::Messages(1))))
    }

    /// Makes a delivered message done; the caller stores that. Returns false when the delivery is
    /// void or done already.
    #[inline(always)]
    fn finish_delivery(
        &self,
        locked: &mut LockedState<S>,
        core: &Core<S>,
        seq: u64,
        handed: DeliveryToken,
    ) -> Result<bool> {
        match &mut locked.ledger {
            Some(ledger) if ledger.epoch == handed.epoch || planted!(EpochNotAsked) => {
                if let Err(expired) = ledger.check_lease(seq, handed) {
                    self.note_change(locked, core);
                    return Err(expired);
                }
                Ok(ledger.finish(seq))
            }
            _ => Ok(false),
        }
    }

    /// Acknowledges deliveries, and stores the place and the ranges once. Returns how many it
    /// acknowledged, whether the place left a segment, and the first refusal.
    pub(crate) fn acknowledge_batch(
        &self,
        core: &Core<S>,
        deliveries: &[(u64, DeliveryToken)],
    ) -> Result<(usize, bool, Result<()>)> {
        core.check_readable()?;
        let mut locked = self.locked.lock();
        locked.check(core, self)?;
        let before = locked.ledger.as_ref().and_then(|ledger| ledger.lowest_segment_end());
        let (mut done, mut outcome) = (0, Ok(()));
        for (seq, handed) in deliveries {
            match self.finish_delivery(&mut locked, core, *seq, *handed) {
                Ok(is_done) => done += usize::from(is_done),
                Err(refused) => outcome = outcome.and(Err(refused)),
            }
        }
        let has_done = if done == 0 { Done::Nothing } else { Done::Messages(done) };
        let crossed = self.store_progress(&mut locked, core, before, has_done);
        Ok((done, crossed, outcome))
    }

    /// Returns a delivery, whose message comes again: after `delay`, or else by the rules. Returns
    /// false when the delivery is void.
    pub(crate) fn give_back(
        &self,
        core: &Core<S>,
        seq: u64,
        handed: DeliveryToken,
        delay: Option<Duration>,
    ) -> bool {
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        let exists = locked.exists();
        let Some(ledger) = &mut locked.ledger else {
            return false;
        };
        if delay.is_some_and(|delay| !delay.is_zero()) {
            ledger.redelivery();
            self.has_redelivery.store(true, Ordering::Release);
        }
        let is_given_back = ledger.epoch == handed.epoch
            && exists
            && ledger.check_lease(seq, handed).is_ok()
            && ledger.give_back(seq, delay);
        // A call that comes too late may have ended the lease.
        if is_given_back || handed.is_leased() {
            self.note_change(locked, core);
        }
        is_given_back
    }

    pub(crate) fn set_max_in_flight(&self, core: &Core<S>, limit: Option<u32>) -> Result<()> {
        core.check_readable()?;
        if limit == Some(0) {
            let reason = "0 would hand out nothing: at least 1, or None for no limit";
            return Err(Error::invalid_argument(core.storage.path(), "messages in flight", reason));
        }
        let mut locked = self.locked.lock();
        locked.check(core, self)?;
        self.ledger(&mut locked).limit = limit;
        locked.note_ready(core);
        Ok(())
    }

    /// Rejects a message. Returns false when its delivery is void or is done already.
    pub(crate) fn reject(&self, core: &Core<S>, seq: u64, handed: DeliveryToken) -> Result<bool> {
        core.check_readable()?;
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        locked.check(core, self)?;
        let Some(ledger) = locked.ledger.as_mut().filter(|it| it.epoch == handed.epoch) else {
            return Ok(false);
        };
        if let Err(expired) = ledger.check_lease(seq, handed) {
            self.note_change(locked, core);
            return Err(expired);
        }
        self.take_up_attempts(core, locked)?;
        let is_rejected = locked.ledger.as_mut().is_some_and(|ledger| ledger.reject(seq));
        self.note_change(locked, core);
        Ok(is_rejected)
    }

    /// Moves the end of a delivery's lease to `by` from now. Changes nothing if the delivery has no
    /// lease or is void.
    pub(crate) fn extend(
        &self,
        core: &Core<S>,
        seq: u64,
        handed: DeliveryToken,
        by: Duration,
    ) -> Result<()> {
        core.check_readable()?;
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        locked.check(core, self)?;
        let Some(ledger) = locked.ledger.as_mut().filter(|it| it.epoch == handed.epoch) else {
            return Ok(());
        };
        let checked = ledger.check_lease(seq, handed);
        if checked.is_ok() && handed.is_leased() {
            // A time that overflows the clock means no end.
            ledger.extend(seq, now().checked_add(by));
        }
        self.note_change(locked, core);
        checked
    }

    /// Sets the redelivery rules. Returns the previous rules, which may hold another queue: the
    /// caller drops them without holding a lock.
    pub(crate) fn set_redelivery(&self, core: &Core<S>, rules: Rules) -> Result<Rules> {
        core.check_readable()?;
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        locked.check(core, self)?;
        self.take_up_attempts(core, locked)?;
        let ledger = self.ledger(locked);
        let before = ledger.redelivery().set_rules(rules);
        ledger.reject_spent();
        self.note_change(locked, core);
        Ok(before)
    }

    /// Returns the queue that takes the consumer's dead letters now.
    pub(crate) fn dead_letter_queue(&self) -> Option<Arc<dyn DeadLetters>> {
        self.with_locked(|locked| {
            let redelivery = locked.ledger.as_ref()?.redelivery.as_ref()?;
            redelivery.rules.dead_letters.clone()
        })
    }

    /// Loads this consumer's row of attempts from the index, unless that was done before.
    fn take_up_attempts(&self, core: &Core<S>, locked: &mut LockedState<S>) -> Result<()> {
        let place = self.seq();
        let ledger = self.ledger(locked);
        if !ledger.redelivery().has_row() {
            self.has_redelivery.store(true, Ordering::Release);
            match core.index.attempts_row(self.row, self.name()) {
                Some((row, stored)) => {
                    let Ledger { redelivery, done, .. } = ledger;
                    redelivery.get_or_insert_default().take_up(row, stored, place, done);
                }
                None => events::not_counted(core.storage.path(), self.name()),
            }
        }
        Ok(())
    }

    /// Ends the leases and delays that are due; the delivery worker calls this. Returns when it is
    /// to look next, and how many dead letters wait.
    pub(crate) fn look_at_deliveries(&self, core: &Core<S>) -> (Option<Instant>, usize) {
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        let ledger = locked.ledger.as_mut().filter(|ledger| ledger.redelivery.is_some());
        let Some(ledger) = ledger else { return (None, 0) };
        ledger.redelivery().worker_looks();
        ledger.tick(now());
        let due = ledger.redelivery().time_to_notify(now(), 0);
        let dead_letters = ledger.pending_dead_letters();
        self.note_change(locked, core);
        (due, dead_letters)
    }

    /// When the delivery worker is to look next; `None` if it was notified already.
    pub(crate) fn time_to_notify(&self) -> Option<Instant> {
        if !self.has_redelivery.load(Ordering::Acquire) {
            return None;
        }
        let mut locked = self.locked.lock();
        let ledger = locked.ledger.as_mut()?;
        let dead_letters = ledger.pending_dead_letters();
        ledger.redelivery.as_mut()?.time_to_notify(now(), dead_letters)
    }

    /// When the next lease or delay ends.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        if !self.has_redelivery.load(Ordering::Acquire) {
            return None;
        }
        let locked = self.locked.lock();
        locked.ledger.as_ref()?.redelivery.as_ref()?.next_due()
    }

    /// Takes a batch of rejected messages, converted by `message`, if another queue is to take
    /// them.
    pub(crate) fn take_dead_letters(
        &self,
        core: &Core<S>,
        message: impl Fn(&mut Cursor<S::File>, Record) -> Option<Message>,
    ) -> Option<DeadLetterBatch> {
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        let ledger = locked.ledger.as_mut().filter(|ledger| ledger.pending_dead_letters() > 0)?;
        let other_queue = ledger.redelivery().rules.dead_letters.clone()?;
        core.check_readable().ok()?;
        let (mut dead_letters, mut bytes) = (Vec::new(), 0);
        while dead_letters.len() < DEAD_LETTERS
            && bytes < DEAD_LETTER_BYTES
            && let Some((seq, open)) = ledger.take_dead_letter()
        {
            ledger.again.move_to(Spot { position: open.position, seq });
            let found = loop {
                match ledger.again.find(core) {
                    // The next round finds the record again and verifies its checksum first.
                    Ok(Some(record)) => {
                        if let Some(message) = message(&mut ledger.again, record) {
                            break Ok(message);
                        }
                    }
                    Ok(None) | Err(Error::Gap(_)) => break Err(true),
                    Err(_) => break Err(false),
                }
            };
            match found {
                Ok(message) => {
                    bytes += message.len();
                    let is_put = ledger.redelivery().is_put_into(seq, other_queue.id());
                    dead_letters.push(DeadLetter {
                        seq,
                        attempts: open.attempts,
                        message,
                        is_put,
                        epoch: ledger.epoch,
                    });
                }
                Err(true) => ledger.dead_letter_lost(seq),
                Err(false) => ledger.dead_letter_failed(seq, now() + TRY_AGAIN),
            }
        }
        ledger.again.release();
        self.note_change(locked, core);
        Some((other_queue, dead_letters))
    }

    /// Makes postponed dead letters due now, because the queue is being closed.
    pub(crate) fn dead_letters_at_once(&self) {
        let mut locked = self.locked.lock();
        if let Some(ledger) = &mut locked.ledger {
            ledger.dead_letters_at_once();
        }
    }

    /// Makes a message done whose dead letter is durable in the other queue. Returns whether the
    /// place left a segment.
    pub(crate) fn finish_dead_letter(&self, core: &Core<S>, dead_letter: DeadLetterStub) -> bool {
        let DeadLetterStub { seq, epoch, .. } = dead_letter;
        let handed = DeliveryToken::new(0, epoch, 0);
        let mut locked = self.locked.lock();
        // No check that the queue is open: a dead letter under way while the queue closes must end
        // here as long as its epoch is current, or it would be sent twice.
        let may = locked.exists();
        may && matches!(self.end_delivery(&mut locked, core, seq, handed), Ok(Some(true)))
    }

    /// Schedules another attempt for a dead letter. `put_into` is the queue that took it but could
    /// not flush it.
    pub(crate) fn dead_letter_failed(&self, dead_letter: DeadLetterStub, put_into: Option<usize>) {
        let DeadLetterStub { seq, attempts, epoch } = dead_letter;
        let mut locked = self.locked.lock();
        if let Some(ledger) = locked.ledger.as_mut().filter(|ledger| ledger.epoch == epoch) {
            if let Some(queue) = put_into {
                ledger.redelivery().note_unflushed(seq, queue);
            }
            let delay = ledger.redelivery().rules.delay(attempts);
            let delay = if delay.is_zero() { TRY_AGAIN } else { delay };
            let now = now();
            // (A backoff may overflow the clock; a dead letter then uses the default retry time.)
            ledger.dead_letter_failed(seq, now.checked_add(delay).unwrap_or(now + TRY_AGAIN));
        }
    }

    /// Has the next read report a gap for a dead letter that the other queue can never take.
    pub(crate) fn dead_letter_refused(&self, core: &Core<S>, dead_letter: DeadLetterStub) {
        let DeadLetterStub { seq, epoch, .. } = dead_letter;
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        if let Some(ledger) = locked.ledger.as_mut().filter(|ledger| ledger.epoch == epoch) {
            ledger.dead_letter_refused(seq);
        }
        self.note_change(locked, core);
    }

    /// The queues that take, or are about to take, the consumer's rejected messages. Takes no lock
    /// that any thread holds for long.
    pub(crate) fn dead_letters(&self) -> Vec<Arc<dyn DeadLetters>> {
        self.leads_to.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Registers `queue` before the consumer's rejected messages go there.
    pub(crate) fn lead_to(&self, queue: &Arc<dyn DeadLetters>) {
        self.leads_to.lock().push(Arc::downgrade(queue));
    }

    /// Removes one registration of `queue`.
    pub(crate) fn lead_no_more_to(&self, queue: &Arc<dyn DeadLetters>) {
        let mut leads_to = self.leads_to.lock();
        let queue = Arc::downgrade(queue);
        if let Some(at) = leads_to.iter().position(|other| other.ptr_eq(&queue)) {
            leads_to.swap_remove(at);
        }
    }
}

impl DeadLetter {
    /// Releases the message and keeps what identifies it.
    pub(crate) fn stub(self) -> DeadLetterStub {
        DeadLetterStub { seq: self.seq, attempts: self.attempts, epoch: self.epoch }
    }
}
