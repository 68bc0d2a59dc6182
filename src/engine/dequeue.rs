//! The way out: reads, deliveries, and what follows from them.

use super::Engine;
use crate::consume::standing::{Deliver, Handed, Read, Standing};
use crate::error::{Error, Result};
use crate::events;
use crate::read::Check;
use crate::storage::Storage;

impl<S: Storage> Engine<S> {
    /// One read by a consumer, and what follows from it: giving segments back, flushing.
    #[inline(always)]
    pub(crate) fn read<D: Deliver<S>>(
        &self,
        standing: &Standing<S>,
        what: Read,
        check: Check,
        delivery: D,
    ) -> Result<Option<D::Delivered>> {
        self.read_boxed(standing, what, check, delivery).map_err(|error| *error)
    }

    /// As [`read`](Self::read), for those who have no use for an error in its full size.
    #[inline(always)]
    pub(crate) fn read_boxed<D: Deliver<S>>(
        &self,
        standing: &Standing<S>,
        what: Read,
        check: Check,
        delivery: D,
    ) -> Result<Option<D::Delivered>, Box<Error>> {
        let _told = events::at_end();
        let step = standing.step(&self.core, what, check, delivery);
        if step.crossed {
            self.crossed(standing);
        }
        if step.moved
            && self.options.flush_every_ops.is_some()
            && let Err(error) = self.count_read()
            && !matches!(step.outcome, Ok(Some(_)))
        {
            // A message that was taken is handed over: it would be lost with the error. The flush
            // that failed has poisoned the queue, and the next call that writes says so.
            return Err(Box::new(error));
        }
        step.outcome
    }

    #[cold]
    fn count_read(&self) -> Result<()> {
        if self.core.is_poisoned() {
            // Reading goes on; that nothing is made durable any more the writing calls say.
            return Ok(());
        }
        match self.options.flush_every_ops {
            Some(1) => self.core.flush_places(),
            Some(every) => self.count(every, 1),
            None => Ok(()),
        }
    }

    /// Hands the next message out.
    pub(crate) fn receive<D: Deliver<S>>(
        &self,
        standing: &Standing<S>,
        delivery: D,
    ) -> Result<Option<(D::Delivered, Handed)>> {
        let _told = events::at_end();
        let (step, handed) = standing.receive(&self.core, delivery);
        if step.crossed {
            self.crossed(standing);
        }
        Ok(step.outcome.map_err(|error| *error)?.map(|message| (message, handed)))
    }

    pub(crate) fn ack(&self, standing: &Standing<S>, seq: u64, handed: Handed) -> Result<()> {
        let _told = events::at_end();
        let Some(crossed) = standing.acknowledge(&self.core, seq, handed)? else {
            return Ok(());
        };
        if crossed {
            self.give_space_back();
        }
        self.core.wake_reader(standing.row);
        if self.options.flush_every_ops.is_some() { self.count_read() } else { Ok(()) }
    }

    pub(crate) fn nack(&self, standing: &Standing<S>, seq: u64, handed: Handed) {
        if !self.core.forked() && standing.give_back(&self.core, seq, handed) {
            self.core.wake_reader(standing.row);
        }
    }

    pub(crate) fn set_max_in_flight(
        &self,
        standing: &Standing<S>,
        limit: Option<u32>,
    ) -> Result<()> {
        standing.set_max_in_flight(&self.core, limit)?;
        self.core.wake_readers(u64::MAX);
        Ok(())
    }

    /// Messages of the default consumer that are in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.existing_default().map_or(0, |standing| standing.in_flight(&self.core))
    }

    /// Messages that wait for the default consumer; before it first reads, all that are held.
    pub(crate) fn len(&self) -> u64 {
        match self.existing_default() {
            Some(standing) => standing.len(&self.core),
            None if self.core.forked() => 0,
            None => self.core.len_from(None),
        }
    }
}
