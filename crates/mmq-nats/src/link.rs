//! Between the forwarder's thread and the one that has the client.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use tokio::sync::{mpsc, oneshot};

use super::ask::StreamAnswer;
use super::session;
use super::words::{InBatch, Letterhead};
use crate::{NatsMode, NatsOrder, ZERO};
use mmq::forward::{Mark, Outgoing, OutgoingKind, Trouble};
use parking_lot::{Condvar, Mutex};

/// The longest wait for the word of a gap: long enough for most links. When it is lost, it is sent
/// again with the message behind the gap.
const WORD: Duration = Duration::from_millis(300);

/// A message that is ready but for its conditions.
pub(super) struct ReadyMessage {
    pub(super) seq: u64,
    pub(super) sum: u32,
    pub(super) kind: OutgoingKind,
    pub(super) headers: HeaderMap,
    pub(super) bytes: Vec<u8>,
}

/// What is acknowledged as one: a message, or a batch.
pub(super) type SendUnit = Vec<ReadyMessage>;

/// One session, as the forwarder's thread has it. Dropping it ends the session and the connection;
/// nobody waits for their end.
pub(super) struct Link {
    units: mpsc::UnboundedSender<Vec<SendUnit>>,
    /// Its end is the session's.
    _quit: oneshot::Sender<()>,
    shared: Arc<LinkState>,
    letterhead: Letterhead,
    mark: Option<Mark>,
    /// What the stream has answered, once it has.
    mode: Option<NatsMode>,
    longest: u64,
    /// How many units were handed over.
    sent: u64,
    /// Of each send that is not acknowledged: how many units there were with it.
    sends: VecDeque<u64>,
    /// What was last answered: the first number that is not acknowledged, and where the stream
    /// ended behind the one before.
    until: u64,
    position: u64,
}

/// What the two threads share.
#[derive(Default)]
pub(super) struct LinkState {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    answer: Option<StreamAnswer>,
    trouble: Option<Trouble>,
    is_over: bool,
    /// How many messages a batch may have, if it had too many.
    most: Option<usize>,
    /// How many units are acknowledged.
    units: u64,
    /// The first number that is not.
    until: u64,
    /// Where the stream ended behind the one before.
    position: u64,
    /// The forwarder waits for so many units. (To wake it for each would cost more than all else.)
    awaited: u64,
}

impl LinkState {
    pub(super) fn answer(&self, answer: StreamAnswer) {
        self.heard.lock().answer = Some(answer);
        self.changed.notify_all();
    }

    /// So many units are acknowledged, all numbers below `until`, the last one at `position`.
    pub(super) fn acknowledge(&self, units: u64, until: u64, position: u64) {
        let mut heard = self.heard.lock();
        heard.units = units;
        heard.position = position;
        heard.until = heard.until.max(until);
        if units >= heard.awaited {
            self.changed.notify_all();
        }
    }

    /// A batch may have so many messages, and had more.
    pub(super) fn limit(&self, most: usize) {
        self.heard.lock().most = Some(most);
    }

    fn fail(&self, trouble: Option<Trouble>) {
        let mut heard = self.heard.lock();
        heard.trouble = trouble;
        heard.is_over = true;
        self.changed.notify_all();
    }
}

/// Says that the session is over, also when its thread ends by a panic of the client.
struct Over(Arc<LinkState>, Option<Trouble>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.fail(self.1.take());
    }
}

impl Link {
    /// Begins a session: its thread connects, and asks.
    pub(super) fn begin(
        order: NatsOrder,
        letterhead: Letterhead,
        mark: Option<Mark>,
    ) -> Result<Link, Trouble> {
        let (units, commands) = mpsc::unbounded_channel();
        let (quit, until_quit) = oneshot::channel();
        let shared = Arc::new(LinkState::default());
        let (inside, said) = (shared.clone(), letterhead.clone());
        let thread = thread::Builder::new().name("mmq-nats".into()).spawn(move || {
            let mut over = Over(inside.clone(), None);
            over.1 = session::run(&order, &said, mark, commands, until_quit, &inside);
        });
        thread.map_err(|error| letterhead.again(error))?;
        Ok(Link {
            units,
            _quit: quit,
            shared,
            letterhead,
            mark,
            mode: None,
            longest: 0,
            sent: 0,
            sends: VecDeque::new(),
            until: 0,
            position: 0,
        })
    }

    /// Whether it begins this session, and nobody has had its answer yet.
    pub(super) fn begins(&self, letterhead: &Letterhead, mark: Option<Mark>) -> bool {
        self.mode.is_none() && self.letterhead == *letterhead && self.mark == mark
    }

    /// What the stream answers, if it does so within this time.
    pub(super) fn answer(&mut self, wait: Duration) -> Result<Option<StreamAnswer>, Trouble> {
        let deadline = Instant::now() + wait;
        let mut heard = self.shared.heard.lock();
        loop {
            if let Some(answer) = heard.answer.take() {
                (self.mode, self.longest) = (Some(answer.mode), answer.longest);
                return Ok(Some(answer));
            }
            if heard.is_over {
                return Err(self.trouble(&mut heard));
            }
            if self.shared.changed.wait_until(&mut heard, deadline).timed_out() {
                return Ok(None);
            }
        }
    }

    fn trouble(&self, heard: &mut Heard) -> Trouble {
        heard.trouble.take().unwrap_or_else(|| self.letterhead.again("the client has ended"))
    }

    /// How many messages a batch may have, if one had too many.
    pub(super) fn most(&self) -> Option<usize> {
        self.shared.heard.lock().most
    }

    pub(super) fn send(&mut self, messages: &[Outgoing<'_>]) -> Result<(), Trouble> {
        let is_batch = self.mode == Some(NatsMode::Batch);
        let ready = messages.iter().enumerate().map(|(at, message)| {
            let is_before = is_batch && at + 1 < messages.len();
            let within = if is_before { InBatch::Before } else { InBatch::MayBeLast };
            ReadyMessage {
                seq: message.seq,
                sum: message.sum,
                kind: message.kind,
                headers: self.letterhead.headers(message, within, self.longest),
                bytes: message.bytes.to_vec(),
            }
        });
        let units: Vec<SendUnit> =
            if is_batch { vec![ready.collect()] } else { ready.map(|it| vec![it]).collect() };
        self.sent += units.len() as u64;
        self.sends.push_back(self.sent);
        // (When the other side has ended, `acknowledged` says why.)
        let _ = self.units.send(units);
        // Nobody asks whether the word of a gap has arrived, when nothing is behind it.
        if messages.last().is_some_and(|last| last.kind == OutgoingKind::Gap) {
            self.wait_for(self.sent, WORD)?;
        }
        Ok(())
    }

    /// Waits until so many units are acknowledged, and notes what is. What was acknowledged before
    /// a trouble is answered before it.
    fn wait_for(&mut self, units: u64, wait: Duration) -> Result<(), Trouble> {
        let deadline = Instant::now() + wait;
        let mut heard = self.shared.heard.lock();
        heard.awaited = units;
        while heard.units < units {
            if heard.is_over {
                if heard.until > self.until {
                    break;
                }
                return Err(self.trouble(&mut heard));
            }
            if wait == ZERO || Instant::now() >= deadline {
                break;
            }
            self.shared.changed.wait_until(&mut heard, deadline);
        }
        heard.awaited = u64::MAX;
        while self.sends.front().is_some_and(|send| *send <= heard.units) {
            self.sends.pop_front();
        }
        (self.until, self.position) = (heard.until, heard.position);
        Ok(())
    }

    /// The first number that is not acknowledged, and where the stream ended behind the one before.
    pub(super) fn acknowledged(&mut self, wait: Duration) -> Result<(u64, u64), Trouble> {
        let oldest = self.sends.front().copied().unwrap_or(u64::MAX);
        self.wait_for(oldest, wait)?;
        Ok((self.until, self.position))
    }
}
