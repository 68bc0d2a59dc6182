//! The asynchronous API: futures and streams, for any executor (feature `async`).
//!
//! | file | what it holds |
//! |---|---|
//! | `mod` | futures and streams of messages and deliveries |
//! | `writing` | futures that enqueue a message or flush |

#[cfg(test)]
mod tests;
mod writing;

#[cfg(test)]
pub(crate) use writing::Enqueuing;
pub use writing::{Enqueue, Flush};

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::consume::consumer_state::ConsumerState;
use crate::delivery::{Delivery, handing_out};
use crate::engine::Engine;
use crate::engine::reading;
use crate::engine::wait::WaitBegan;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::storage::FileStorage;
use crate::threads::waiting::{Signal, Ticket};

/// Returns the error of a future that could not begin, has returned the reason, and is polled
/// again.
fn polled_again() -> Error {
    Error::InvalidArgument {
        path: None,
        what: "future",
        reason: "polled again after it gave its error".into(),
    }
}

/// A queue and one of its consumers.
pub(crate) type ReaderParts = (Arc<Engine<FileStorage>>, Arc<ConsumerState<FileStorage>>);

/// One attempt to get a message or a delivery.
type Attempt<R> =
    fn(&Arc<Engine<FileStorage>>, &Arc<ConsumerState<FileStorage>>) -> Result<Option<R>>;

/// A future's wait for a message or delivery of one consumer.
struct Wait {
    /// The queue and the consumer, or the error that the first poll returns.
    reader: Result<ReaderParts, Option<Error>>,
    /// When the future was made. `None` when it could not begin.
    began: Option<WaitBegan>,
    ticket: Option<Ticket>,
}

impl Wait {
    fn new(reader: Result<ReaderParts>) -> Wait {
        let reader_began = |(engine, consumer): &ReaderParts| engine.wait_began(consumer);
        let began = reader.as_ref().ok().map(reader_began);
        Wait { reader: reader.map_err(Some), began, ticket: None }
    }

    fn poll<R>(&mut self, context: &Context<'_>, attempt: Attempt<R>) -> Poll<Result<R>> {
        let (engine, consumer) = match &mut self.reader {
            Ok(reader) => reader,
            Err(error) => {
                return Poll::Ready(Err(error.take().unwrap_or_else(polled_again)));
            }
        };
        // Check before taking any lock: in a forked child it may stay locked forever.
        if let Err(refused) = engine.core.check_not_forked() {
            self.leave();
            return Poll::Ready(Err(refused));
        }
        let signal = Signal::Task(context.waker().clone());
        match self.ticket {
            Some(ticket) => engine.core.waiters.rearm(ticket, signal),
            None => {
                match attempt(engine, consumer) {
                    Ok(None) => {}
                    Ok(Some(result)) => return Poll::Ready(Ok(result)),
                    Err(error) => return Poll::Ready(Err(error)),
                }
                self.ticket = Some(engine.join(consumer, signal));
            }
        }
        // The task has a ticket now: a later message, interrupt or removal wakes it; this check
        // finds an earlier one.
        let may_wait_on = match self.began {
            Some(began) => engine.check_may_wait_on(consumer, began),
            None => Ok(()),
        };
        if may_wait_on.is_err() {
            // A stream may be polled again.
            self.began = Some(engine.wait_began(consumer));
        }
        match may_wait_on.and_then(|()| attempt(engine, consumer)) {
            Ok(None) => {
                engine.pass_on(consumer, self.ticket);
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

    /// Polls for a stream, which continues until it has `ended`.
    fn poll_next<R>(
        &mut self,
        context: &Context<'_>,
        attempt: Attempt<R>,
        ended: &mut bool,
    ) -> Poll<Option<Result<R>>> {
        if *ended {
            return Poll::Ready(None);
        }
        self.poll(context, attempt).map(|outcome| {
            // A stream that could not begin ends after its error.
            *ended = self.reader.is_err()
                || matches!(&outcome, Err(Error::Closed | Error::NotFound { .. } | Error::Forked));
            Some(outcome)
        })
    }

    fn leave(&mut self) {
        if let (Some(ticket), Ok((engine, consumer))) = (self.ticket.take(), &self.reader) {
            engine.leave(consumer, ticket);
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.leave();
    }
}

/// A future of the next message: [`Queue::recv`](crate::Queue::recv),
/// [`Consumer::recv`](crate::Consumer::recv).
///
/// The poll that returns the message takes it: a future dropped before that changes nothing. The
/// queue wakes waiting futures in order of arrival. The program must poll or drop a woken future;
/// only then does the queue wake those behind it.
///
/// The thread that causes the wake (by an enqueue or a close, for instance) calls the waker without
/// holding any of the queue's locks: the waker may call the queue. It must not wait, as
/// [`Waker`](std::task::Waker) says: on the queue's own thread leases would end late meanwhile. (An
/// enqueue there never waits for room: a full queue refuses, also with
/// [`OnFull::Wait`](crate::OnFull::Wait).) If the waker panics, the thread wakes the next future in
/// line instead, and its call continues.
///
/// ```
/// async fn print_next(queue: &mmq::Queue) -> mmq::Result<()> {
///     let message = queue.recv().await?;
///     println!("{:?}", message.as_str());
///     Ok(())
/// }
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Recv(Wait);

/// A future of the next delivery: [`Queue::recv_delivery`](crate::Queue::recv_delivery),
/// [`Consumer::recv_delivery`](crate::Consumer::recv_delivery). It waits, wakes and may be dropped
/// as [`Recv`] does.
///
/// ```
/// async fn work_once(workers: &mmq::Consumer) -> mmq::Result<()> {
///     let job = workers.recv_delivery().await?;
///     println!("{:?}", job.as_str()); // does the work
///     job.ack()
/// }
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct RecvDelivery(Wait);

/// A stream of messages: [`Queue::messages`](crate::Queue::messages),
/// [`Consumer::messages`](crate::Consumer::messages).
///
/// It waits at the end of the queue and ends after [`Error::Closed`]. It returns gaps as errors
/// between the messages, and then the messages behind them: a loop that ends with `?` at the first
/// gap leaves the rest unread.
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
    wait: Wait,
    ended: bool,
}

/// A stream of deliveries: [`Queue::deliveries`](crate::Queue::deliveries),
/// [`Consumer::deliveries`](crate::Consumer::deliveries).
///
/// It waits at the end of the queue, and where no more messages may be [in
/// flight](crate::Consumer::set_max_in_flight); it ends after [`Error::Closed`]. It returns gaps as
/// errors between the deliveries, as [`Messages`] does. Dropping a delivery returns its message to
/// the queue.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let queue = mmq::Queue::open(dir.path())?;
/// queue.enqueue("resize picture 7")?;
/// // (In a task, with `StreamExt` of the crate `futures`: `jobs.next().await`.)
/// let mut jobs = futures_executor::block_on_stream(queue.deliveries());
/// jobs.next().unwrap()?.ack()?;
/// # Ok::<(), mmq::Error>(())
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct Deliveries {
    wait: Wait,
    ended: bool,
}

impl Recv {
    pub(crate) fn new(reader: Result<ReaderParts>) -> Recv {
        Recv(Wait::new(reader))
    }
}

impl RecvDelivery {
    pub(crate) fn new(reader: Result<ReaderParts>) -> RecvDelivery {
        RecvDelivery(Wait::new(reader))
    }
}

impl Messages {
    pub(crate) fn new(reader: Result<ReaderParts>) -> Messages {
        Messages { wait: Wait::new(reader), ended: false }
    }
}

impl Deliveries {
    pub(crate) fn new(reader: Result<ReaderParts>) -> Deliveries {
        Deliveries { wait: Wait::new(reader), ended: false }
    }
}

fn take(
    engine: &Arc<Engine<FileStorage>>,
    consumer: &Arc<ConsumerState<FileStorage>>,
) -> Result<Option<Message>> {
    reading::take_awaited(engine, consumer)
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
        self.0.poll(context, handing_out::receive_awaited)
    }
}

/// Takes one message a poll: with a stream that is dropped, messages taken ahead would be lost.
impl Stream for Messages {
    type Item = Result<Message>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Messages { wait, ended } = &mut *self;
        wait.poll_next(context, take, ended)
    }
}

/// Receives one message a poll: the leases of messages received ahead would run meanwhile.
impl Stream for Deliveries {
    type Item = Result<Delivery>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Deliveries { wait, ended } = &mut *self;
        wait.poll_next(context, handing_out::receive_awaited, ended)
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
            .field("waits", &self.wait.ticket.is_some())
            .field("ended", &self.ended)
            .finish()
    }
}

impl fmt::Debug for Deliveries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deliveries")
            .field("waits", &self.wait.ticket.is_some())
            .field("ended", &self.ended)
            .finish()
    }
}
