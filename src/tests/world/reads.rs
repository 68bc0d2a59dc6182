//! The ways to read that need no acknowledgement.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::actor::{Actor, Asking, Held, identity_of};
use super::acts::{Act, Answer};
use crate::consume::step::Read;
use crate::engine::ahead::Ahead;
use crate::engine::reading;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::threads;
use crate::threads::waiting::Signal;

/// A message that was copied.
fn copied(seq: Option<u64>, bytes: &[u8]) -> Answer {
    seq.map_or(Answer::Nothing, |seq| Answer::Messages(vec![(seq, identity_of(seq, bytes))]))
}

impl Actor {
    /// Reads, in one of the ways that need no acknowledgement. The same act is done by different
    /// calls, in turns.
    pub(super) fn read(&self, act: Act, held: &mut Held) -> Result<Answer> {
        let queue = &*self.queue;
        let found = match act {
            Act::Take(which) | Act::Peek(which) if held.number % 3 == 1 => {
                let what = if matches!(act, Act::Take(_)) { Read::Take } else { Read::Look };
                let mut buffer = Vec::new();
                let seq = reading::next_into(queue, &*self.consumer(which)?, what, &mut buffer)?;
                return Ok(copied(seq, &buffer));
            }
            #[cfg(feature = "capi")]
            Act::Take(which) if held.number % 3 == 2 => return self.take_fitting(which),
            Act::Peek(which) if held.number % 3 == 2 => {
                match Ahead::new(&self.queue, &self.consumer(which)?)?.next() {
                    // A gap is reported to who looks ahead, besides the consumer.
                    Some(Err(Error::Gap(_))) => return Ok(Answer::Done),
                    found => found.transpose()?,
                }
            }
            Act::Take(which) => reading::next(queue, &*self.consumer(which)?, Read::Take)?,
            Act::Peek(which) => reading::next(queue, &*self.consumer(which)?, Read::Look)?,
            Act::Wait(which, most) => {
                let consumer = self.consumer(which)?;
                reading::next_waiting(queue, &consumer, Duration::from_millis(most))?
            }
            Act::WaitForever(which) => {
                let consumer = self.consumer(which)?;
                let waits = self.notes_wait(held);
                queue.wait(&consumer, None, || {
                    waits();
                    reading::take_awaited(queue, &consumer)
                })?
            }
            Act::Task(which) => self.task(which)?,
            Act::TakeBatch(which, most) => {
                let taken = reading::batch(queue, &*self.consumer(which)?, most)?;
                return Ok(held.keep(taken));
            }
            Act::Skip(which) => {
                let skipped = reading::skip(queue, &*self.consumer(which)?)?;
                return Ok(skipped.map_or(Answer::Nothing, Answer::Skipped));
            }
            _ => None,
        };
        Ok(held.keep(found))
    }

    /// Takes as a C program does: with the memory it has, and again with as much as it needs.
    #[cfg(feature = "capi")]
    fn take_fitting(&self, which: usize) -> Result<Answer> {
        use reading::Fit;
        let consumer = self.consumer(which)?;
        let mut bytes = vec![0; 64];
        loop {
            let memory = std::cell::Cell::new(Some(&mut bytes[..]));
            let room = |len| memory.take().and_then(|memory| memory.get_mut(..len));
            let fit = reading::next_fitting(&self.queue, &consumer, Read::Take, room);
            match fit.map_err(|error| *error)? {
                None => return Ok(Answer::Nothing),
                Some(Fit::Copied { seq, len }) => return Ok(copied(Some(seq), &bytes[..len])),
                Some(Fit::TooSmall { len }) => bytes.resize(len, 0),
            }
        }
    }

    /// Waits by a waker, which asks the queue how much is durable before it wakes anybody.
    fn task(&self, which: usize) -> Result<Option<Message>> {
        let (queue, consumer) = (&*self.queue, self.consumer(which)?);
        let waker = Arc::new(Asking { queue: Arc::clone(&self.queue), thread: threads::current() });
        let waker = Waker::from(waker);
        if let Some(message) = reading::next(queue, &consumer, Read::Take)? {
            return Ok(Some(message));
        }
        let ticket = queue.join(&consumer, Signal::Task(waker.clone()));
        let found = loop {
            queue.core.waiters.rearm(ticket, Signal::Task(waker.clone()));
            match reading::next(queue, &consumer, Read::Take) {
                Ok(None) => {}
                found => break found,
            }
            while !queue.core.waiters.is_woken(ticket) {
                threads::park();
            }
        };
        queue.leave(&consumer, ticket);
        found
    }
}
