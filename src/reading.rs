//! The read methods, written once: the queue's own (its default consumer's) and a named consumer's are the same.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::delivery::Delivery;
use crate::engine::Engine;
use crate::error::{Error, Gap, Result, past_gaps};
use crate::events;
use crate::message::Message;
use crate::place::{Deliver, Read, Standing};
use crate::reader::{Check, Cursor, Record};
use crate::storage::{FileStorage, Storage, StorageFile};

/// A message of its own or lent in place, whichever is sound now. `None` when it is to be looked for again.
#[inline]
pub(crate) fn message<F: StorageFile>(cursor: &mut Cursor<F>, record: &Record) -> Option<Message> {
    let len = record.len as usize;
    if let Some(offset) = record.in_window {
        if cursor.may_lend()
            && let Some(window) = cursor.window()
        {
            return Some(Message::lent(record.seq, window.share(), offset, len));
        }
        let mut bytes = Vec::with_capacity(len);
        return cursor.copy_to(record, true, &mut bytes).then(|| Message::owned(record.seq, bytes));
    }
    cursor.take_gathered(record).map(|bytes| Message::owned(record.seq, bytes))
}

#[inline]
pub(crate) fn next<S: Storage>(engine: &Engine<S>, standing: &Standing<S>, what: Read) -> Result<Option<Message>> {
    engine.read(standing, what, Check::Now, AsMessage)
}

pub(crate) struct AsMessage;

impl<S: Storage> Deliver<S> for AsMessage {
    type Delivered = Message;

    #[inline(always)]
    fn deliver(&mut self, cursor: &mut Cursor<S::File>, record: &Record) -> Result<Option<Message>, Box<Error>> {
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
    fn deliver(&mut self, cursor: &mut Cursor<S::File>, record: &Record) -> Result<Option<u64>, Box<Error>> {
        Ok(cursor.copy_to(record, self.taken, self.buffer).then_some(record.seq))
    }
}

/// What became of a message that was to be read into memory of the caller's own.
#[cfg(feature = "capi")]
pub(crate) enum Fit {
    Copied { seq: u64, len: usize },
    TooSmall { len: usize },
}

/// The next message into the place that `room` has for so many bytes; when it has none, nothing is consumed. `None` when there
/// is no message.
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
    fn deliver(&mut self, cursor: &mut Cursor<S::File>, record: &Record) -> Result<Option<Fit>, Box<Error>> {
        let len = record.len as usize;
        match (self.room)(len) {
            Some(out) => Ok(cursor.copy_into(record, out).then_some(Fit::Copied { seq: record.seq, len })),
            // Nobody is asked for more room because of what turns out to be damaged.
            None if record.in_window.is_some() && !cursor.is_verified() => Ok(None),
            None => {
                // Its payload is not read again by the call with room for it.
                cursor.keep(record);
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
    fn deliver(&mut self, _: &mut Cursor<S::File>, record: &Record) -> Result<Option<u64>, Box<Error>> {
        Ok(Some(record.seq))
    }
}

pub(crate) fn batch<S: Storage>(engine: &Engine<S>, standing: &Standing<S>, max: usize) -> Result<Vec<Message>> {
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
    engine.wait(standing, Instant::now().checked_add(timeout), || next(engine, standing, Read::Take))
}

pub(crate) fn receive(
    engine: &Arc<Engine<FileStorage>>,
    standing: &Arc<Standing<FileStorage>>,
) -> Result<Option<Delivery>> {
    let received = engine.receive(standing, AsMessage)?;
    Ok(received.map(|(message, handed)| Delivery::new(message, handed, Arc::clone(engine), Arc::clone(standing))))
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

/// A cursor that looks ahead of a consumer.
#[derive(Debug)]
pub(crate) struct Ahead<S: Storage> {
    engine: Arc<Engine<S>>,
    standing: Arc<Standing<S>>,
    cursor: Cursor<S::File>,
    failed: bool,
    /// Pieces of a gap that are to be told next, the last one first.
    pieces: Vec<Gap>,
}

impl<S: Storage> Ahead<S> {
    pub(crate) fn new(engine: &Arc<Engine<S>>, standing: &Arc<Standing<S>>) -> Result<Ahead<S>> {
        engine.shared.check_readable()?;
        let spot = standing.with_state(|state| state.cursor.spot());
        Ok(Ahead {
            engine: Arc::clone(engine),
            standing: Arc::clone(standing),
            cursor: Cursor::new(spot),
            failed: false,
            pieces: Vec::new(),
        })
    }

    pub(crate) fn next(&mut self) -> Option<Result<Message>> {
        let _told = events::at_end();
        if self.failed {
            return None;
        }
        let shared = &*self.engine.shared;
        let (cursor, pieces) = (&mut self.cursor, &mut self.pieces);
        let time = shared.expired_before();
        // Under the consumer's lock nothing from its place on is given back.
        let found = shared.check_readable().and_then(|()| {
            self.standing.with_state(|state| {
                state.check(shared, &self.standing)?;
                let place = state.cursor.spot();
                if cursor.spot().position < place.position {
                    cursor.move_to(place);
                }
                loop {
                    if let Some(piece) = pieces.pop() {
                        return Err(Error::Gap(piece));
                    }
                    let found = cursor.pass_expired(shared, time).and_then(|()| cursor.find(shared));
                    let found = match (found, &state.ledger) {
                        (Err(Error::Gap(gap)), Some(ledger)) => {
                            // What of it was told before is not told again.
                            pieces.extend(ledger.untold_of(gap).into_iter().rev());
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
                    if let Some(message) = message(cursor, &record) {
                        cursor.advance();
                        return Ok(Some(message));
                    }
                }
            })
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
///
/// It ends at the end of the queue and goes on when asked again after new messages came. Gaps come as errors between the
/// messages, and [`past_gaps`](Self::past_gaps) takes them out; after any other error it is at its end for good.
#[derive(Debug)]
pub struct Iter {
    ahead: Result<Ahead<FileStorage>, Option<Error>>,
}

impl Iter {
    pub(crate) fn new(ahead: Result<Ahead<FileStorage>>) -> Iter {
        Iter { ahead: ahead.map_err(Some) }
    }

    /// The same without the gaps, which are handed to `on_gap` where they lie.
    ///
    /// ```
    /// # fn main() -> mmq::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let queue = mmq::Queue::open(dir.path())?;
    /// # queue.enqueue("a message")?;
    /// for message in queue.iter().past_gaps(|gap| eprintln!("{gap}")) {
    ///     println!("{:?}", message?.as_str());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn past_gaps(mut self, mut on_gap: impl FnMut(Gap)) -> impl Iterator<Item = Result<Message>> {
        std::iter::from_fn(move || past_gaps(|| self.next().transpose(), &mut on_gap).transpose())
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
