//! A producer's futures, which wait for room and for a flush.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::options::OnFull;
use crate::state::{Began, flush_failed};
use crate::storage::{FileStorage, Storage};
use crate::threads::now;
use crate::threads::waiting::{Signal, Ticket};

/// All these futures of a queue wait in one line, not one for each consumer.
const LINE: u32 = 0;

/// A future of a flush: [`Queue::flush_async`](crate::Queue::flush_async).
///
/// Dropping it before it is ready does not affect others: the flush may run all the same.
///
/// ```
/// async fn put_safely(queue: &mmq::Queue) -> mmq::Result<()> {
///     queue.enqueue("order 17")?;
///     queue.flush_async().await
/// }
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Flush(Flushing<FileStorage>);

impl Flush {
    pub(crate) fn new(engine: &Arc<Engine<FileStorage>>) -> Flush {
        Flush(Flushing::new(engine))
    }
}

impl Future for Flush {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.0.poll_flushed(context)
    }
}

/// A [`Flush`] on any storage.
pub(crate) struct Flushing<S: Storage> {
    engine: Arc<Engine<S>>,
    /// An interrupt since then ends the wait.
    began: Option<Began>,
    waits: Option<(Ticket, u64)>,
}

impl<S: Storage> Flushing<S> {
    pub(crate) fn new(engine: &Arc<Engine<S>>) -> Flushing<S> {
        let began = Some(engine.core.began());
        Flushing { engine: Arc::clone(engine), began, waits: None }
    }

    /// Returns the flush of an enqueued message. An interrupt does not end it, because the program
    /// must not enqueue the message again.
    fn of_a_message(engine: &Arc<Engine<S>>) -> Flushing<S> {
        Flushing { engine: Arc::clone(engine), began: None, waits: None }
    }

    pub(crate) fn poll_flushed(&mut self, context: &Context<'_>) -> Poll<Result<()>> {
        let core = &*self.engine.core;
        // Before any lock: in a forked child it may be held for ever.
        if let Err(refused) = core.check_not_forked() {
            self.leave();
            return Poll::Ready(Err(refused));
        }
        let signal = Signal::Task(context.waker().clone());
        let Some((ticket, round)) = self.waits else {
            if let Err(error) = core.check_writable() {
                return Poll::Ready(Err(error));
            }
            let round = core.tasks.next_round();
            self.waits = Some((core.tasks.for_flush.join(LINE, signal), round));
            // The storage worker flushes and the delivery worker wakes; without either of them this
            // thread flushes.
            if core.delivery_worker.request(|_| ())
                && core.storage_worker.request(|wanted| wanted.flush_for_tasks = true)
            {
                return Poll::Pending;
            }
            return self.flush_here();
        };
        core.tasks.for_flush.rearm(ticket, signal);
        let ended = match core.tasks.outcome(round) {
            Some(Ok(())) => Some(Ok(())),
            Some(Err(text)) => Some(Err(match core.check_readable() {
                // The flush failed because the queue was closed.
                Err(closed) if core.index.poison.failure().is_none() => closed,
                _ => flush_failed(core.storage.path(), &text),
            })),
            // (A close makes everything durable, or returns why it could not.)
            None => core
                .check_readable()
                .and_then(|()| self.began.map_or(Ok(()), |began| core.check_uninterrupted(began)))
                .err()
                .map(Err),
        };
        let goes_on = core.storage_worker.is_running();
        match ended {
            Some(outcome) => {
                self.leave();
                Poll::Ready(outcome)
            }
            None if goes_on => Poll::Pending,
            None => self.flush_here(),
        }
    }

    /// Flushes in this thread, when there is no worker.
    fn flush_here(&mut self) -> Poll<Result<()>> {
        self.leave();
        Poll::Ready(self.engine.core.flush())
    }

    fn leave(&mut self) {
        if let Some((ticket, _)) = self.waits.take()
            && !self.engine.core.forked()
        {
            self.engine.core.tasks.for_flush.leave(ticket);
        }
    }
}

impl<S: Storage> Drop for Flushing<S> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A future of a message's number, once the message is in the queue:
/// [`Queue::enqueue_async`](crate::Queue::enqueue_async).
///
/// If it is dropped before it is ready, the message is not in the queue; or, if it already waits
/// for a flush of [`flush_every_ops`](crate::Options::flush_every_ops), the message is in the
/// queue, and may not be durable yet: [`stored`](Self::stored) says which.
///
/// ```
/// async fn put(queue: &mmq::Queue, message: Vec<u8>) -> mmq::Result<u64> {
///     queue.enqueue_async(message).await // waits for room without a thread
/// }
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Enqueue<M>(Enqueuing<M, FileStorage>);

impl<M: AsRef<[u8]>> Enqueue<M> {
    pub(crate) fn new(
        engine: &Arc<Engine<FileStorage>>,
        message: M,
        too_long: Option<Error>,
    ) -> Enqueue<M> {
        Enqueue(Enqueuing::new(engine, message, too_long))
    }
}

impl<M> Enqueue<M> {
    /// Returns the message's number once the message is in the queue, which may be before the
    /// future is ready: then it waits only for its flush.
    ///
    /// A program that waits for room only so long drops the future only if this returns `None`:
    /// then the message is not in the queue, and may be enqueued again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// async fn put(queue: &mmq::Queue, message: Vec<u8>) -> Option<mmq::Result<u64>> {
    ///     let mut put = queue.enqueue_async(message);
    ///     match tokio::time::timeout(Duration::from_secs(1), &mut put).await {
    ///         Ok(outcome) => Some(outcome),
    ///         Err(_) if put.stored().is_some() => Some(put.await),
    ///         Err(_) => None, // no room came in time
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn stored(&self) -> Option<u64> {
        self.0.stored
    }
}

impl<M: AsRef<[u8]> + Unpin> Future for Enqueue<M> {
    type Output = Result<u64>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<u64>> {
        self.0.poll_enqueued(context)
    }
}

/// An [`Enqueue`] on any storage.
pub(crate) struct Enqueuing<M, S: Storage> {
    engine: Arc<Engine<S>>,
    message: M,
    began: Began,
    /// When it stops waiting for room; the first rejection sets it. `Some(None)`: never.
    deadline: Option<Option<Instant>>,
    ticket: Option<Ticket>,
    /// The error when the message is too long for any queue.
    too_long: Option<Error>,
    /// Set once the message is in the queue: its sequence number.
    pub(crate) stored: Option<u64>,
    /// Then, if a flush is due: how many operations it covers, and the flush.
    flushes: Option<(u64, Flushing<S>)>,
}

impl<M: AsRef<[u8]>, S: Storage> Enqueuing<M, S> {
    pub(crate) fn new(
        engine: &Arc<Engine<S>>,
        message: M,
        too_long: Option<Error>,
    ) -> Enqueuing<M, S> {
        Enqueuing {
            engine: Arc::clone(engine),
            message,
            began: engine.core.began(),
            deadline: None,
            ticket: None,
            too_long,
            stored: None,
            flushes: None,
        }
    }

    pub(crate) fn poll_enqueued(&mut self, context: &Context<'_>) -> Poll<Result<u64>> {
        if let Some(error) = self.too_long.take() {
            return Poll::Ready(Err(error));
        }
        if self.flushes.is_some() {
            return self.poll_flushes(context);
        }
        if let Err(refused) = self.engine.core.check_not_forked() {
            return self.ends(refused);
        }
        let signal = || Signal::Task(context.waker().clone());
        match self.ticket {
            Some(ticket) => {
                if planted!(RearmedAfterTheLook) {
                    let offered = self.offer(context);
                    self.engine.core.tasks.for_room.rearm(ticket, signal());
                    self.engine.core.look_for_room_later();
                    return offered;
                }
                self.engine.core.tasks.for_room.rearm(ticket, signal());
            }
            None => {
                let offered = self.offer(context);
                if offered.is_ready() || self.flushes.is_some() {
                    return offered;
                }
                self.ticket = Some(self.engine.core.tasks.for_room.join(LINE, signal()));
                if planted!(RoomLookedForOnce) {
                    self.engine.core.look_for_room_later();
                    return Poll::Pending;
                }
            }
        }
        // Later freed space or a later interrupt wakes the task; this check finds earlier ones.
        if let Err(error) = self.engine.core.check_uninterrupted(self.began) {
            return self.ends(error);
        }
        let seen = *self.engine.core.space.gate.lock();
        let offered = self.offer(context);
        reached!("behind a future's look for room");
        let core = &*self.engine.core;
        if offered.is_pending() && self.flushes.is_none() && !core.look_for_room_later() {
            // Without a worker to wake the task, wait a moment and let the executor poll it again.
            let _ = core.wait_for_space(seen, None, self.began);
            context.waker().wake_by_ref();
        }
        offered
    }

    /// Tries to enqueue once. Pending when there is no room but a later try may find some, and
    /// during the flush.
    fn offer(&mut self, context: &Context<'_>) -> Poll<Result<u64>> {
        let refused = match self.engine.offer(self.message.as_ref()) {
            Ok((seq, due)) => {
                self.leave();
                self.stored = Some(seq);
                let Some(covered) = due else { return Poll::Ready(Ok(seq)) };
                self.flushes = Some((covered, Flushing::of_a_message(&self.engine)));
                return self.poll_flushes(context);
            }
            Err(error) => error,
        };
        let limit = match self.engine.options.on_full {
            OnFull::Wait(limit) if refused.is_full() => limit,
            _ => return self.ends(refused),
        };
        let end = || limit.and_then(|limit| now().checked_add(limit));
        match *self.deadline.get_or_insert_with(end) {
            Some(deadline) if now() >= deadline => self.ends(refused),
            _ => Poll::Pending,
        }
    }

    fn poll_flushes(&mut self, context: &Context<'_>) -> Poll<Result<u64>> {
        let (Some(seq), Some((covered, flush))) = (self.stored, &mut self.flushes) else {
            return Poll::Pending;
        };
        let covered = *covered;
        let path = self.engine.core.storage.path();
        flush.poll_flushed(context).map(|flushed| match flushed {
            Ok(()) => {
                self.engine.note_flushed(covered);
                Ok(seq)
            }
            // The message is in the queue despite this error.
            Err(error) => Err(error.of_flush(path)),
        })
    }

    fn ends(&mut self, error: Error) -> Poll<Result<u64>> {
        self.leave();
        Poll::Ready(Err(self.engine.refused(error)))
    }
}

impl<M, S: Storage> Enqueuing<M, S> {
    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take()
            && !self.engine.core.forked()
        {
            self.engine.core.tasks.for_room.leave(ticket);
        }
    }
}

impl<M, S: Storage> Drop for Enqueuing<M, S> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl fmt::Debug for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flush").field("waits", &self.0.waits.is_some()).finish()
    }
}

/// Shows no bytes of the message: they may be secret or long.
impl<M> fmt::Debug for Enqueue<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enqueue").field("waits", &self.0.ticket.is_some()).finish()
    }
}
