//! The asynchronous face: futures and streams of messages, for any executor (feature `async`).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::delivery::Delivery;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::place::{Read, Standing};
use crate::reading;
use crate::storage::FileStorage;
use crate::waiting::{Signal, Ticket};

/// A queue and one of its consumers.
pub(crate) type Whose = (Arc<Engine<FileStorage>>, Arc<Standing<FileStorage>>);

/// One try to get what is waited for.
type Attempt<R> = fn(&Arc<Engine<FileStorage>>, &Arc<Standing<FileStorage>>) -> Result<Option<R>>;

/// Whose messages, and the ticket of whoever waits for one.
struct Place {
    /// The error is given to the first who asks.
    of: Result<Whose, Option<Error>>,
    ticket: Option<Ticket>,
}

impl Place {
    fn new(of: Result<Whose>) -> Place {
        Place { of: of.map_err(Some), ticket: None }
    }

    fn poll<R>(&mut self, context: &Context<'_>, attempt: Attempt<R>) -> Poll<Result<R>> {
        let (engine, standing) = match &mut self.of {
            Ok(of) => of,
            Err(error) => return Poll::Ready(Err(error.take().unwrap_or(Error::Closed))),
        };
        let signal = Signal::Task(context.waker().clone());
        match self.ticket {
            Some(ticket) => engine.shared.waiters.rearm(ticket, Some(signal)),
            None => {
                match attempt(engine, standing) {
                    Ok(None) => {}
                    outcome => return Poll::Ready(outcome.and_then(|result| result.ok_or(Error::Closed))),
                }
                match engine.join(standing, signal) {
                    Ok(ticket) => self.ticket = Some(ticket),
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
        }
        // In line: what comes from now on wakes the task, what came before is found here.
        match attempt(engine, standing) {
            Ok(None) => Poll::Pending,
            outcome => {
                self.leave();
                Poll::Ready(outcome.and_then(|result| result.ok_or(Error::Closed)))
            }
        }
    }

    fn leave(&mut self) {
        if let (Some(ticket), Ok((engine, standing))) = (self.ticket.take(), &self.of) {
            engine.leave(standing, ticket);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A future of the next message: [`Queue::recv`](crate::Queue::recv), [`Consumer::recv`](crate::Consumer::recv).
///
/// Nothing is taken before the poll that returns it: one that is dropped earlier changes nothing.
#[must_use = "futures do nothing unless polled"]
pub struct Recv(Place);

/// A future of the next delivery: [`Queue::recv_delivery`](crate::Queue::recv_delivery),
/// [`Consumer::recv_delivery`](crate::Consumer::recv_delivery).
#[must_use = "futures do nothing unless polled"]
pub struct RecvDelivery(Place);

/// A stream of messages: [`Queue::messages`](crate::Queue::messages), [`Consumer::messages`](crate::Consumer::messages).
///
/// It waits at the end of the queue and ends after [`Error::Closed`]; gaps come as errors between the messages.
#[must_use = "streams do nothing unless polled"]
pub struct Messages {
    place: Place,
    ended: bool,
}

type Of = Result<(Arc<Engine<FileStorage>>, Arc<Standing<FileStorage>>)>;

impl Recv {
    pub(crate) fn new(of: Of) -> Recv {
        Recv(Place::new(of))
    }
}

impl RecvDelivery {
    pub(crate) fn new(of: Of) -> RecvDelivery {
        RecvDelivery(Place::new(of))
    }
}

impl Messages {
    pub(crate) fn new(of: Of) -> Messages {
        Messages { place: Place::new(of), ended: false }
    }
}

fn take(engine: &Arc<Engine<FileStorage>>, standing: &Arc<Standing<FileStorage>>) -> Result<Option<Message>> {
    reading::next(engine, standing, Read::Take)
}

impl Future for Recv {
    type Output = Result<Message>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context, take)
    }
}

impl Future for RecvDelivery {
    type Output = Result<Delivery>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context, reading::receive)
    }
}

impl Stream for Messages {
    type Item = Result<Message>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match self.place.poll(context, take) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(outcome) => {
                self.ended = matches!(&outcome, Err(Error::Closed | Error::NotFound { .. } | Error::Forked));
                Poll::Ready(Some(outcome))
            }
        }
    }
}

impl fmt::Debug for Recv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recv").field("waits", &self.0.ticket.is_some()).finish()
    }
}

impl fmt::Debug for RecvDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvDelivery").field("waits", &self.0.ticket.is_some()).finish()
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("waits", &self.place.ticket.is_some()).field("ended", &self.ended).finish()
    }
}
