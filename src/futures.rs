//! The asynchronous face: futures and streams of messages, for any executor (feature `async`).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::consume::standing::{Read, Standing};
use crate::delivery::{self, Delivery};
use crate::engine::Engine;
use crate::engine::reading;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::storage::FileStorage;
use crate::threads::waiting::{Signal, Ticket};

/// For whoever polls a future that could not begin, and has said so.
fn polled_again() -> Error {
    Error::InvalidArgument {
        path: None,
        what: "future",
        reason: "polled again after it gave its error".into(),
    }
}

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
            Err(error) => {
                return Poll::Ready(Err(error.take().unwrap_or_else(polled_again)));
            }
        };
        let signal = Signal::Task(context.waker().clone());
        match self.ticket {
            Some(ticket) => engine.core.waiters.rearm(ticket, signal),
            None => {
                match attempt(engine, standing) {
                    Ok(None) => {}
                    Ok(Some(result)) => return Poll::Ready(Ok(result)),
                    Err(error) => return Poll::Ready(Err(error)),
                }
                match engine.join(standing, signal) {
                    Ok(ticket) => self.ticket = Some(ticket),
                    Err(error) => return Poll::Ready(Err(error)),
                }
            }
        }
        // In line: what comes from now on wakes the task, what came before is found here.
        match attempt(engine, standing) {
            Ok(None) => {
                engine.pass_on(standing, self.ticket);
                Poll::Pending
            }
            Ok(Some(result)) => {
                self.leave();
                Poll::Ready(Ok(result))
            }
            Err(error) => {
                self.leave();
                Poll::Ready(Err(error))
            }
        }
    }

    fn leave(&mut self) {
        if let (Some(ticket), Ok((engine, standing))) = (self.ticket.take(), &self.of) {
            let standing = Arc::clone(standing);
            engine.now_or_later(move |engine| engine.leave(&standing, ticket));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A future of the next message: [`Queue::recv`](crate::Queue::recv),
/// [`Consumer::recv`](crate::Consumer::recv).
///
/// Nothing is taken before the poll that returns it: one that is dropped earlier changes nothing.
/// Those that wait are woken in the order in which they came; one that was woken has to be polled
/// or dropped before those behind it learn of the message.
///
/// Its waker is called by whichever thread brings the news, with none of the queue's locks held: it
/// may call the queue. Should it panic, the next in line is woken in its stead, and the call that
/// brought the news goes on.
#[must_use = "futures do nothing unless polled"]
pub struct Recv(Place);

/// A future of the next delivery: [`Queue::recv_delivery`](crate::Queue::recv_delivery),
/// [`Consumer::recv_delivery`](crate::Consumer::recv_delivery).
#[must_use = "futures do nothing unless polled"]
pub struct RecvDelivery(Place);

/// A stream of messages: [`Queue::messages`](crate::Queue::messages),
/// [`Consumer::messages`](crate::Consumer::messages).
///
/// It waits at the end of the queue and ends after [`Error::Closed`]. Gaps come as errors between
/// the messages, and what lies behind them still comes: a loop that ends with `?` at the first one
/// leaves the rest unread.
///
/// ```
/// use futures_core::Stream;
/// use std::pin::Pin;
///
/// /// The next message. (With the crate `futures`: `messages.next().await`, and the same `match`.)
/// async fn next(messages: &mut mmq::Messages) -> Option<mmq::Result<mmq::Message>> {
///     std::future::poll_fn(|context| Pin::new(&mut *messages).poll_next(context)).await
/// }
///
/// async fn read(mut messages: mmq::Messages) -> mmq::Result<()> {
///     while let Some(next) = next(&mut messages).await {
///         match next {
///             Ok(message) => println!("{:?}", message.as_str()),
///             Err(mmq::Error::Gap(gap)) => eprintln!("{gap}"),
///             Err(mmq::Error::Closed) => break,
///             Err(error) => return Err(error),
///         }
///     }
///     Ok(())
/// }
/// # let dir = tempfile::tempdir().unwrap();
/// # let queue = mmq::Queue::open(dir.path()).unwrap();
/// # let messages = queue.consumer("reader").unwrap().messages();
/// # queue.enqueue("a message").unwrap();
/// # let reader = std::thread::spawn(|| pollster::block_on(read(messages)));
/// # while queue.consumer("reader").unwrap().len() > 0 {
/// #     std::thread::yield_now();
/// # }
/// # queue.close().unwrap();
/// # reader.join().unwrap().unwrap();
/// ```
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

fn take(
    engine: &Arc<Engine<FileStorage>>,
    standing: &Arc<Standing<FileStorage>>,
) -> Result<Option<Message>> {
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
        self.0.poll(context, delivery::receive)
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
                // One that could not begin tells why, and that is all.
                self.ended = self.place.of.is_err()
                    || matches!(
                        &outcome,
                        Err(Error::Closed | Error::NotFound { .. } | Error::Forked)
                    );
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
        f.debug_struct("Messages")
            .field("waits", &self.place.ticket.is_some())
            .field("ended", &self.ended)
            .finish()
    }
}
