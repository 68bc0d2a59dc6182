//! What becomes of deliveries: they are acknowledged, given back or rejected, their leases end, and
//! dead letters go to another queue.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::commit::Core;
use crate::consume::consumer_state::{ConsumerState, LockedState};
use crate::consume::lane_choice::spots_of_counted;
use crate::consume::redelivery_state::{DeadLetters, Rules};
use crate::consume::slow::Done;
use crate::consume::step::DeliveryToken;
use crate::error::{Error, Gap, GapCause, Result};
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
    /// It is in the other queue, which could not make it durable.
    pub(crate) is_put: bool,
    epoch: u64,
}

/// A dead letter without its message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeadLetterStub {
    pub(crate) seq: u64,
    attempts: u32,
    epoch: u64,
}

/// The rejected messages of a consumer, and where they go.
pub(crate) type DeadLetterBatch = (Arc<dyn DeadLetters>, Vec<DeadLetter>);

/// So many dead letters, and about so many bytes of them, go at a time: they are copies, or keep
/// their segments.
const DEAD_LETTERS: usize = 64;
const DEAD_LETTER_BYTES: usize = if cfg!(test) { 64 << 10 } else { 16 << 20 };
/// A dead letter that could not go is tried again after this long, where no delay is set.
const TRY_AGAIN: Duration = Duration::from_secs(1);

impl<S: Storage> ConsumerState<S> {
    /// Acknowledges a delivery. Returns whether the place left a segment behind; `None` when the
    /// delivery was called off or is done already.
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

    /// As [`acknowledge`](Self::acknowledge). The caller has checked that it may.
    fn end_delivery(
        &self,
        locked: &mut LockedState<S>,
        core: &Core<S>,
        seq: u64,
        handed: DeliveryToken,
    ) -> Result<Option<bool>> {
        let before = match &mut locked.ledger {
            Some(ledger) if ledger.epoch == handed.epoch || planted!(EpochNotAsked) => {
                if let Err(expired) = ledger.check_lease(seq, handed) {
                    self.note_change(locked, core);
                    return Err(expired);
                }
                let before = ledger.lowest_segment_end();
                if !ledger.finish(seq) {
                    return Ok(None);
                }
                before
            }
            _ => return Ok(None),
        };
        Ok(Some(self.store_progress(locked, core, before, Done::Message)))
    }

    /// Gives a delivery back, whose message comes again: after `delay`, or else as the rules say.
    /// False when the delivery was called off.
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
        // One that comes too late may have found that its lease has ended.
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

    /// A message is handed out no more. False when its delivery was called off or is done already.
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

    /// Has the lease of a delivery end `by` from now. One without a lease, or that was called off,
    /// stays as it is.
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
        if handed.is_leased() {
            if checked.is_ok() {
                // A time that overflows the clock is for ever.
                ledger.extend(seq, now().checked_add(by));
            }
            // Other leases may have ended, too.
            self.note_change(locked, core);
        }
        checked
    }

    /// Sets when messages come again. Returns the rules of before, which may hold another queue:
    /// the caller drops them without a lock.
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

    /// Takes over the row of attempts, if there is one for this consumer that is not taken over.
    fn take_up_attempts(&self, core: &Core<S>, locked: &mut LockedState<S>) -> Result<()> {
        let (place, has_lanes) = (locked.stored.seq, locked.lanes.is_some());
        let ledger = self.ledger(locked);
        if !ledger.redelivery().has_row() {
            self.has_redelivery.store(true, Ordering::Release);
            match core.index.attempts_row(self.row, self.name()) {
                Some(row) => {
                    // Before anything changes. (Without lanes they come in their order.)
                    let is_left = |seq: &u64| *seq >= place && !ledger.is_passed(*seq);
                    let counted = row.1.counts.iter().map(|(seq, _)| *seq);
                    let counted = counted.filter(|seq| has_lanes && is_left(seq));
                    let counted = spots_of_counted(core, counted)?;
                    ledger.take_up(row, place);
                    locked.take_back(core, counted);
                }
                None => events::not_counted(core.storage.path(), self.name()),
            }
        }
        Ok(())
    }

    /// Does what is due: the delivery worker calls it.
    pub(crate) fn look_at_deliveries(&self, core: &Core<S>) {
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        if let Some(ledger) = &mut locked.ledger
            && let Some(redelivery) = &mut ledger.redelivery
        {
            redelivery.worker_looks();
            ledger.tick(now());
            self.note_change(locked, core);
        }
    }

    /// When the delivery worker is to look next, if it does not know yet.
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

    /// The rejected messages, if they go to another queue, as `message` makes them.
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
                    // The record is looked for again, checked.
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

    /// Dead letters that were to be tried again later are tried now: the queue is being closed.
    pub(crate) fn dead_letters_at_once(&self) {
        let mut locked = self.locked.lock();
        if let Some(ledger) = &mut locked.ledger {
            ledger.dead_letters_at_once();
        }
    }

    /// A dead letter is durable in the other queue: its message is done. True when the place left a
    /// segment behind.
    pub(crate) fn finish_dead_letter(&self, core: &Core<S>, dead_letter: DeadLetterStub) -> bool {
        let DeadLetterStub { seq, epoch, .. } = dead_letter;
        let handed = DeliveryToken::new(0, epoch, 0);
        let mut locked = self.locked.lock();
        // A close lets dead letters under way end, as long as the epoch is theirs: else they would
        // go twice.
        let may = locked.exists();
        may && matches!(self.end_delivery(&mut locked, core, seq, handed), Ok(Some(true)))
    }

    /// A dead letter could not go: it is tried again. `put_into` is the queue that took it and
    /// could not make it durable.
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
            // (A delay that overflows the clock is for messages that come again.)
            ledger.dead_letter_failed(seq, now.checked_add(delay).unwrap_or(now + TRY_AGAIN));
        }
    }

    /// A dead letter can never go: the next read reports its message as a gap.
    pub(crate) fn dead_letter_refused(&self, core: &Core<S>, dead_letter: DeadLetterStub) {
        let DeadLetterStub { seq, epoch, .. } = dead_letter;
        let mut locked = self.locked.lock();
        let locked = &mut *locked;
        if let Some(ledger) = locked.ledger.as_mut().filter(|ledger| ledger.epoch == epoch) {
            ledger.dead_letter_refused(seq);
        }
        self.note_change(locked, core);
    }

    /// Where the consumer's rejected messages go, or are about to go. Takes no lock that is held
    /// for long.
    pub(crate) fn dead_letters(&self) -> Vec<Arc<dyn DeadLetters>> {
        self.leads_to.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Rejected messages are about to go there.
    pub(crate) fn lead_to(&self, queue: &Arc<dyn DeadLetters>) {
        self.leads_to.lock().push(Arc::downgrade(queue));
    }

    /// They go there no more.
    pub(crate) fn lead_no_more_to(&self, queue: &Arc<dyn DeadLetters>) {
        let mut leads_to = self.leads_to.lock();
        let queue = Arc::downgrade(queue);
        if let Some(at) = leads_to.iter().position(|other| other.ptr_eq(&queue)) {
            leads_to.swap_remove(at);
        }
    }

    /// After messages were given back or rejected, or a lease has ended.
    pub(super) fn note_change(&self, locked: &mut LockedState<S>, core: &Core<S>) {
        if let Some(redelivery) = locked.ledger.as_mut().and_then(|it| it.redelivery.as_mut()) {
            while let Some(seq) = redelivery.take_rejection() {
                core.count_rejected(&Gap { first: seq, last: seq, cause: GapCause::Rejected });
            }
        }
        self.count_in_flight(locked);
        locked.note_ready(core);
    }
}

impl DeadLetter {
    /// What remains of it once the message is released.
    pub(crate) fn stub(self) -> DeadLetterStub {
        DeadLetterStub { seq: self.seq, attempts: self.attempts, epoch: self.epoch }
    }
}
