//! The read methods, written once: the queue's own (its default consumer's) and a named consumer's
//! are the same.

use std::time::{Duration, Instant};

use crate::consume::standing::{Deliver, Read, Standing};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::memory::Window;
use crate::message::Message;
use crate::read::{Check, Cursor, Record, Then};
use crate::storage::{Storage, StorageFile};

/// The window that the record may be lent from, and where in it its payload lies; `None` where it
/// must be copied. The one place where it is decided whether lending is sound.
#[inline(always)]
pub(crate) fn lendable<'a, F>(
    cursor: &'a mut Cursor<F>,
    record: &Record,
) -> Option<(&'a mut Window, usize)>
where
    F: StorageFile,
{
    let offset = record.in_window.filter(|_| cursor.may_lend())?;
    cursor.window().map(|window| (window, offset))
}

/// A message of its own or lent in place, whichever is sound now. `None` when it is to be looked
/// for again.
#[inline]
pub(crate) fn message<F: StorageFile>(cursor: &mut Cursor<F>, record: &Record) -> Option<Message> {
    let len = record.len as usize;
    if let Some((window, offset)) = lendable(cursor, record) {
        return Some(Message::lent(record.seq, window.share(), offset, len));
    }
    if record.in_window.is_none() {
        return cursor.take_gathered(record).map(|bytes| Message::owned(record.seq, bytes));
    }
    let mut bytes = Vec::with_capacity(len);
    cursor.copy_to(record, Then::Stays, &mut bytes).then(|| Message::owned(record.seq, bytes))
}

#[inline]
pub(crate) fn next<S: Storage>(
    engine: &Engine<S>,
    standing: &Standing<S>,
    what: Read,
) -> Result<Option<Message>> {
    engine.read(standing, what, Check::Now, AsMessage)
}

pub(crate) struct AsMessage;

impl<S: Storage> Deliver<S> for AsMessage {
    type Delivered = Message;

    #[inline(always)]
    fn deliver(
        &mut self,
        cursor: &mut Cursor<S::File>,
        record: &Record,
    ) -> Result<Option<Message>, Box<Error>> {
        Ok(message(cursor, record))
    }
}

#[inline(always)]
pub(crate) fn next_into<S: Storage>(
    engine: &Engine<S>,
    standing: &Standing<S>,
    what: Read,
    buffer: &mut Vec<u8>,
) -> Result<Option<u64>> {
    let then = if what == Read::Take { Then::StepsOver } else { Then::Stays };
    engine.read(standing, what, Check::Later, IntoBuffer { buffer, then })
}

/// Replaces what a buffer holds.
struct IntoBuffer<'a> {
    buffer: &'a mut Vec<u8>,
    then: Then,
}

impl<S: Storage> Deliver<S> for IntoBuffer<'_> {
    type Delivered = u64;

    #[inline(always)]
    fn deliver(
        &mut self,
        cursor: &mut Cursor<S::File>,
        record: &Record,
    ) -> Result<Option<u64>, Box<Error>> {
        Ok(cursor.copy_to(record, self.then, self.buffer).then_some(record.seq))
    }
}

/// What became of a message that was to be read into memory of the caller's own.
#[cfg(feature = "capi")]
pub(crate) enum Fit {
    Copied { seq: u64, len: usize },
    TooSmall { len: usize },
}

/// The next message into the place that `room` has for so many bytes; when it has none, nothing is
/// consumed. `None` when there is no message.
#[cfg(feature = "capi")]
#[inline(always)]
pub(crate) fn next_fitting<'a, S: Storage>(
    engine: &Engine<S>,
    standing: &Standing<S>,
    what: Read,
    room: impl Fn(usize) -> Option<&'a mut [u8]>,
) -> Result<Option<Fit>, Box<Error>> {
    engine.read_boxed(standing, what, Check::Later, Fitting { room })
}

#[cfg(feature = "capi")]
struct Fitting<R> {
    room: R,
}

#[cfg(feature = "capi")]
impl<'a, S: Storage, R: Fn(usize) -> Option<&'a mut [u8]>> Deliver<S> for Fitting<R> {
    type Delivered = Fit;

    #[inline(always)]
    fn deliver(
        &mut self,
        cursor: &mut Cursor<S::File>,
        record: &Record,
    ) -> Result<Option<Fit>, Box<Error>> {
        let len = record.len as usize;
        match (self.room)(len) {
            Some(out) => {
                Ok(cursor.copy_into(record, out).then_some(Fit::Copied { seq: record.seq, len }))
            }
            // Nobody is asked for more room because of what turns out to be damaged.
            None if record.in_window.is_some() && !cursor.is_verified() => Ok(None),
            None => {
                // Its payload is not read again by the call with room for it.
                cursor.remember(record);
                Ok(Some(Fit::TooSmall { len }))
            }
        }
    }

    #[inline(always)]
    fn took(fit: &Fit) -> bool {
        matches!(fit, Fit::Copied { .. })
    }
}

#[inline]
pub(crate) fn skip<S: Storage>(engine: &Engine<S>, standing: &Standing<S>) -> Result<Option<u64>> {
    engine.read(standing, Read::Skip, Check::Never, Unseen)
}

struct Unseen;

impl<S: Storage> Deliver<S> for Unseen {
    type Delivered = u64;

    #[inline(always)]
    fn deliver(
        &mut self,
        _: &mut Cursor<S::File>,
        record: &Record,
    ) -> Result<Option<u64>, Box<Error>> {
        Ok(Some(record.seq))
    }
}

pub(crate) fn batch<S: Storage>(
    engine: &Engine<S>,
    standing: &Standing<S>,
    max: usize,
) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    while messages.len() < max {
        let what = if messages.is_empty() { Read::Take } else { Read::TakeMore };
        match next(engine, standing, what) {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => break,
            // What was taken is handed over; what failed fails again at the next call.
            Err(_) if !messages.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(messages)
}

pub(crate) fn next_waiting<S: Storage>(
    engine: &Engine<S>,
    standing: &Standing<S>,
    timeout: Duration,
) -> Result<Option<Message>> {
    // A timeout beyond what the clock can say is for ever.
    engine
        .wait(standing, Instant::now().checked_add(timeout), || next(engine, standing, Read::Take))
}
