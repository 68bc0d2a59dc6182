//! A consumer: the queue's own or a named one in this process, or one of another process's queue.

use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mmq::{
    ClientConsumer, Consumer, Delivery, Error, HandleConsumer, Iter, Message, OwnMutex, Redelivery,
    Result,
};

use pyo3::Python;

use crate::arguments::Rules;

/// An open queue. Queues whose dead letters it takes count in this `Arc`, calls in one around it.
pub(crate) struct Open(pub(crate) Arc<mmq::Queue>);

impl Deref for Open {
    type Target = mmq::Queue;

    fn deref(&self) -> &mmq::Queue {
        &self.0
    }
}

/// What Python's objects hold of the crate. It is dropped without the interpreter's lock, for that
/// may wait: for a lock of the queue, the disk, a socket.
pub(crate) struct Held<T: Send>(pub(crate) Option<T>);

impl<T: Send> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // Only `drop` takes it.
        self.0.as_ref().unwrap_or_else(|| std::process::abort())
    }
}

impl<T: Send> Drop for Held<T> {
    fn drop(&mut self) {
        let held = self.0.take();
        Python::try_attach(|py| py.detach(|| drop(held)));
    }
}

/// A queue in this process, until it is closed. Its consumers keep it open.
pub(crate) struct Shared {
    pub(crate) open: Held<OwnMutex<Option<Arc<Open>>>>,
    /// How often waits were interrupted.
    interrupts: AtomicU64,
}

impl Shared {
    pub(crate) fn new(queue: mmq::Queue) -> Arc<Shared> {
        let open = OwnMutex::new(Some(Arc::new(Open(Arc::new(queue)))));
        Arc::new(Shared { open: Held(Some(open)), interrupts: AtomicU64::new(0) })
    }

    /// Ends all waits that have begun, also one between two calls of the queue, which counts.
    pub(crate) fn interrupt(&self) -> Result<()> {
        self.interrupts.fetch_add(1, Ordering::SeqCst);
        self.ask(|queue| {
            queue.interrupt();
            Ok(())
        })
    }

    /// Makes a call of the queue. (A close interrupts one that waits.)
    pub(crate) fn ask<T>(&self, call: impl FnOnce(&Open) -> Result<T>) -> Result<T> {
        self.waited(call(&*self.queue()?))
    }

    /// Returns the queue, for one call. A close waits until it is dropped.
    pub(crate) fn queue(&self) -> Result<Arc<Open>> {
        self.open.lock()?.as_ref().map(Arc::clone).ok_or(Error::Closed)
    }

    /// Returns the answer of a call that waited. (A close interrupts those.)
    pub(crate) fn waited<T>(&self, answer: Result<T>) -> Result<T> {
        match answer {
            Err(Error::Interrupted) if self.queue().is_err() => Err(Error::Closed),
            answer => answer,
        }
    }
}

/// The bytes of a message that was taken.
pub(crate) enum Taken {
    Message(Message),
    Copy(Vec<u8>),
}

impl Deref for Taken {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Taken::Message(message) => message,
            Taken::Copy(bytes) => bytes,
        }
    }
}

pub(crate) enum Source {
    /// The consumer without a name.
    Own(Arc<Shared>),
    Named(Consumer, Arc<Shared>),
    Client(ClientConsumer),
    Handle(HandleConsumer),
}

/// Calls the same method, whosever the consumer is.
macro_rules! everywhere {
    ($source:expr, $reader:ident => $call:expr) => {
        here!($source, $reader => $call,
            Source::Client($reader) => $call, Source::Handle($reader) => $call)
    };
}

/// Calls a method that only the process has which has the queue open.
macro_rules! here {
    ($source:expr, $what:literal, $reader:ident => $call:expr) => {
        here!($source, $reader => $call, _ => return Err(elsewhere($what)))
    };
    ($source:expr, $reader:ident => $call:expr, $($others:pat => $other:expr),+) => {
        match $source {
            Source::Own(shared) => {
                let queue = shared.queue()?;
                let $reader = &**queue;
                $call
            }
            Source::Named($reader, shared) => {
                let _queue = shared.queue()?;
                $call
            }
            $($others => $other,)+
        }
    };
}

impl Source {
    /// How often its waits were interrupted. (Nobody interrupts those in another process.)
    pub(crate) fn interrupts(&self) -> u64 {
        match self {
            Source::Own(shared) | Source::Named(_, shared) => {
                shared.interrupts.load(Ordering::SeqCst)
            }
            Source::Client(_) | Source::Handle(_) => 0,
        }
    }

    pub(crate) fn dequeue(&self) -> Result<Option<Taken>> {
        Ok(everywhere!(self, reader => reader.dequeue())?.map(Taken::Message))
    }

    pub(crate) fn peek(&self) -> Result<Option<Message>> {
        everywhere!(self, reader => reader.peek())
    }

    /// Takes the next message, and waits for one.
    pub(crate) fn dequeue_timeout(&self, timeout: Duration) -> Result<Option<Taken>> {
        let taken = match self {
            Source::Own(shared) => shared.ask(|queue| queue.dequeue_timeout(timeout)),
            Source::Named(consumer, shared) => shared.ask(|_| consumer.dequeue_timeout(timeout)),
            Source::Client(consumer) => consumer.dequeue_timeout(timeout),
            Source::Handle(consumer) => {
                let Some(delivery) = consumer.receive_timeout(timeout)? else { return Ok(None) };
                let bytes = delivery.to_vec();
                delivery.ack()?;
                return Ok(Some(Taken::Copy(bytes)));
            }
        };
        Ok(taken?.map(Taken::Message))
    }

    /// Hands out the next message, and waits for one.
    pub(crate) fn receive_timeout(&self, timeout: Duration) -> Result<Option<Delivery>> {
        match self {
            Source::Own(shared) => shared.ask(|queue| queue.receive_timeout(timeout)),
            Source::Named(consumer, shared) => shared.ask(|_| consumer.receive_timeout(timeout)),
            Source::Client(consumer) => consumer.receive_timeout(timeout),
            Source::Handle(consumer) => consumer.receive_timeout(timeout),
        }
    }

    pub(crate) fn receive(&self) -> Result<Option<Delivery>> {
        everywhere!(self, reader => reader.receive())
    }

    pub(crate) fn receive_batch(&self, max: usize) -> Result<Vec<Delivery>> {
        everywhere!(self, reader => reader.receive_batch(max))
    }

    pub(crate) fn seek(&self, seq: u64) -> Result<()> {
        everywhere!(self, reader => reader.seek(seq))
    }

    pub(crate) fn fork(&self, name: &str) -> Result<Source> {
        Ok(match self {
            Source::Own(shared) => Source::Named(shared.queue()?.fork(name)?, Arc::clone(shared)),
            Source::Named(consumer, shared) => {
                Source::Named(shared.ask(|_| consumer.fork(name))?, Arc::clone(shared))
            }
            Source::Client(consumer) => Source::Client(consumer.fork(name)?),
            Source::Handle(consumer) => Source::Handle(consumer.fork(name)?),
        })
    }

    pub(crate) fn set_redelivery(
        &self,
        rules: Rules,
        dead_letters: Option<&Arc<mmq::Queue>>,
    ) -> Result<()> {
        let Rules { lease, backoff, max_attempts } = rules;
        match self {
            Source::Client(consumer) if dead_letters.is_none() => {
                return consumer.set_redelivery(lease, backoff, max_attempts);
            }
            Source::Handle(consumer) if dead_letters.is_none() => {
                return consumer.set_redelivery(lease, backoff, max_attempts);
            }
            _ => {}
        }
        let mut redelivery = lease.into_iter().fold(Redelivery::new(), Redelivery::lease);
        redelivery = max_attempts.into_iter().fold(redelivery, Redelivery::max_attempts);
        if let Some((first, longest)) = backoff {
            redelivery = redelivery.backoff(first, longest);
        }
        if let Some(queue) = dead_letters {
            redelivery = redelivery.dead_letters(Arc::clone(queue));
        }
        here!(self, "dead_letters", reader => reader.set_redelivery(redelivery))
    }

    pub(crate) fn dequeue_batch(&self, max: usize) -> Result<Vec<Message>> {
        here!(self, "get_many", reader => reader.dequeue_batch(max))
    }

    pub(crate) fn skip(&self) -> Result<Option<u64>> {
        here!(self, "skip", reader => reader.skip())
    }

    pub(crate) fn set_max_in_flight(&self, messages: Option<u32>) -> Result<()> {
        here!(self, "set_max_in_flight", reader => reader.set_max_in_flight(messages))
    }

    pub(crate) fn in_flight(&self) -> Result<u64> {
        Ok(here!(self, "in_flight", reader => reader.in_flight()))
    }

    pub(crate) fn len(&self) -> Result<u64> {
        Ok(here!(self, "len", reader => reader.len()))
    }

    pub(crate) fn look_ahead(&self) -> Result<Iter> {
        Ok(here!(self, "look_ahead", reader => reader.iter()))
    }

    pub(crate) fn ready_fd(&self) -> Result<i32> {
        Ok(here!(self, "fileno", reader => reader.ready_fd()?.as_raw_fd()))
    }
}

fn elsewhere(what: &'static str) -> Error {
    let reason = "only the process that has the queue open can do this";
    Error::InvalidArgument { path: None, what, reason: reason.into() }
}
