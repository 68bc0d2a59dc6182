//! Waits for a message.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Engine;
use crate::consume::consumer_state::ConsumerState;
use crate::error::{Error, Result};
use crate::events;
use crate::state::Began;
use crate::storage::Storage;
use crate::threads::ready::Ready;
use crate::threads::waiting::{Signal, Ticket};
use crate::threads::{current, now, park, park_timeout, touch};

/// The counts of interrupts and removals when a wait for a message began. A later interrupt ends
/// the wait. So does a later removal of the consumer, even if it was created again since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitBegan {
    interrupts: Began,
    removals: u64,
}

impl<S: Storage> Engine<S> {
    /// Returns the first number that is not known to be durable.
    pub(crate) fn durable_seq(&self) -> u64 {
        if self.core.forked() { 0 } else { self.core.durable_seq() }
    }

    /// Waits until the message `seq` is durable; flushes where nobody else does.
    pub(crate) fn wait_durable(&self, seq: u64) -> Result<()> {
        let core = &*self.core;
        let began = core.began();
        let _events = events::at_end();
        core.check_not_forked()?;
        if core.durable_seq() > seq {
            return Ok(());
        }
        core.check_writable()?;
        let tail = core.committed_spot();
        if seq >= tail.seq {
            let oldest = core.oldest(tail).seq;
            return Err(Error::no_message(core.storage.path(), seq, oldest..tail.seq));
        }
        core.flush_or_wait(tail, Some(began), None)
    }

    /// Returns the beginning of a wait for the consumer's next message.
    pub(crate) fn wait_began(&self, consumer: &ConsumerState<S>) -> WaitBegan {
        WaitBegan { interrupts: self.core.began(), removals: consumer.removals() }
    }

    /// Returns an error if a thread has interrupted, or removed the consumer, since `began`.
    pub(crate) fn check_may_wait_on(
        &self,
        consumer: &ConsumerState<S>,
        began: WaitBegan,
    ) -> Result<()> {
        self.core.check_uninterrupted(began.interrupts)?;
        if consumer.removals() != began.removals {
            return Err(consumer.unknown(&self.core));
        }
        Ok(())
    }

    /// Returns the consumer's descriptor. The first call creates it.
    pub(crate) fn ready_fd<'a>(&self, consumer: &'a ConsumerState<S>) -> Result<BorrowedFd<'a>> {
        self.core.check_not_forked()?;
        if let Some(ready) = consumer.ready.get() {
            return Ok(ready.descriptor());
        }
        let _one_at_a_time = self.registry()?;
        consumer.with_locked(|locked| locked.check_not_removed(&self.core, consumer))?;
        if consumer.ready.get().is_none() {
            let path = self.core.storage.path();
            let ready = Arc::new(
                Ready::new().map_err(|error| Error::io("make a descriptor for", path, error))?,
            );
            self.core.waiters.add_ready(consumer.row, &ready);
            // From here on producers make it readable. `set_ready` looks for messages enqueued
            // before.
            self.count_waiter();
            consumer.set_ready(&self.core, ready);
        }
        let ready = consumer.ready.get().map(|ready| ready.descriptor());
        let missing = || {
            Error::internal(self.core.storage.path(), "the descriptor was made and is not there")
        };
        ready.ok_or_else(missing)
    }

    /// Counts a waiter, so that producers wake waiters. Messages become visible under the two locks
    /// met here: a thread that publishes later sees the count, and the waiter's next read sees
    /// messages published before. Does not wait for a producer, which may hold its lock over a
    /// sync.
    fn count_waiter(&self) {
        let durable = self.core.durable.lock();
        self.core.message_waiters.fetch_add(1, Ordering::SeqCst);
        drop(durable);
        touch(&self.core.writer);
    }

    /// Puts a waiter at the end of the consumer's line.
    pub(crate) fn join(&self, consumer: &ConsumerState<S>, signal: Signal) -> Ticket {
        self.count_waiter();
        self.core.waiters.join(consumer.row, signal)
    }

    /// Removes a waiter from the line. When messages are left to read, wakes the first waiter.
    pub(crate) fn leave(&self, consumer: &ConsumerState<S>, ticket: Ticket) {
        if self.core.forked() {
            return;
        }
        self.core.waiters.leave(ticket);
        holds!(
            self.core.message_waiters.load(Ordering::SeqCst) > 0,
            "who leaves, {ticket:?}, was counted"
        );
        self.core.message_waiters.fetch_sub(1, Ordering::SeqCst);
        self.pass_on(consumer, None);
    }

    /// Wakes one waiter of the consumer when there is a message to read that the caller cannot use.
    /// With `after`, only a waiter that joined later than that one.
    pub(crate) fn pass_on(&self, consumer: &ConsumerState<S>, after: Option<Ticket>) {
        let core = &*self.core;
        if core.message_waiters.load(Ordering::Relaxed) != 0
            && !planted!(NewsNotPassedOn)
            && consumer.with_locked(|locked| locked.has_waiting(core))
        {
            core.waiters.wake_one(consumer.row, after);
        }
    }

    /// Calls `attempt` until it has a result, or until `deadline` (`None`: forever). Sleeps between
    /// the attempts until another thread wakes it. An interrupt or a removal of the consumer ends
    /// the wait.
    pub(crate) fn wait<R>(
        &self,
        consumer: &ConsumerState<S>,
        deadline: Option<Instant>,
        mut attempt: impl FnMut() -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        self.wait_and_look(consumer, deadline, |_| attempt())
    }

    /// Calls `attempt` until it has a result, or until `deadline`. `attempt` may set a time for the
    /// next attempt (see [`wait`](Self::wait)).
    pub(super) fn wait_and_look<R>(
        &self,
        consumer: &ConsumerState<S>,
        deadline: Option<Instant>,
        mut attempt: impl FnMut(&mut Option<Instant>) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let began = self.wait_began(consumer);
        if let Some(result) = attempt(&mut None)? {
            return Ok(Some(result));
        }
        let signal = || Signal::Thread(current());
        let ticket = self.join(consumer, signal());
        let mut in_line = InLine { engine: self, consumer, ticket, has_parked: false };
        loop {
            self.core.waiters.rearm(ticket, signal());
            if planted!(InterruptedHavingTaken) && self.core.is_interrupted(began.interrupts) {
                attempt(&mut None)?;
            }
            self.check_may_wait_on(consumer, began)?;
            if self.core.forked() {
                return Err(Error::Forked);
            }
            let mut again = None;
            if let Some(result) = attempt(&mut again)? {
                return Ok(Some(result));
            }
            if !self.core.delivery_worker.is_running() {
                // Without a delivery worker, this thread must look when a lease or a delay ends.
                again = again.into_iter().chain(consumer.next_due()).min();
            }
            let until = again.into_iter().chain(deadline).min();
            self.pass_on(consumer, Some(ticket));
            while !self.core.waiters.is_woken(ticket) {
                let left = until.map(|until| until.saturating_duration_since(now()));
                if left.is_some_and(|left| left.is_zero()) {
                    if until == deadline {
                        return Ok(None);
                    }
                    break;
                }
                in_line.has_parked = true;
                left.map_or_else(park, park_timeout);
            }
        }
    }
}

/// A waiter's place in the line; dropping it leaves the line.
struct InLine<'a, S: Storage> {
    engine: &'a Engine<S>,
    consumer: &'a ConsumerState<S>,
    ticket: Ticket,
    has_parked: bool,
}

impl<S: Storage> Drop for InLine<'_, S> {
    fn drop(&mut self) {
        self.engine.leave(self.consumer, self.ticket);
        if self.has_parked {
            // An unpark that ended a pause here may have been meant for the caller's own `park`.
            current().unpark();
        }
    }
}
