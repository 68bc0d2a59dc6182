//! The read methods, written once: the queue's own (its default consumer's) and a named consumer's are the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::place::{Deliver, Read, Standing};
use crate::reader::{Check, Cursor, Record};
use crate::shared::Shared;
use crate::storage::{FileStorage, Storage};

/// A message of its own or lent in place, whichever is sound now.
#[inline]
pub(crate) fn message<S: Storage>(
    shared: &Shared<S>,
    cursor: &mut Cursor<S::File>,
    record: &Record,
) -> Result<Message, Box<Error>> {
    let len = record.len as usize;
    if let Some(offset) = record.in_window {
        if cursor.may_lend()
            && let Some(window) = cursor.window()
        {
            return Ok(Message::lent(record.seq, window.share(), offset, len));
        }
        let mut bytes = Vec::with_capacity(len);
        let holds = cursor.copy_to(shared, record, true, &mut bytes)?;
        debug_assert!(holds, "found with `Check::Now`");
        return Ok(Message::owned(record.seq, bytes));
    }
    Ok(Message::owned(record.seq, cursor.take_gathered(shared, record)?))
}

#[inline]
pub(crate) fn next<S: Storage>(engine: &Engine<S>, standing: &Standing<S>, what: Read) -> Result<Option<Message>> {
    engine.read(standing, what, Check::Now, AsMessage)
}

struct AsMessage;

impl<S: Storage> Deliver<S> for AsMessage {
    type Delivered = Message;

    #[inline(always)]
    fn deliver(
        &mut self,
        shared: &Shared<S>,
        cursor: &mut Cursor<S::File>,
        record: &Record,
    ) -> Result<Option<Message>, Box<Error>> {
        message(shared, cursor, record).map(Some)
    }
}

#[inline(always)]
pub(crate) fn next_into<S: Storage>(
    engine: &Engine<S>,
    standing: &Standing<S>,
    what: Read,
    buffer: &mut Vec<u8>,
) -> Result<Option<u64>> {
    engine.read(standing, what, Check::Later, IntoBuffer { buffer, taken: what == Read::Take })
}

/// Replaces what a buffer holds.
struct IntoBuffer<'a> {
    buffer: &'a mut Vec<u8>,
    taken: bool,
}

impl<S: Storage> Deliver<S> for IntoBuffer<'_> {
    type Delivered = u64;

    #[inline(always)]
    fn deliver(
        &mut self,
        shared: &Shared<S>,
        cursor: &mut Cursor<S::File>,
        record: &Record,
    ) -> Result<Option<u64>, Box<Error>> {
        let holds = cursor.copy_to(shared, record, self.taken, self.buffer)?;
        Ok(holds.then_some(record.seq))
    }
}

/// What became of a read into memory of the caller's own.
#[cfg(feature = "capi")]
pub(crate) enum Fit {
    Copied { seq: u64, len: usize },
    TooSmall { len: usize },
    Empty,
}

/// The next message into the place that `room` has for so many bytes; when it has none, nothing is consumed.
#[cfg(feature = "capi")]
#[inline(always)]
pub(crate) fn next_fitting<'a, S: Storage>(
    engine: &Engine<S>,
    standing: &Standing<S>,
    what: Read,
    room: impl Fn(usize) -> Option<&'a mut [u8]>,
) -> Result<Fit, Box<Error>> {
    let mut refused = None;
    let fitting = Fitting { room, refused: &mut refused };
    match engine.read_boxed(standing, what, Check::Later, fitting) {
        Ok(Some((seq, len))) => Ok(Fit::Copied { seq, len }),
        Ok(None) => Ok(Fit::Empty),
        Err(error) => refused.map(|len| Fit::TooSmall { len }).ok_or(error),
    }
}

#[cfg(feature = "capi")]
struct Fitting<'r, R> {
    room: R,
    /// The length for which there was none.
    refused: &'r mut Option<usize>,
}

#[cfg(feature = "capi")]
impl<'a, S: Storage, R: Fn(usize) -> Option<&'a mut [u8]>> Deliver<S> for Fitting<'_, R> {
    /// The number and the length.
    type Delivered = (u64, usize);

    #[inline(always)]
    fn deliver(
        &mut self,
        shared: &Shared<S>,
        cursor: &mut Cursor<S::File>,
        record: &Record,
    ) -> Result<Option<(u64, usize)>, Box<Error>> {
        let len = record.len as usize;
        match (self.room)(len) {
            Some(out) => Ok(cursor.copy_into(shared, record, out)?.then_some((record.seq, len))),
            // Nobody is asked for more room because of what turns out to be damaged.
            None if record.in_window.is_some() && !cursor.is_verified() => Ok(None),
            None => {
                // Its payload is not read again by the call with room for it.
                cursor.keep(record);
                *self.refused = Some(len);
                // A delivery that fails, for whatever reason, leaves the message where it is.
                Err(does_not_fit(record.len))
            }
        }
    }
}

#[cfg(feature = "capi")]
#[cold]
fn does_not_fit(len: u64) -> Box<Error> {
    Box::new(Error::MessageTooLarge { len, max: 0 })
}

#[inline]
pub(crate) fn skip<S: Storage>(engine: &Engine<S>, standing: &Standing<S>) -> Result<Option<u64>> {
    engine.read(standing, Read::Skip, Check::Never, Unseen)
}

struct Unseen;

impl<S: Storage> Deliver<S> for Unseen {
    type Delivered = u64;

    #[inline(always)]
    fn deliver(&mut self, _: &Shared<S>, _: &mut Cursor<S::File>, record: &Record) -> Result<Option<u64>, Box<Error>> {
        Ok(Some(record.seq))
    }
}

pub(crate) fn batch<S: Storage>(engine: &Engine<S>, standing: &Standing<S>, max: usize) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    while messages.len() < max {
        match next(engine, standing, Read::Take) {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => break,
            Err(Error::Gap(gap)) if !messages.is_empty() => {
                standing.keep_for_later(gap);
                break;
            }
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
    engine.wait(standing, Instant::now().checked_add(timeout), || next(engine, standing, Read::Take))
}

pub(crate) fn receive(
    engine: &Arc<Engine<FileStorage>>,
    standing: &Arc<Standing<FileStorage>>,
) -> Result<Option<Delivery>> {
    let received = engine.receive(standing, message)?;
    Ok(received.map(|(message, handed)| Delivery::new(message, handed, Arc::clone(engine), Arc::clone(standing))))
}

pub(crate) fn receive_waiting(
    engine: &Arc<Engine<FileStorage>>,
    standing: &Arc<Standing<FileStorage>>,
    timeout: Duration,
) -> Result<Option<Delivery>> {
    engine.wait(standing, Instant::now().checked_add(timeout), || receive(engine, standing))
}

/// A cursor that looks ahead of a consumer.
#[derive(Debug)]
pub(crate) struct Ahead<S: Storage> {
    engine: Arc<Engine<S>>,
    standing: Arc<Standing<S>>,
    cursor: Cursor<S::File>,
    failed: bool,
    /// To be told next, the last one first: met behind messages that were too old, or pieces of one gap.
    pending: Vec<Error>,
}

impl<S: Storage> Ahead<S> {
    pub(crate) fn new(engine: &Arc<Engine<S>>, standing: &Arc<Standing<S>>) -> Ahead<S> {
        let spot = standing.with_state(|state| state.cursor.spot());
        Ahead {
            engine: Arc::clone(engine),
            standing: Arc::clone(standing),
            cursor: Cursor::new(spot),
            failed: false,
            pending: Vec::new(),
        }
    }

    pub(crate) fn next(&mut self) -> Option<Result<Message>> {
        if self.failed {
            return None;
        }
        let shared = &*self.engine.shared;
        let (cursor, pending) = (&mut self.cursor, &mut self.pending);
        let time = shared.expired_before();
        // Under the consumer's lock nothing from its place on is given back.
        let found = self.standing.with_state(|state| {
            shared.check_readable()?;
            if state.removed {
                return Err(self.standing.unknown());
            }
            let place = state.cursor.spot();
            if cursor.spot().position < place.position {
                cursor.move_to(place);
            }
            loop {
                if let Some(error) = pending.pop() {
                    return Err(error);
                }
                let found = match cursor.pass_expired(shared, time) {
                    (Some(gap), met) => {
                        pending.extend(met);
                        Err(Error::Gap(gap))
                    }
                    (None, Some(error)) => Err(error),
                    (None, None) => cursor.find(shared),
                };
                let found = match (found, &state.ledger) {
                    (Err(Error::Gap(gap)), Some(ledger)) => {
                        // What of it was told before is not told again.
                        pending.extend(ledger.untold_of(gap).into_iter().rev().map(Error::Gap));
                        continue;
                    }
                    (found, _) => found?,
                };
                let Some(record) = found else {
                    // Nothing is held open while the caller does something else.
                    cursor.release();
                    return Ok(None);
                };
                if state.ledger.as_ref().is_some_and(|ledger| ledger.is_done(record.seq)) {
                    cursor.advance();
                    continue;
                }
                let message = message(shared, cursor, &record).map_err(|error| *error)?;
                cursor.advance();
                return Ok(Some(message));
            }
        });
        match found {
            Ok(Some(message)) => Some(Ok(message)),
            Ok(None) => None,
            Err(Error::Gap(gap)) => Some(Err(Error::Gap(gap))),
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}

/// Looks ahead over messages without consuming them: [`Queue::iter`](crate::Queue::iter),
/// [`Consumer::iter`](crate::Consumer::iter).
#[derive(Debug)]
pub struct Iter {
    ahead: Result<Ahead<FileStorage>, Option<Error>>,
}

impl Iter {
    pub(crate) fn new(ahead: Result<Ahead<FileStorage>>) -> Iter {
        Iter { ahead: ahead.map_err(Some) }
    }
}

impl Iterator for Iter {
    type Item = Result<Message>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.ahead {
            Ok(ahead) => ahead.next(),
            Err(error) => error.take().map(Err),
        }
    }
}
