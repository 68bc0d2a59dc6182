//! Reads, deliveries and acknowledgements, and the flushes and reclaiming that follow them.

use std::time::Duration;

use super::{Engine, unboxed};
use crate::consume::consumer_state::{ConsumerState, LockedState, reported};
use crate::consume::step::{BeginsDefault, Deliver, DeliveryToken, Read, Step};
use crate::error::{Error, Result};
use crate::events;
use crate::read::Check;
use crate::storage::Storage;
use crate::threads::MutexGuard;

impl<S: Storage> Engine<S> {
    /// Performs one read by a consumer. Then drains segments that all consumers have passed, and
    /// flushes if due.
    #[inline(always)]
    pub(crate) fn read<D: Deliver<S>>(
        &self,
        consumer: &ConsumerState<S>,
        what: Read,
        check: Check,
        delivery: D,
    ) -> Result<Option<D::Delivered>> {
        self.read_boxed(consumer, what, check, delivery).map_err(unboxed)
    }

    /// Performs one read by a consumer, with the error boxed, so that the result stays small (see
    /// [`read`](Self::read)).
    #[inline(always)]
    pub(crate) fn read_boxed<D: Deliver<S>>(
        &self,
        consumer: &ConsumerState<S>,
        what: Read,
        check: Check,
        delivery: D,
    ) -> Result<Option<D::Delivered>, Box<Error>> {
        self.read_with(consumer, what, check, delivery, Some(self))
    }

    /// Performs one read for a waiting call, which does not create a removed default consumer again
    /// (see [`read`](Self::read)).
    #[inline(always)]
    pub(crate) fn read_awaited<D: Deliver<S>>(
        &self,
        consumer: &ConsumerState<S>,
        what: Read,
        delivery: D,
    ) -> Result<Option<D::Delivered>> {
        self.read_with(consumer, what, Check::Now, delivery, None).map_err(unboxed)
    }

    /// Performs one read. `if_gone` creates the default consumer if it does not exist.
    #[inline(always)]
    fn read_with<D: Deliver<S>>(
        &self,
        consumer: &ConsumerState<S>,
        what: Read,
        check: Check,
        mut delivery: D,
        if_gone: Option<&dyn BeginsDefault>,
    ) -> Result<Option<D::Delivered>, Box<Error>> {
        let _events = events::at_end();
        let core = &*self.core;
        core.check_readable()?;
        let mut locked = consumer.locked.lock();
        let quick = consumer.step_quickly(&mut locked, core, what, check, &mut delivery);
        let Some((delivered, moved)) = quick else {
            return self.read_slowly(consumer, locked, what, check, delivery, if_gone);
        };
        drop(locked);
        if moved && self.options.flush_every_ops.is_some() {
            // As in `after_reads`: the message is returned whatever becomes of the flush.
            let _ = self.count_read(1);
        }
        Ok(Some(delivered))
    }

    /// Goes on with a read that the view alone could not do. Then drains segments, and flushes if
    /// due.
    #[inline(never)]
    fn read_slowly<D: Deliver<S>>(
        &self,
        consumer: &ConsumerState<S>,
        locked: MutexGuard<'_, LockedState<S>>,
        what: Read,
        check: Check,
        delivery: D,
        if_gone: Option<&dyn BeginsDefault>,
    ) -> Result<Option<D::Delivered>, Box<Error>> {
        let step = consumer.step(locked, &self.core, what, check, delivery, if_gone);
        self.after_reads(consumer, step, 1)
    }

    /// Takes up to `max` messages (see [`ConsumerState::take_batch`]). Returns how many.
    pub(crate) fn take_batch<D: Deliver<S>>(
        &self,
        consumer: &ConsumerState<S>,
        max: usize,
        check: Check,
        delivery: D,
    ) -> Result<usize> {
        let _events = events::at_end();
        let step = consumer.take_batch(&self.core, max, check, delivery, self);
        let taken = step.outcome.as_ref().map_or(0, |taken| taken.unwrap_or(0));
        self.after_reads(consumer, step, taken as u64).map_err(|error| *error)?;
        Ok(taken)
    }

    /// Drains segments after so many reads, and flushes if due.
    fn after_reads<R>(
        &self,
        consumer: &ConsumerState<S>,
        step: Step<R>,
        reads: u64,
    ) -> Result<Option<R>, Box<Error>> {
        if step.crossed {
            self.crossed(consumer);
        }
        if step.moved
            && self.options.flush_every_ops.is_some()
            && let Err(error) = self.count_read(reads)
            && !matches!(step.outcome, Ok(Some(_)))
        {
            // To return the error would lose the message that was taken, so return the message. The
            // failed flush has poisoned the queue, and the next call that writes returns the error.
            return Err(Box::new(error));
        }
        step.outcome
    }

    /// Counts so many reads, and flushes if they complete the number of `flush_every_ops`.
    #[cold]
    fn count_read(&self, reads: u64) -> Result<()> {
        if self.core.is_poisoned() {
            // Reads still work. Calls that write report that the queue can make nothing durable any
            // more.
            return Ok(());
        }
        match self.options.flush_every_ops {
            Some(1) => self.core.flush_places(),
            Some(every) => match self.count(every, reads) {
                // The close that has begun also flushes this call's change.
                Err(Error::Closed) => Ok(()),
                flushed => flushed,
            },
            None => Ok(()),
        }
    }

    /// Delivers the next message, which the caller must acknowledge.
    #[inline]
    pub(crate) fn receive<D: Deliver<S>>(
        &self,
        consumer: &ConsumerState<S>,
        delivery: D,
    ) -> Result<Option<(D::Delivered, DeliveryToken)>> {
        let _events = events::at_end();
        let (step, handed) = consumer.receive(&self.core, delivery, Some(self));
        self.received(consumer, step, handed)
    }

    /// Delivers the next message to a waiting call, which does not create a removed default
    /// consumer again (see [`receive`](Self::receive)).
    pub(crate) fn receive_awaited<D: Deliver<S>>(
        &self,
        consumer: &ConsumerState<S>,
        delivery: D,
    ) -> Result<Option<(D::Delivered, DeliveryToken)>> {
        let _events = events::at_end();
        let (step, handed) = consumer.receive(&self.core, delivery, None);
        self.received(consumer, step, handed)
    }

    /// Drains segments, wakes readers and arms the delivery worker after a delivery.
    #[inline(always)]
    pub(super) fn received<R>(
        &self,
        consumer: &ConsumerState<S>,
        step: Step<R>,
        handed: DeliveryToken,
    ) -> Result<Option<(R, DeliveryToken)>> {
        if step.crossed {
            self.crossed(consumer);
        }
        if reported(&step.outcome).is_some() {
            // The gap may have ended deliveries in flight, so the consumer may receive another
            // message.
            self.core.wake_reader(consumer.row);
        }
        let received = step.outcome.map_err(|error| *error)?;
        // (The checks above reject a forked child, where a lock may stay locked forever.)
        self.arm(consumer);
        Ok(received.map(|message| (message, handed)))
    }

    /// Delivers up to `max` messages, which the caller must acknowledge.
    pub(crate) fn receive_batch<D: Deliver<S>>(
        &self,
        consumer: &ConsumerState<S>,
        max: usize,
        delivery: D,
    ) -> Result<Vec<(D::Delivered, DeliveryToken)>> {
        let _events = events::at_end();
        let mut received = Vec::new();
        let receive = |message, handed| received.push((message, handed));
        let step = consumer.receive_batch(&self.core, max, delivery, receive, self);
        self.received(consumer, step, DeliveryToken::default())?;
        Ok(received)
    }

    /// Acknowledges deliveries in one step. Goes on behind one that is refused, and returns the
    /// first refusal.
    pub(crate) fn ack_batch(
        &self,
        consumer: &ConsumerState<S>,
        deliveries: &[(u64, DeliveryToken)],
    ) -> Result<()> {
        let _events = events::at_end();
        let (done, crossed, outcome) = consumer.acknowledge_batch(&self.core, deliveries)?;
        if crossed {
            self.give_space_back();
        }
        if done == 0 {
            return outcome;
        }
        self.core.wake_reader(consumer.row);
        let counted = match self.options.flush_every_ops {
            Some(_) => self.count_read(done as u64),
            None => Ok(()),
        };
        outcome.and(counted)
    }

    /// Acknowledges a delivery. Does nothing if the delivery was cancelled or already acknowledged.
    #[inline]
    pub(crate) fn ack(
        &self,
        consumer: &ConsumerState<S>,
        seq: u64,
        handed: DeliveryToken,
    ) -> Result<()> {
        let _events = events::at_end();
        let Some(crossed) = consumer.acknowledge(&self.core, seq, handed)? else {
            return Ok(());
        };
        if crossed {
            self.give_space_back();
        }
        self.core.wake_reader(consumer.row);
        if self.options.flush_every_ops.is_some() { self.count_read(1) } else { Ok(()) }
    }

    /// Returns a delivery to the queue, which delivers the message again after `delay`, or else by
    /// the consumer's rules.
    pub(crate) fn nack(
        &self,
        consumer: &ConsumerState<S>,
        seq: u64,
        handed: DeliveryToken,
        delay: Option<Duration>,
    ) {
        let _events = events::at_end();
        if !self.core.forked() && consumer.give_back(&self.core, seq, handed, delay) {
            self.arm(consumer);
            self.core.wake_reader(consumer.row);
        }
    }

    /// Limits the consumer's messages in flight. Wakes waiters, since the new limit may allow more.
    pub(crate) fn set_max_in_flight(
        &self,
        consumer: &ConsumerState<S>,
        limit: Option<u32>,
    ) -> Result<()> {
        consumer.set_max_in_flight(&self.core, limit)?;
        self.core.wake_readers(u64::MAX);
        Ok(())
    }

    /// Returns how many messages the default consumer has in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.existing_default().map_or(0, |consumer| consumer.in_flight(&self.core))
    }

    /// Returns how many messages wait for the default consumer; without one, how many wait for some
    /// consumer.
    pub(crate) fn len(&self) -> u64 {
        match self.existing_default() {
            Some(consumer) => consumer.len(&self.core),
            None if self.core.forked() => 0,
            None => {
                let all = self.stand_of_all();
                self.core.len_from(all.place.seq, all.done.into_iter())
            }
        }
    }
}
