//! What the owner does for one client: each question through the calls that its own threads use.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use super::fields::{Fields, TooShort, put_milliseconds, put_u16, put_u32, put_u64};
use super::figures_in_frames::{put_consumers, put_stats};
use super::frame::{Call, Header, MAGIC, MAX_BODY, MOST_IN_BATCH, VERSION};
use super::output::{Described, Output};
use super::socket::is_connected;
use crate::consume::consumer_state::ConsumerState;
use crate::consume::redelivery_state::Rules;
use crate::consume::step::Read;
use crate::delivery::{Delivery, handing_out};
use crate::engine::Engine;
use crate::engine::consumer_life::check_name;
use crate::engine::reading;
use crate::error::{Error, Result};
use crate::message::Message;
use crate::options::Start;
use crate::storage::{FileStorage, Storage};

/// How many messages an answer has at most: the owner gathers them before it sends the first.
const MOST_RECEIVED: usize = 64;
/// How many deliveries one client may have in flight, and how many consumers it may open.
pub(super) const MOST_IN_FLIGHT: usize = 1 << 16;
const MOST_CONSUMERS: usize = 1 << 10;

/// A read that may have to wait.
#[derive(Debug, Clone, Copy)]
pub(super) enum Later {
    Peek { consumer: u16 },
    Dequeue { consumer: u16 },
    Receive { consumer: u16, max: u32 },
}

impl Later {
    fn consumer(self) -> u16 {
        match self {
            Later::Peek { consumer }
            | Later::Dequeue { consumer }
            | Later::Receive { consumer, .. } => consumer,
        }
    }
}

/// How a question is answered that was not refused.
#[derive(Debug)]
pub(super) enum Status {
    Done,

    /// By a read, at once or later; `wait`: for how long, `None`: for ever.
    Later {
        what: Later,
        wait: Option<Duration>,
    },
}

/// What one client has of the queue. Dropping it gives back what the client has in flight, as the
/// death of its process would.
#[derive(Debug)]
pub(super) struct Answering<'a> {
    engine: Arc<Engine<FileStorage>>,
    stream: &'a UnixStream,
    /// The consumers that it opened; number 1 is the first.
    consumers: Vec<Arc<ConsumerState<FileStorage>>>,
    in_flight: BTreeMap<u64, Delivery>,
    next_delivery: u64,
    /// Whether an [`EnqueueNext`](Call::EnqueueNext) was refused.
    was_refused: bool,
}

impl<'a> Answering<'a> {
    pub(super) fn new(engine: &Arc<Engine<FileStorage>>, stream: &'a UnixStream) -> Self {
        Answering {
            engine: Arc::clone(engine),
            stream,
            consumers: Vec::new(),
            in_flight: BTreeMap::new(),
            next_delivery: 1,
            was_refused: false,
        }
    }

    fn path(&self) -> &Path {
        self.engine.core.storage.path()
    }

    pub(super) fn invalid(&self, what: &'static str, reason: String) -> Error {
        Error::invalid_argument(self.path(), what, reason)
    }

    /// Reads the first frame, and writes the body of its answer.
    pub(super) fn greet(&self, header: Header, greeting: &[u8], body: &mut Vec<u8>) -> Result<()> {
        let refuse =
            |reason: String| Err(Error::NotShared { path: self.path().to_owned(), reason });
        let mut fields = Fields(greeting);
        let is_ours = Call::of(header.kind) == Some(Call::Hello)
            && fields.bytes(MAGIC.len()) == Ok(&MAGIC[..]);
        match (is_ours, fields.u32()) {
            (true, Ok(VERSION)) => {}
            (true, Ok(asked)) => {
                return refuse(format!("it speaks version {VERSION}, and not {asked}"));
            }
            _ => return refuse("the first frame has to be a greeting".into()),
        }
        put_u32(body, VERSION);
        put_u32(body, std::process::id());
        put_u64(body, MAX_BODY);
        body.extend_from_slice(&self.engine.core.index.queue_id);
        Ok(())
    }

    /// Does what the client asks, and writes the body of the answer.
    pub(super) fn answer(
        &mut self,
        call: Call,
        header: Header,
        question: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<Status> {
        let fields = Fields(question);
        let done = match call {
            Call::Enqueue | Call::EnqueueBatch | Call::EnqueueNext => {
                self.write(call, fields, body).map(|written| written.map(|()| Status::Done))
            }
            Call::Ack | Call::Nack | Call::Extend | Call::Reject => {
                self.settle(call, fields).map(|settled| settled.map(|()| Status::Done))
            }
            Call::Peek | Call::Dequeue | Call::Receive => {
                self.begin_read(call, header.consumer, fields)
            }
            Call::OpenConsumer
            | Call::RemoveConsumer
            | Call::Fork
            | Call::Seek
            | Call::SetRedelivery => self.consumers(call, header.consumer, fields, body),
            _ => self.about_queue(call, fields, body),
        };
        done.unwrap_or_else(|TooShort| Err(self.too_short(call)))
    }

    pub(super) fn too_short(&self, call: Call) -> Error {
        self.invalid("question", format!("the body of a call {} is too short", call as u16))
    }

    fn write(
        &mut self,
        call: Call,
        mut fields: Fields<'_>,
        body: &mut Vec<u8>,
    ) -> Result<Result<()>, TooShort> {
        let (engine, stream) = (&self.engine, self.stream);
        let is_there = || is_connected(stream);
        if call == Call::EnqueueBatch {
            let count = fields.u32()?;
            if count > MOST_IN_BATCH {
                let reason = format!("{count} messages: one batch has at most {MOST_IN_BATCH}");
                return Ok(Err(self.invalid("batch", reason)));
            }
            let lens: Vec<usize> =
                (0..count).map(|_| Ok(fields.u32()? as usize)).collect::<Result<_, _>>()?;
            let messages: Vec<&[u8]> =
                lens.into_iter().map(|len| fields.bytes(len)).collect::<Result<_, _>>()?;
            return Ok(engine.enqueue_batch_while(is_there, &messages).map(|numbers| {
                put_u64(body, numbers.start);
                put_u64(body, numbers.end);
            }));
        }
        if call == Call::EnqueueNext && self.was_refused {
            let reason = "an earlier one of this connection was refused".into();
            return Ok(Err(self.invalid("message", reason)));
        }
        let written = engine.enqueue_while(is_there, fields.rest());
        self.was_refused |= call == Call::EnqueueNext && written.is_err();
        Ok(written.map(|seq| put_u64(body, seq)))
    }

    fn about_queue(
        &mut self,
        call: Call,
        mut fields: Fields<'_>,
        body: &mut Vec<u8>,
    ) -> Result<Result<Status>, TooShort> {
        let engine = &self.engine;
        let done = match call {
            Call::Flush => engine.core.flush(),
            Call::WaitDurable => engine.wait_durable(fields.u64()?),
            Call::DurableSeq => {
                put_u64(body, engine.durable_seq());
                Ok(())
            }
            Call::Stats => {
                put_stats(body, engine.stats());
                Ok(())
            }
            Call::Consumers => {
                put_consumers(body, &engine.consumer_stats());
                Ok(())
            }
            Call::SegmentTime => {
                let time = engine.segment_time(fields.u64()?);
                put_milliseconds(body, time.and_then(|at| at.duration_since(UNIX_EPOCH).ok()));
                Ok(())
            }
            _ => Err(self.invalid("call", format!("{call:?} does not come here"))),
        };
        Ok(done.map(|()| Status::Done))
    }

    fn consumers(
        &mut self,
        call: Call,
        consumer: u16,
        mut fields: Fields<'_>,
        body: &mut Vec<u8>,
    ) -> Result<Result<Status>, TooShort> {
        let done = match call {
            Call::OpenConsumer => {
                let start = match (fields.u8()?, fields.u64()?) {
                    (0, _) => Ok(Start::Oldest),
                    (1, _) => Ok(Start::End),
                    (2, seq) => Ok(Start::Seq(seq)),
                    (other, _) => Err(self.invalid("start", format!("{other}: 0, 1 or 2"))),
                };
                start.and_then(|start| {
                    let name = self.name_or_none(fields)?;
                    self.keep(self.engine.consumer_at(name, start)?, body)
                })
            }
            Call::RemoveConsumer => {
                self.name_or_none(fields).and_then(|name| self.engine.remove_consumer(name))
            }
            Call::Fork => self.existing(consumer).and_then(|from| {
                let name = self.name(fields)?;
                self.keep(self.engine.fork(&from, name)?, body)
            }),
            Call::Seek => {
                let seq = fields.u64()?;
                self.existing(consumer).and_then(|consumer| self.engine.seek(&consumer, seq))
            }
            _ => {
                let lease = fields.milliseconds()?;
                let backoff = fields.milliseconds()?.zip(fields.milliseconds()?);
                let attempts = fields.optional()?;
                let max_attempts = attempts.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
                self.existing(consumer).and_then(|consumer| {
                    // Where dead letters go is the owner's.
                    let dead_letters = consumer.dead_letter_queue();
                    let rules = Rules { lease, backoff, max_attempts, dead_letters };
                    rules.check(self.path())?;
                    self.engine.set_redelivery(&consumer, rules)
                })
            }
        };
        Ok(done.map(|()| Status::Done))
    }

    fn name<'b>(&self, fields: Fields<'b>) -> Result<&'b str> {
        let name = std::str::from_utf8(fields.rest())
            .map_err(|_| self.invalid("consumer name", "not UTF-8".into()))?;
        check_name(self.path(), name)?;
        Ok(name)
    }

    /// As [`name`](Self::name); the default consumer has none.
    fn name_or_none<'b>(&self, fields: Fields<'b>) -> Result<&'b str> {
        if fields.rest().is_empty() { Ok("") } else { self.name(fields) }
    }

    /// Keeps a consumer that the client opened, and answers with its number.
    fn keep(&mut self, opened: Arc<ConsumerState<FileStorage>>, body: &mut Vec<u8>) -> Result<()> {
        let at = match self.consumers.iter().position(|known| Arc::ptr_eq(known, &opened)) {
            Some(at) => at,
            None if self.consumers.len() >= MOST_CONSUMERS => {
                let reason = format!("this connection has {MOST_CONSUMERS} open already");
                return Err(self.invalid("consumer", reason));
            }
            None => {
                self.consumers.push(opened);
                self.consumers.len() - 1
            }
        };
        put_u16(body, at as u16 + 1);
        Ok(())
    }

    /// Returns the consumer with this number, for a call that needs it to exist.
    pub(super) fn existing(&self, number: u16) -> Result<Arc<ConsumerState<FileStorage>>> {
        if number == 0 {
            return Ok(Arc::clone(self.engine.default_consumer()?));
        }
        self.consumer(number).map(Arc::clone)
    }

    /// Returns the consumer with this number, for a read.
    fn consumer(&self, number: u16) -> Result<&Arc<ConsumerState<FileStorage>>> {
        let Some(at) = usize::from(number).checked_sub(1) else {
            return Ok(self.engine.default_consumer_state());
        };
        self.consumers.get(at).ok_or_else(|| {
            self.invalid("consumer", format!("this connection has opened no number {number}"))
        })
    }

    fn begin_read(
        &mut self,
        call: Call,
        consumer: u16,
        mut fields: Fields<'_>,
    ) -> Result<Result<Status>, TooShort> {
        let what = match call {
            Call::Receive => Later::Receive { consumer, max: fields.u32()?.max(1) },
            Call::Dequeue => Later::Dequeue { consumer },
            _ => Later::Peek { consumer },
        };
        let wait = match what {
            Later::Peek { .. } => Some(Duration::ZERO),
            _ => fields.optional()?.map(Duration::from_millis),
        };
        Ok(self.consumer(consumer).map(|_| Status::Later { what, wait }))
    }

    /// Reads for a call that may have to wait, and answers it if there is something.
    pub(super) fn read(
        &mut self,
        number: u64,
        what: Later,
        output: &mut Output<'_>,
    ) -> Result<ControlFlow<()>> {
        let consumer = Arc::clone(self.consumer(what.consumer())?);
        let max = match what {
            Later::Receive { max, .. } => (max as usize).min(MOST_RECEIVED),
            Later::Peek { .. } | Later::Dequeue { .. } => {
                let is_peek = matches!(what, Later::Peek { .. });
                let how = if is_peek { Read::Look } else { Read::Take };
                let Some(message) = reading::next(&self.engine, &consumer, how)? else {
                    return Ok(ControlFlow::Continue(()));
                };
                output.message(number, &Described::of(&message), &message, 0);
                return Ok(ControlFlow::Break(()));
            }
        };
        let free = MOST_IN_FLIGHT - self.in_flight.len().min(MOST_IN_FLIGHT);
        if free == 0 {
            let reason = format!("{MOST_IN_FLIGHT} of one client: acknowledge some first");
            return Err(self.invalid("messages in flight", reason));
        }
        let mut received = Vec::new();
        if max == 1 {
            received.extend(handing_out::receive(&self.engine, &consumer)?);
        } else {
            received = handing_out::receive_batch(&self.engine, &consumer, max.min(free))?;
        }
        if received.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let mut left = received.len();
        for mut delivery in received {
            left -= 1;
            let described = Described {
                seq: delivery.seq(),
                delivery: self.next_delivery,
                attempts: delivery.attempts(),
                origin: delivery.origin(),
            };
            output.message(number, &described, &delivery, u32::from(left > 0));
            // It holds no memory of the queue while the client works.
            delivery.release_bytes();
            self.in_flight.insert(self.next_delivery, delivery);
            self.next_delivery += 1;
        }
        Ok(ControlFlow::Break(()))
    }

    /// Does what the client says of deliveries that it has.
    fn settle(&mut self, call: Call, mut fields: Fields<'_>) -> Result<Result<()>, TooShort> {
        if call == Call::Ack {
            let mut acknowledged = Vec::new();
            let mut all_known = true;
            while !fields.rest().is_empty() {
                let delivery = self.in_flight.remove(&fields.u64()?);
                all_known &= delivery.is_some();
                acknowledged.extend(delivery);
            }
            let outcome = Delivery::ack_batch(acknowledged);
            return Ok(outcome.and_then(|()| if all_known { Ok(()) } else { Err(self.unknown()) }));
        }
        let id = fields.u64()?;
        if call == Call::Extend {
            let by = Duration::from_millis(fields.u64()?);
            let delivery = self.in_flight.get(&id).ok_or_else(|| self.unknown());
            return Ok(delivery.and_then(|delivery| delivery.extend(by)));
        }
        let delay = if call == Call::Nack { fields.milliseconds()? } else { None };
        let Some(delivery) = self.in_flight.remove(&id) else {
            return Ok(Err(self.unknown()));
        };
        match (call, delay) {
            (Call::Reject, _) => return Ok(delivery.reject()),
            (_, Some(delay)) => delivery.nack_after(delay),
            (_, None) => delivery.nack(),
        }
        Ok(Ok(()))
    }

    fn unknown(&self) -> Error {
        self.invalid("delivery", "this connection has none of that number in flight".into())
    }

    /// Returns the descriptors that are readable when these reads may find something.
    pub(super) fn ready(&self, waits: impl Iterator<Item = Later>) -> Result<Vec<BorrowedFd<'_>>> {
        // No more waits are under way than can be looked through; a sort is 4 KB of code.
        let mut consumers: Vec<u16> = Vec::new();
        for consumer in waits.map(Later::consumer) {
            if !consumers.contains(&consumer) {
                consumers.push(consumer);
            }
        }
        let ready = consumers.into_iter().map(|consumer| {
            self.consumer(consumer).and_then(|consumer| self.engine.ready_fd(consumer))
        });
        ready.collect()
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        for delivery in std::mem::take(&mut self.in_flight).into_values() {
            delivery.nack_after(Duration::ZERO);
        }
    }
}

impl Described {
    pub(super) fn of(message: &Message) -> Described {
        Described { seq: message.seq(), delivery: 0, attempts: 0, origin: message.origin() }
    }
}
