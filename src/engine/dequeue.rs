//! The way out: reads and deliveries, and the flushing and giving back that follow.

use std::time::Duration;

use super::Engine;
use crate::consume::consumer_state::{ConsumerState, reported};
use crate::consume::step::{Deliver, DeliveryToken, Read, Step};
use crate::error::{Error, Result};
use crate::events;
use crate::read::Check;
use crate::storage::Storage;

impl<S: Storage> Engine<S> {
    /// One read by a consumer. Then gives back the segment it left behind, and flushes if due.
    #[inline(always)]
    pub(crate) fn read<D: Deliver<S>>(
        &self,
        consumer: &ConsumerState<S>,
        what: Read,
        check: Check,
        delivery: D,
    ) -> Result<Option<D::Delivered>> {
        self.read_boxed(consumer, what, check, delivery).map_err(|error| *error)
    }

    /// As [`read`](Self::read), with the error boxed: the result stays small.
    #[inline(always)]
    pub(crate) fn read_boxed<D: Deliver<S>>(
        &self,
        consumer: &ConsumerState<S>,
        what: Read,
        check: Check,
        delivery: D,
    ) -> Result<Option<D::Delivered>, Box<Error>> {
        let _events = events::at_end();
        self.after(consumer, consumer.step(&self.core, what, check, delivery, Some(self)))
    }

    /// As [`read`](Self::read), for a call that waits: a default consumer that was removed does not
    /// begin again.
    #[inline(always)]
    pub(crate) fn read_awaited<D: Deliver<S>>(
        &self,
        consumer: &ConsumerState<S>,
        what: Read,
        delivery: D,
    ) -> Result<Option<D::Delivered>> {
        let _events = events::at_end();
        let step = consumer.step(&self.core, what, Check::Now, delivery, None);
        self.after(consumer, step).map_err(|error| *error)
    }

    /// What follows a read.
    #[inline(always)]
    fn after<R>(
        &self,
        consumer: &ConsumerState<S>,
        step: Step<R>,
    ) -> Result<Option<R>, Box<Error>> {
        if step.crossed {
            self.crossed(consumer);
        }
        if step.moved
            && self.options.flush_every_ops.is_some()
            && let Err(error) = self.count_read()
            && !matches!(step.outcome, Ok(Some(_)))
        {
            // With the error, a message that was taken would be lost: it is handed over instead.
            // The failed flush has poisoned the queue, and the next call that writes returns the
            // error.
            return Err(Box::new(error));
        }
        step.outcome
    }

    /// Counts one read, and flushes if that makes the number of `flush_every_ops`.
    #[cold]
    fn count_read(&self) -> Result<()> {
        if self.core.is_poisoned() {
            // Reading goes on. The calls that write say that nothing is made durable any more.
            return Ok(());
        }
        match self.options.flush_every_ops {
            Some(1) => self.core.flush_places(),
            Some(every) => match self.count(every, 1) {
                // The close that has begun flushes what this call did.
                Err(Error::Closed) => Ok(()),
                flushed => flushed,
            },
            None => Ok(()),
        }
    }

    /// Hands the next message out, to be acknowledged.
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

    /// As [`receive`](Self::receive), for a call that waits: a default consumer that was removed
    /// does not begin again.
    pub(crate) fn receive_awaited<D: Deliver<S>>(
        &self,
        consumer: &ConsumerState<S>,
        delivery: D,
    ) -> Result<Option<(D::Delivered, DeliveryToken)>> {
        let _events = events::at_end();
        let (step, handed) = consumer.receive(&self.core, delivery, None);
        self.received(consumer, step, handed)
    }

    /// What follows a read that hands a message out.
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
            // The gap may have ended counts, so another message may go out.
            self.core.wake_reader(consumer.row);
        }
        let received = step.outcome.map_err(|error| *error)?;
        // (In a child of a fork, which is refused above, a lock may be held for ever.)
        self.arm(consumer);
        Ok(received.map(|message| (message, handed)))
    }

    /// Acknowledges a delivery. One that was called off or is done already changes nothing.
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
        if self.options.flush_every_ops.is_some() { self.count_read() } else { Ok(()) }
    }

    /// Gives a delivery back: its message comes again, after `delay` or else as the rules say.
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

    /// Limits the consumer's messages in flight. Waiters look again: there may be more allowance.
    pub(crate) fn set_max_in_flight(
        &self,
        consumer: &ConsumerState<S>,
        limit: Option<u32>,
    ) -> Result<()> {
        consumer.set_max_in_flight(&self.core, limit)?;
        self.core.wake_readers(u64::MAX);
        Ok(())
    }

    /// The default consumer's messages in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.existing_default().map_or(0, |consumer| consumer.in_flight(&self.core))
    }

    /// How many messages wait for the default consumer. Where there is none: how many any consumer
    /// has yet to deal with.
    pub(crate) fn len(&self) -> u64 {
        match self.existing_default() {
            Some(consumer) => consumer.len(&self.core),
            None if self.core.forked() => 0,
            None => self.core.len_from(self.lowest_place().seq, std::iter::empty()),
        }
    }
}
