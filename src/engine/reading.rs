//! The read methods, written once for [`Queue`](crate::Queue) (its default consumer) and
//! [`Consumer`](crate::Consumer).

use std::time::Duration;

use crate::commit::Core;
use crate::consume::consumer_state::ConsumerState;
use crate::consume::step::{Deliver, Read};
use crate::engine::Engine;
use crate::error::Result;
use crate::memory::Window;
use crate::message::Message;
use crate::message_batch::MessageBatch;
use crate::read::{Check, Cursor, Record, Then};
use crate::storage::{Storage, StorageFile};
use crate::threads::now;

/// Returns the window from which the record may be lent, and the offset of its payload there;
/// `None` where the payload must be copied. Only this function decides whether lending is sound.
#[inline(always)]
pub(crate) fn lendable<F>(cursor: &mut Cursor<F>, record: Record) -> Option<(&mut Window, usize)>
where
    F: StorageFile,
{
    let offset = record.in_window.filter(|_| cursor.may_lend())?;
    cursor.window().map(|window| (window, offset))
}

/// Returns the record as a message: lent in place where that is sound, else copied. `None` when the
/// payload is damaged: then the caller searches for the record again, with checks.
#[inline]
pub(crate) fn message<F: StorageFile>(cursor: &mut Cursor<F>, record: Record) -> Option<Message> {
    let len = record.len as usize;
    if let Some((window, offset)) = lendable(cursor, record) {
        return Some(Message::lent(record.seq, window.share(), offset, len));
    }
    if record.in_window.is_none() {
        let gathered = cursor.take_gathered(record.seq);
        return gathered
            .map(|(bytes, origin)| Message::owned(record.seq, bytes).with_origin(origin));
    }
    let mut bytes = Vec::with_capacity(len);
    cursor.copy_to(record, Then::Stays, &mut bytes).then(|| Message::owned(record.seq, bytes))
}

/// Reads the next message.
#[inline]
pub(crate) fn next<S: Storage>(
    engine: &Engine<S>,
    consumer: &ConsumerState<S>,
    what: Read,
) -> Result<Option<Message>> {
    engine.read(consumer, what, Check::Now, AsMessage)
}

/// Delivers a [`Message`].
#[derive(Clone, Copy)]
pub(crate) struct AsMessage;

impl<S: Storage> Deliver<S> for AsMessage {
    type Delivered = Message;

    #[inline(always)]
    fn deliver(&mut self, cursor: &mut Cursor<S::File>, record: Record) -> Option<Message> {
        message(cursor, record)
    }
}

/// Takes the next message, for a call that waits.
pub(crate) fn take_awaited<S: Storage>(
    engine: &Engine<S>,
    consumer: &ConsumerState<S>,
) -> Result<Option<Message>> {
    engine.read_awaited(consumer, Read::Take, AsMessage)
}

/// Reads the next message into `buffer` and returns its sequence number.
#[inline(always)]
pub(crate) fn next_into<S: Storage>(
    engine: &Engine<S>,
    consumer: &ConsumerState<S>,
    what: Read,
    buffer: &mut Vec<u8>,
) -> Result<Option<u64>> {
    let then = if what == Read::Take { Then::StepsOver } else { Then::Stays };
    engine.read(consumer, what, Check::Later, IntoBuffer { buffer, then })
}

/// Delivers into a buffer and replaces its content.
struct IntoBuffer<'a> {
    buffer: &'a mut Vec<u8>,
    then: Then,
}

impl<S: Storage> Deliver<S> for IntoBuffer<'_> {
    type Delivered = u64;

    #[inline(always)]
    fn deliver(&mut self, cursor: &mut Cursor<S::File>, record: Record) -> Option<u64> {
        cursor.copy_to(record, self.then, self.buffer).then_some(record.seq)
    }
}

/// Whether a message fitted into the caller's memory.
#[cfg(feature = "capi")]
pub(crate) enum Fit {
    Copied { seq: u64, len: usize },
    TooSmall { len: usize },
}

/// Copies the next message into the memory that `room` returns for its length. When `room` returns
/// `None`, the message stays. Returns `None` when there is no message.
#[cfg(feature = "capi")]
#[inline(always)]
pub(crate) fn next_fitting<'a, S: Storage>(
    engine: &Engine<S>,
    consumer: &ConsumerState<S>,
    what: Read,
    room: impl Fn(usize) -> Option<&'a mut [u8]>,
) -> Result<Option<Fit>, Box<crate::error::Error>> {
    engine.read_boxed(consumer, what, Check::Later, Fitting { room })
}

#[cfg(feature = "capi")]
impl Fit {
    #[inline(always)]
    pub(crate) fn is_copied(&self) -> bool {
        matches!(self, Fit::Copied { .. })
    }
}

#[cfg(feature = "capi")]
struct Fitting<R> {
    room: R,
}

#[cfg(feature = "capi")]
impl<'a, S: Storage, R: Fn(usize) -> Option<&'a mut [u8]>> Deliver<S> for Fitting<R> {
    type Delivered = Fit;

    #[inline(always)]
    fn deliver(&mut self, cursor: &mut Cursor<S::File>, record: Record) -> Option<Fit> {
        fit(cursor, record, (self.room)(record.len as usize))
    }

    #[inline(always)]
    fn took(fit: &Fit) -> bool {
        fit.is_copied()
    }
}

/// Copies the record into `room`, which has its length. Leaves the record where it is when there is
/// no room. `None` when its payload is damaged, or must be verified first.
#[cfg(feature = "capi")]
#[inline(always)]
pub(crate) fn fit<F: StorageFile>(
    cursor: &mut Cursor<F>,
    record: Record,
    room: Option<&mut [u8]>,
) -> Option<Fit> {
    let len = record.len as usize;
    match room {
        Some(out) => cursor.copy_into(record, out).then_some(Fit::Copied { seq: record.seq, len }),
        // Check it first: do not ask a caller for more room for a damaged message.
        None if record.in_window.is_some() && !cursor.is_verified() => None,
        None => {
            // Remember it, so that the next call, with enough room, does not search for the record
            // again.
            cursor.remember(record);
            Some(Fit::TooSmall { len })
        }
    }
}

/// Skips the next message without reading its payload. Returns its sequence number, or `None`.
#[inline]
pub(crate) fn skip<S: Storage>(
    engine: &Engine<S>,
    consumer: &ConsumerState<S>,
) -> Result<Option<u64>> {
    engine.read(consumer, Read::Skip, Check::Never, Unseen)
}

/// Skips messages below `to` without counting them for `flush_every_ops`: a forwarder, which skips
/// messages that its destination already has, chooses itself when to flush. Returns how many.
#[cfg(feature = "forward")]
pub(crate) fn pass<S: Storage>(
    engine: &Engine<S>,
    consumer: &ConsumerState<S>,
    to: u64,
) -> Result<usize> {
    let _events = crate::events::at_end();
    let step = consumer.take_batch(&engine.core, usize::MAX, Check::Never, Below(to), engine);
    if step.crossed {
        engine.crossed(consumer);
    }
    step.outcome.map(|passed| passed.unwrap_or(0)).map_err(|error| *error)
}

/// Delivers nothing. Takes the messages below a sequence number.
#[cfg(feature = "forward")]
struct Below(u64);

#[cfg(feature = "forward")]
impl<S: Storage> Deliver<S> for Below {
    /// Whether the message lies below the number.
    type Delivered = bool;

    #[inline(always)]
    fn deliver(&mut self, _: &mut Cursor<S::File>, record: Record) -> Option<bool> {
        Some(record.seq < self.0)
    }

    #[inline(always)]
    fn took(is_below: &bool) -> bool {
        *is_below
    }
}

/// Delivers only the sequence number.
struct Unseen;

impl<S: Storage> Deliver<S> for Unseen {
    type Delivered = u64;

    #[inline(always)]
    fn deliver(&mut self, _: &mut Cursor<S::File>, record: Record) -> Option<u64> {
        Some(record.seq)
    }
}

/// Takes up to `max` messages, fewer at the end of the queue, in front of a gap, or when another
/// thread waits for the consumer.
pub(crate) fn batch<S: Storage>(
    engine: &Engine<S>,
    consumer: &ConsumerState<S>,
    max: usize,
) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    engine.take_batch(consumer, max, Check::Now, Collected(&mut messages))?;
    Ok(messages)
}

/// Takes up to `max` messages into `batch`, whose content they replace. Returns how many.
pub(crate) fn batch_into<S: Storage>(
    engine: &Engine<S>,
    consumer: &ConsumerState<S>,
    batch: &mut MessageBatch,
    max: usize,
) -> Result<usize> {
    batch.clear();
    engine.take_batch(consumer, max, Check::Later, IntoBatch(batch))
}

/// Delivers into a batch, behind what is there.
struct IntoBatch<'a>(&'a mut MessageBatch);

impl<S: Storage> Deliver<S> for IntoBatch<'_> {
    type Delivered = ();

    #[inline(always)]
    fn deliver(&mut self, cursor: &mut Cursor<S::File>, record: Record) -> Option<()> {
        cursor.append_to(record, self.0.bytes_mut()).then(|| self.0.note(record.seq))
    }

    #[inline(always)]
    fn deliver_run(&mut self, cursor: &mut Cursor<S::File>, core: &Core<S>, most: usize) -> usize {
        cursor.append_run(core, most, self.0)
    }
}

/// Delivers [`Message`]s behind those that are there.
struct Collected<'a>(&'a mut Vec<Message>);

impl<S: Storage> Deliver<S> for Collected<'_> {
    type Delivered = ();

    #[inline(always)]
    fn deliver(&mut self, cursor: &mut Cursor<S::File>, record: Record) -> Option<()> {
        message(cursor, record).map(|message| self.0.push(message))
    }
}

/// Takes the next message; waits for one at most `timeout`.
pub(crate) fn next_waiting<S: Storage>(
    engine: &Engine<S>,
    consumer: &ConsumerState<S>,
    timeout: Duration,
) -> Result<Option<Message>> {
    // A timeout that overflows the clock means forever.
    engine.wait(consumer, now().checked_add(timeout), || take_awaited(engine, consumer))
}
