//! Redelivery rules, and dead letters: rejected messages that move to another queue.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Engine;
use super::consumer_table::Consumers;
use crate::commit::Core;
use crate::consume::consumer_state::ConsumerState;
use crate::consume::deliveries::DeadLetter;
use crate::consume::redelivery_state::{DeadLetters, Rules};
use crate::consume::step::DeliveryToken;
use crate::engine::enqueue::is_busy;
use crate::engine::reading::message;
use crate::error::{Error, Result};
use crate::events;
use crate::format::Origin;
use crate::storage::Storage;
use crate::threads::now;
use crate::threads::ranks::check_foreign_code;

/// After this time a close starts to move no more dead letters.
const LAST_DEAD_LETTERS: Duration = Duration::from_secs(5);

/// Returns all queues that dead letters sent to `first` may reach, over any number of queues.
fn reached_from(first: &Arc<dyn DeadLetters>) -> Vec<Arc<dyn DeadLetters>> {
    let mut found = vec![Arc::clone(first)];
    let mut at = 0;
    while let Some(queue) = found.get(at) {
        for next in queue.dead_letters() {
            if found.iter().all(|known| known.id() != next.id()) {
                found.push(next);
            }
        }
        at += 1;
    }
    found
}

impl<S: Storage> Engine<S> {
    /// Returns a number that identifies the open queue within the process.
    pub(crate) fn id(&self) -> usize {
        std::ptr::from_ref(&*self.core).addr()
    }

    /// Returns the dead-letter queues of all consumers.
    pub(crate) fn dead_letters(&self) -> Vec<Arc<dyn DeadLetters>> {
        if self.core.forked() {
            // A lock that another of the parent's threads held at the fork stays locked forever.
            return Vec::new();
        }
        let consumers = self.consumers.all();
        consumers.iter().flat_map(|consumer| consumer.dead_letters()).collect()
    }

    /// Sets the consumer's redelivery rules.
    pub(crate) fn set_redelivery(&self, consumer: &ConsumerState<S>, rules: Rules) -> Result<()> {
        let _events = events::at_end();
        self.core.check_not_forked()?;
        let dead = rules.dead_letters.clone();
        if let Some(dead) = &dead {
            dead.check()?;
            // Register it before the check: of two threads that together close a circle, at least
            // one then sees the other's entry.
            consumer.lead_to(dead);
        }
        let checked = dead.as_ref().map_or(Ok(()), |dead| self.check_for_circle(dead));
        let before = checked.and_then(|()| consumer.set_redelivery(&self.core, rules));
        let left = before.as_ref().map_or(&dead, |before| &before.dead_letters);
        if let Some(left) = left {
            consumer.lead_no_more_to(left);
        }
        // Drop it without a lock: it may be the last reference to a queue, whose drop closes that
        // queue.
        drop(before?);
        self.arm(consumer);
        self.core.wake_readers(u64::MAX);
        Ok(())
    }

    /// Returns an error if dead letters sent to `dead` could come back to this queue.
    fn check_for_circle(&self, dead: &Arc<dyn DeadLetters>) -> Result<()> {
        let reached = reached_from(dead);
        if reached.iter().all(|queue| queue.id() != self.id()) {
            return Ok(());
        }
        let reason = if dead.id() == self.id() {
            "a queue cannot be its own: rejected messages would come again"
        } else {
            "the dead letters of that queue come back to this one: a circle"
        };
        let path = self.core.storage.path();
        Err(Error::invalid_argument(path, "queue for dead letters", reason))
    }

    /// Tells the delivery worker when the consumer's next lease or delay ends, if it does not know
    /// yet.
    #[inline]
    pub(crate) fn arm(&self, consumer: &ConsumerState<S>) {
        if let Some(due) = consumer.time_to_notify()
            && !self.core.delivery_worker.request(|wanted| wanted.look_at_deliveries(due))
            && due <= now()
        {
            self.consumers.look_at_deliveries(&self.core);
        }
    }

    /// Rejects a message: the consumer will not receive it again.
    pub(crate) fn reject(
        &self,
        consumer: &ConsumerState<S>,
        seq: u64,
        handed: DeliveryToken,
    ) -> Result<()> {
        let _events = events::at_end();
        if consumer.reject(&self.core, seq, handed)? {
            self.arm(consumer);
            self.core.wake_reader(consumer.row);
        }
        Ok(())
    }

    /// Makes the lease of a delivery end `by` from now.
    pub(crate) fn extend(
        &self,
        consumer: &ConsumerState<S>,
        seq: u64,
        handed: DeliveryToken,
        by: Duration,
    ) -> Result<()> {
        consumer.extend(&self.core, seq, handed, by)?;
        self.arm(consumer);
        Ok(())
    }
}

impl<S: Storage> Consumers<S> {
    pub(super) fn all(&self) -> Vec<Arc<ConsumerState<S>>> {
        self.by_name.lock().values().cloned().collect()
    }

    /// Ends leases and delays that are over, and has dead letters moved. The caller holds no lock.
    pub(crate) fn look_at_deliveries(&self, core: &Core<S>) {
        let mut dead_letters = 0;
        for consumer in self.all() {
            let (due, rejected) = consumer.look_at_deliveries(core);
            dead_letters += rejected;
            Self::look_again(core, &consumer, due);
        }
        if dead_letters > 0 && !core.carrier.request(|wanted| wanted.look_at_deliveries(now())) {
            self.carry_dead_letters(core);
        }
    }

    /// Moves dead letters. The caller holds no lock.
    pub(super) fn carry_dead_letters(&self, core: &Core<S>) {
        let mut busy = BTreeSet::new();
        for consumer in self.all() {
            self.post(core, &consumer, &mut busy);
            Self::look_again(core, &consumer, consumer.time_to_notify());
        }
    }

    /// Has the delivery worker look when the next lease or delay is `due`, and wakes a reader if
    /// there is something to read now.
    fn look_again(core: &Core<S>, consumer: &ConsumerState<S>, due: Option<Instant>) {
        if let Some(due) = due {
            core.delivery_worker.request(|wanted| wanted.look_at_deliveries(due));
        }
        if consumer.with_locked(|locked| locked.has_waiting(core)) {
            core.wake_reader(consumer.row);
        }
    }

    /// Moves the dead letters that can go before a close, for at most [`LAST_DEAD_LETTERS`].
    pub(super) fn send_last_dead_letters(&self, core: &Core<S>) {
        let began = now();
        for consumer in self.all() {
            consumer.dead_letters_at_once();
        }
        while self.all().iter().any(|consumer| self.post(core, consumer, &mut BTreeSet::new()) > 0)
            && now().saturating_duration_since(began) < LAST_DEAD_LETTERS
        {}
    }

    /// Enqueues rejected messages in the dead-letter queue, flushes it, and only then acknowledges
    /// them here. If the flush failed, the messages are already in that queue and only need another
    /// flush; to enqueue them again would leave more copies there. Returns how many went, or can
    /// never go. Adds queues whose lock was taken for too long to `busy`, and enqueues nothing more
    /// there. The caller holds no lock.
    #[cold]
    #[inline(never)]
    fn post(
        &self,
        core: &Core<S>,
        consumer: &ConsumerState<S>,
        busy: &mut BTreeSet<usize>,
    ) -> usize {
        // Begin before the check whether the queue is closed: a close waits until this is dropped.
        let carrying = self.carriers.begin();
        let Some((dead, dead_letters)) = consumer.take_dead_letters(core, message) else {
            return 0;
        };
        let (mut sent, mut too_large, mut refused) = (BTreeSet::new(), BTreeSet::new(), None);
        let mut unflushed = BTreeSet::new();
        let mut takes_more = !busy.contains(&dead.id());
        {
            // Hold events back: a subscriber could end this thread while it carries dead letters.
            check_foreign_code();
            let _quiet = events::hold();
            for DeadLetter { seq, attempts, message, is_put, .. } in &dead_letters {
                if *is_put {
                    sent.insert(*seq);
                    continue;
                }
                if !takes_more {
                    continue;
                }
                let origin = Origin {
                    queue_id: core.index.queue_id,
                    seq: *seq,
                    attempts: *attempts,
                    sum: 0,
                };
                match dead.put(message, &origin) {
                    Ok(()) => {
                        sent.insert(*seq);
                    }
                    Err(error) => {
                        let never_goes = matches!(error, Error::MessageTooLarge { .. });
                        if is_busy(&error) {
                            busy.insert(dead.id());
                        }
                        refused = Some(error);
                        takes_more = never_goes;
                        too_large.extend(never_goes.then_some(*seq));
                    }
                }
            }
            if !sent.is_empty()
                && !planted!(DeadLettersNotFlushed)
                && let Err(error) = dead.flush()
            {
                unflushed = std::mem::take(&mut sent);
                refused = Some(error);
            }
        }
        let gone = sent.len() + too_large.len();
        if let Some(error) = refused {
            let left = dead_letters.len() - gone;
            events::dead_letters_stay(core.storage.path(), consumer.name(), left, &error);
        }
        let mut crossed = false;
        for dead_letter in dead_letters {
            // Dropping the message releases its segment, which may be reclaimed then.
            let dead_letter = dead_letter.stub();
            if sent.contains(&dead_letter.seq) {
                crossed |= consumer.finish_dead_letter(core, dead_letter);
            } else if too_large.contains(&dead_letter.seq) {
                consumer.dead_letter_refused(core, dead_letter);
            } else {
                let put_into = unflushed.contains(&dead_letter.seq).then(|| dead.id());
                consumer.dead_letter_failed(dead_letter, put_into);
            }
        }
        drop(carrying);
        if crossed && core.drain_passed() {
            // A failed sync poisons the queue: the next call that writes returns the error.
            let _ = core.reclaim_and_wake();
        }
        // If this is the last reference to the other queue, its drop closes that queue here,
        // without a lock.
        drop(dead);
        gone
    }
}
