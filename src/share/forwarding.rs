//! What the owner does for a client that forwards: [`Local`] through questions and answers.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::answering::MOST_IN_FLIGHT;
use super::fields::{Fields, TooShort, put_milliseconds, put_optional, put_u32, put_u64};
use super::frame::Call;
use super::output::{Described, Output};
use crate::consume::consumer_state::ConsumerState;
use crate::engine::Engine;
use crate::error::{Error, Gap, Result};
use crate::forward::Position;
use crate::forward::local::{Acknowledged, Local, NextRead};
use crate::forward::over_queue::QueueLocal;
use crate::storage::FileStorage;
use crate::threads::{now, park_timeout};

/// How many messages an answer has at most, and after how many bytes it has no further one.
const MOST_READ: u32 = 64;
const ENOUGH: usize = 1 << 20;
/// The longest wait for a message. Meanwhile the owner hears nothing of this client.
const LONGEST_WAIT: Duration = Duration::from_millis(50);
/// How long a new forwarder waits for the end of the one before it, whose client has just gone.
const PREDECESSOR: Duration = Duration::from_millis(500);

/// What a forwarder knows of a queue, as of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ForwardPlaces {
    pub(super) acknowledged: Acknowledged,
    pub(super) next: u64,
    pub(super) began: u64,
    pub(super) oldest: u64,
    pub(super) kept: u64,
    pub(super) kept_bytes: u64,
    pub(super) acknowledged_at: Option<SystemTime>,
    pub(super) max_bytes: Option<u64>,
}

/// Bits of a field: which of the following are there.
const HAS_POSITION: u32 = 1;
const HAS_CHAIN: u32 = 2;
const COUNTS_DIFFER: u32 = 4;

pub(super) fn put_acknowledged(body: &mut Vec<u8>, acknowledged: &Acknowledged) {
    let Acknowledged { until, there, position, chain, counts_differ, handed } = *acknowledged;
    let bit = |is_there: bool, bit| if is_there { bit } else { 0 };
    let has = bit(position.is_some(), HAS_POSITION) | bit(chain.is_some(), HAS_CHAIN);
    put_u32(body, has | bit(counts_differ, COUNTS_DIFFER));
    put_u32(body, chain.unwrap_or_default());
    put_u64(body, until);
    put_u64(body, there);
    let Position { store, at } = position.unwrap_or_default();
    put_u64(body, store);
    put_u64(body, at);
    put_u64(body, handed);
}

pub(super) fn read_acknowledged(fields: &mut Fields<'_>) -> Result<Acknowledged, TooShort> {
    let (has, chain) = (fields.u32()?, fields.u32()?);
    let (until, there) = (fields.u64()?, fields.u64()?);
    let position = Position { store: fields.u64()?, at: fields.u64()? };
    Ok(Acknowledged {
        until,
        there,
        position: (has & HAS_POSITION != 0).then_some(position),
        chain: (has & HAS_CHAIN != 0).then_some(chain),
        counts_differ: has & COUNTS_DIFFER != 0,
        handed: fields.u64()?,
    })
}

impl ForwardPlaces {
    fn of(local: &dyn Local) -> ForwardPlaces {
        ForwardPlaces {
            acknowledged: local.acknowledged(),
            next: local.next_number(),
            began: local.began(),
            oldest: local.oldest(),
            kept: local.kept(),
            kept_bytes: local.kept_bytes(),
            acknowledged_at: local.acknowledged_at(),
            max_bytes: local.max_bytes(),
        }
    }

    fn put(&self, body: &mut Vec<u8>) {
        put_acknowledged(body, &self.acknowledged);
        for number in [self.next, self.began, self.oldest, self.kept, self.kept_bytes] {
            put_u64(body, number);
        }
        let at = self.acknowledged_at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        put_milliseconds(body, at);
        put_optional(body, self.max_bytes);
    }

    pub(super) fn read(mut fields: Fields<'_>) -> Result<ForwardPlaces, TooShort> {
        Ok(ForwardPlaces {
            acknowledged: read_acknowledged(&mut fields)?,
            next: fields.u64()?,
            began: fields.u64()?,
            oldest: fields.u64()?,
            kept: fields.u64()?,
            kept_bytes: fields.u64()?,
            acknowledged_at: fields.milliseconds()?.and_then(|since| UNIX_EPOCH.checked_add(since)),
            max_bytes: fields.optional()?,
        })
    }
}

/// A consumer that a client forwards.
#[derive(Debug)]
pub(super) struct Forwarding {
    local: QueueLocal,
    /// A gap that was read behind messages: the next answer.
    gap: Option<Gap>,
    /// The consumer's number on this connection.
    consumer: u16,
}

impl Forwarding {
    /// `is_there` returns whether the client still is.
    pub(super) fn begin(
        is_there: impl Fn() -> bool,
        engine: &Arc<Engine<FileStorage>>,
        (consumer, state): (u16, &Arc<ConsumerState<FileStorage>>),
    ) -> Result<Forwarding> {
        let until = now() + PREDECESSOR;
        loop {
            match QueueLocal::new(engine, state) {
                Err(Error::InvalidArgument { .. }) if now() < until && is_there() => {
                    park_timeout(Duration::from_millis(10));
                }
                begun => return Ok(Forwarding { local: begun?, gap: None, consumer }),
            }
        }
    }

    pub(super) fn is_of(&self, consumer: u16) -> bool {
        self.consumer == consumer
    }

    /// Does what the client asks, and writes the body of the answer. Before a read's it sends the
    /// messages that come next, each in a frame that another one follows.
    pub(super) fn answer(
        &mut self,
        call: Call,
        number: u64,
        mut fields: Fields<'_>,
        (output, body): (&mut Output<'_>, &mut Vec<u8>),
    ) -> Result<Result<()>, TooShort> {
        let done = match call {
            Call::ForwardFrom => {
                self.gap = None;
                self.local.read_from(fields.u64()?)
            }
            Call::ForwardRead => {
                let wait = fields.milliseconds()?.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
                self.read(number, wait, output)
            }
            Call::ForwardAcknowledge => {
                let mut acknowledged = read_acknowledged(&mut fields)?;
                // Not behind the queue's end, whatever a client says.
                let next = self.local.next_number();
                acknowledged.until = acknowledged.until.min(next);
                acknowledged.handed = acknowledged.handed.min(next);
                let most = acknowledged.until.min(acknowledged.handed);
                acknowledged.there = acknowledged.there.min(most);
                self.local.set_acknowledged(acknowledged)
            }
            Call::ForwardKeep => self.local.move_kept(fields.u64()?),
            Call::ForwardChain => {
                let (from, to, sum) = (fields.u64()?, fields.u64()?, fields.u32()?);
                return Ok(self.local.chain_over(from, sum, to).map(|sum| {
                    put_u32(body, u32::from(sum.is_some()));
                    put_u32(body, sum.unwrap_or_default());
                }));
            }
            _ => Ok(()),
        };
        Ok(done.map(|()| ForwardPlaces::of(&self.local).put(body)))
    }

    fn read(&mut self, number: u64, wait: Duration, output: &mut Output<'_>) -> Result<()> {
        if let Some(gap) = self.gap.take() {
            return Err(Error::Gap(gap));
        }
        if !wait.is_zero() {
            self.local.wait(wait)?;
        }
        let (mut read, mut bytes) = (0, 0);
        let in_flight = self.local.in_flight();
        if in_flight >= MOST_IN_FLIGHT {
            let reason = format!("{in_flight} of one forwarder: acknowledge some first");
            return Err(self.local.invalid("messages in flight", reason));
        }
        while read < MOST_READ && bytes < ENOUGH {
            match self.local.read()? {
                NextRead::Message(message) => {
                    output.message(number, &Described::of(&message), &message, 1);
                    (read, bytes) = (read + 1, bytes + message.len());
                }
                NextRead::Gap(gap) if read == 0 => return Err(Error::Gap(gap)),
                NextRead::Gap(gap) => {
                    self.gap = Some(gap);
                    break;
                }
                NextRead::Nothing => break,
            }
        }
        Ok(())
    }
}
