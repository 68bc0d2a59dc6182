//! A message that was handed out and waits to be acknowledged.

use std::fmt;
use std::ops::Deref;
use std::str::Utf8Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::consume::standing::{Handed, Standing};
use crate::engine::Engine;
use crate::engine::reading::AsMessage;
use crate::error::{Error, Gap, Result, past_gaps};
use crate::message::Message;
use crate::storage::FileStorage;

/// A message handed out by [`Consumer::receive`](crate::Consumer::receive): the consumer's stored
/// place does not pass it before it is [acknowledged](Self::ack).
///
/// Dropping it unacknowledged, in a panic too, [gives it back](Self::nack): it comes again, before
/// any other message. When the process dies, all that was not acknowledged comes again after the
/// next opening.
///
/// It may be acknowledged in any order and from any thread. As a [`Message`], it pins its arena and
/// no lock.
///
/// ```
/// # fn main() -> mmq::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let queue = mmq::Queue::open(dir.path())?;
/// queue.enqueue("resize picture 7")?;
/// let workers = queue.consumer("workers")?;
///
/// let job = workers.receive()?.expect("there is one");
/// assert_eq!(&job[..], b"resize picture 7");
/// drop(job); // the work was not done
///
/// let job = workers.receive()?.expect("it comes again");
/// assert_eq!(job.attempts(), 2);
/// job.ack()?;
/// assert!(workers.receive()?.is_none());
/// # Ok(())
/// # }
/// ```
#[must_use = "a delivery that is dropped goes back to the queue"]
pub struct Delivery {
    message: Message,
    handed: Handed,
    /// Taken by the answer that was given.
    holder: Option<Holder>,
}

/// Whom an answer goes to.
#[derive(Debug)]
struct Holder {
    engine: Arc<Engine<FileStorage>>,
    standing: Arc<Standing<FileStorage>>,
}

impl Delivery {
    pub(crate) fn new(
        message: Message,
        handed: Handed,
        engine: Arc<Engine<FileStorage>>,
        standing: Arc<Standing<FileStorage>>,
    ) -> Delivery {
        Delivery { message, handed, holder: Some(Holder { engine, standing }) }
    }

    /// The message's sequence number.
    #[inline]
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.message.seq()
    }

    /// How often the message was handed out since the queue was opened, this time included: 1 is
    /// the first time.
    #[inline]
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.handed.attempts
    }

    /// The bytes as text.
    ///
    /// # Errors
    ///
    /// When they are not UTF-8.
    pub fn as_str(&self) -> Result<&str, Utf8Error> {
        self.message.as_str()
    }

    /// The work is done: the message does not come again to this consumer.
    ///
    /// After a [`seek`](crate::Consumer::seek) that was made since it was handed out, this changes
    /// nothing: what comes again was asked for. Nor does it when the message was dropped or has
    /// expired meanwhile.
    ///
    /// # Durability
    ///
    /// As a [dequeue](crate::Queue::dequeue): when it returns, that survives the death of the
    /// process, and once flushed, of the machine. It needs no disk space.
    ///
    /// Numbers acknowledged before an older message is are remembered as ranges, at least 22 for
    /// each consumer (114 where they lie close together), the lowest first. Those in ranges beyond
    /// come again after a crash, also when they were flushed; so do all of them of a consumer for
    /// which the index file has no row (twelve consumers have one) and cannot grow, because the
    /// disk or `max_bytes` leaves no room.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`](crate::Error::Closed) when the queue was closed: the message comes again
    /// after the next opening. [`Error::NotFound`](crate::Error::NotFound) when the consumer was
    /// removed. Those of a flush that [`flush_every_ops`](crate::Options::flush_every_ops) asks
    /// for; the message is acknowledged all the same. From within the closure of
    /// [`enqueue_with`](crate::Queue::enqueue_with) it is refused, and the message comes again.
    pub fn ack(mut self) -> Result<()> {
        if let Some(holder) = &self.holder {
            // Else it would be neither acknowledged nor given back.
            holder.engine.core.check_may_wait()?;
        }
        let seq = self.seq();
        // The arena is let go of first, so that the segment can be used again.
        self.message = Message::owned(seq, Vec::new());
        match self.holder.take() {
            Some(holder) => holder.engine.ack(&holder.standing, seq, self.handed),
            None => Ok(()),
        }
    }

    /// The work was not done: the message goes back to the front of the line. Dropping the delivery
    /// does the same.
    pub fn nack(self) {
        drop(self);
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(Holder { engine, standing }) = self.holder.take() {
            let (seq, handed) = (self.seq(), self.handed);
            self.message = Message::owned(seq, Vec::new());
            engine.now_or_later(move |engine| engine.nack(&standing, seq, handed));
        }
    }
}

impl Deref for Delivery {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.message
    }
}

impl AsRef<[u8]> for Delivery {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

/// The number, the length and the attempts; never the bytes, which may be secret or long.
impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("seq", &self.seq())
            .field("len", &self.len())
            .field("attempts", &self.handed.attempts)
            .finish()
    }
}

pub(crate) fn receive(
    engine: &Arc<Engine<FileStorage>>,
    standing: &Arc<Standing<FileStorage>>,
) -> Result<Option<Delivery>> {
    let received = engine.receive(standing, AsMessage)?;
    Ok(received.map(|(message, handed)| {
        Delivery::new(message, handed, Arc::clone(engine), Arc::clone(standing))
    }))
}

pub(crate) fn receive_waiting(
    engine: &Arc<Engine<FileStorage>>,
    standing: &Arc<Standing<FileStorage>>,
    timeout: Duration,
) -> Result<Option<Delivery>> {
    engine.wait(standing, Instant::now().checked_add(timeout), || receive(engine, standing))
}

/// Receives and acknowledges until there is nothing to hand out.
pub(crate) fn for_each<E: From<Error>>(
    engine: &Arc<Engine<FileStorage>>,
    standing: &Arc<Standing<FileStorage>>,
    mut work: impl FnMut(&Delivery) -> Result<(), E>,
    mut on_gap: impl FnMut(Gap),
) -> Result<(), E> {
    while let Some(delivery) = past_gaps(|| receive(engine, standing), &mut on_gap)? {
        // Not done: the delivery is dropped, and so given back.
        work(&delivery)?;
        delivery.ack()?;
    }
    Ok(())
}
