//! The thread that has the client: connects, publishes, hears.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use async_nats::client::PublishErrorKind;
use async_nats::status::StatusCode;
use async_nats::{Client, Message, Subscriber};
use futures_core::Stream;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, interval_at};

use super::alarm::Alarm;
use super::ask::{StreamAnswer, ask};
use super::link::{LinkState, SendUnit};
use super::login::{login, random};
use super::words::{
    BATCH_ID, BATCH_SEQ, COMMIT, ID, LAST, LAST_ID, LAST_OF_SUBJECT, Letterhead, STREAM, length,
    short,
};
use crate::{NatsMode, NatsOrder};
use mmq::forward::{Mark, OutgoingKind, Trouble};

/// The time between two questions for a sign of life, when nothing is in flight.
const PULSE: Duration = Duration::from_secs(15);

/// The pause while the stream knows the id of a message that it does not hold any more.
const DUPLICATES: Duration = Duration::from_secs(5);

/// One session, to its end: why it ended, unless this side ended it.
pub(super) fn run(
    order: &NatsOrder,
    letterhead: &Letterhead,
    mark: Option<Mark>,
    commands: mpsc::UnboundedReceiver<Vec<SendUnit>>,
    quit: oneshot::Receiver<()>,
    shared: &LinkState,
) -> Option<Trouble> {
    let runtime = match ::tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Some(letterhead.again(error)),
    };
    let over = runtime.block_on(async {
        ::tokio::select! {
            _ = quit => None,
            trouble = work(order, letterhead, mark, commands, shared) => Some(trouble),
        }
    });
    // The connection ends with it, whatever was not written yet. (A look-up of a name may go on.)
    runtime.shutdown_background();
    over
}

async fn work(
    order: &NatsOrder,
    letterhead: &Letterhead,
    mark: Option<Mark>,
    mut commands: mpsc::UnboundedReceiver<Vec<SendUnit>>,
    shared: &LinkState,
) -> Trouble {
    let alarm = Arc::new(Alarm::default());
    let began = ::tokio::select! {
        began = Session::begin(order, letterhead, mark, &alarm) => began,
        () = alarm.rung.notified() => Err(alarm.trouble(letterhead, &order.inbox)),
    };
    let (mut session, answer) = match began {
        Ok(began) => began,
        Err(trouble) => return trouble,
    };
    shared.answer(answer);
    let mut pulse = interval_at(Instant::now() + PULSE, PULSE);
    loop {
        let outcome = ::tokio::select! {
            units = commands.recv() => match units {
                Some(units) => {
                    session.waiting.extend(units);
                    Ok(())
                }
                None => pending().await,
            },
            message = next(&mut session.answers) => session.hear(message),
            _ = pulse.tick() => session.pulse().await,
            () = alarm.rung.notified() => Err(alarm.trouble(letterhead, &order.inbox)),
        };
        shared.acknowledge(session.acknowledged, session.until, session.position);
        let published = match outcome {
            Ok(()) => session.publish().await,
            Err(trouble) => Err(trouble),
        };
        if let Err(trouble) = published {
            if let Some(most) = session.most {
                shared.limit(most);
            }
            return trouble;
        }
    }
}

struct Session<'a> {
    client: Client,
    letterhead: &'a Letterhead,
    answers: Subscriber,
    /// Where answers go, without the count of units behind it.
    inbox: String,
    mode: NatsMode,
    /// The stream takes only our messages, so its last position may be the condition.
    is_own: bool,
    /// What the stream takes in one message, headers and all.
    longest: u64,
    /// How many messages a batch may have, if one had too many.
    most: Option<usize>,
    /// The number of the last batch. It begins anywhere.
    batches: u64,
    /// How many bytes had come when the server was asked for a sign of life.
    pulse: Option<u64>,
    /// The last position, as far as it is known or sent.
    tail: u64,
    /// The id of the message that was sent last.
    last_id: Option<String>,
    waiting: VecDeque<SendUnit>,
    in_flight: VecDeque<InFlight>,
    /// How many units were published, and how many are acknowledged.
    published: u64,
    acknowledged: u64,
    /// The first number that is not acknowledged, and where the stream ended behind the one
    /// before.
    until: u64,
    position: u64,
}

/// A unit that is not acknowledged.
struct InFlight {
    first: u64,
    last: u64,
    count: usize,
    /// The position that it will have.
    position: Option<u64>,
}

impl<'a> Session<'a> {
    async fn begin(
        order: &NatsOrder,
        letterhead: &'a Letterhead,
        mark: Option<Mark>,
        alarm: &Arc<Alarm>,
    ) -> Result<(Session<'a>, StreamAnswer), Trouble> {
        let client = login(order, letterhead, alarm).await?;
        let inbox = format!("{}.{}.", order.inbox, short(random(), 8));
        let answers = client.subscribe(format!("{inbox}*")).await;
        let answers = answers.map_err(|error| letterhead.again(error))?;
        let answer = ask(&client, order, letterhead, mark).await?;
        let StreamAnswer { mode, is_own, tail, longest, .. } = answer;
        let session = Session {
            client,
            letterhead,
            answers,
            inbox,
            mode,
            is_own,
            longest,
            most: None,
            tail,
            batches: random(),
            pulse: None,
            position: 0,
            last_id: None,
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            published: 0,
            acknowledged: 0,
            until: 0,
        };
        Ok((session, answer))
    }

    /// Publishes what waits, and may go before more is acknowledged.
    async fn publish(&mut self) -> Result<(), Trouble> {
        while self.mode == NatsMode::Chain || self.in_flight.is_empty() {
            let Some(unit) = self.waiting.pop_front() else { return Ok(()) };
            self.publish_unit(unit).await?;
        }
        Ok(())
    }

    async fn publish_unit(&mut self, unit: SendUnit) -> Result<(), Trouble> {
        let (Some(first), Some(last)) = (unit.first(), unit.last()) else { return Ok(()) };
        let (first, last, count) = (first.seq, last.seq, unit.len());
        self.published += 1;
        let position = (self.mode == NatsMode::Chain).then_some(self.tail + 1);
        self.in_flight.push_back(InFlight { first, last, count, position });
        let reply = format!("{}{}", self.inbox, self.published);
        let batch = (count > 1).then(|| self.next_batch());
        for (at, mut message) in unit.into_iter().enumerate() {
            let headers = &mut message.headers;
            if at == 0 {
                let by_stream = self.is_own || self.mode == NatsMode::Chain;
                let condition = if by_stream { LAST } else { LAST_OF_SUBJECT };
                headers.insert(condition, self.tail.to_string());
                // (A stream that has the id of the message before is the right one.)
                if self.last_id.is_none() {
                    headers.insert(STREAM, self.letterhead.stream.as_str());
                }
            }
            if let Some(batch) = &batch {
                headers.insert(BATCH_ID, batch.as_str());
                headers.insert(BATCH_SEQ, (at + 1).to_string());
                if at + 1 == count {
                    headers.insert(COMMIT, "1");
                }
            }
            if self.mode != NatsMode::Batch {
                headers.insert(ID, self.id(message.seq, message.sum, message.kind));
            }
            if self.mode == NatsMode::Chain {
                let id = self.id(message.seq, message.sum, message.kind);
                if let Some(last_id) = self.last_id.replace(id) {
                    headers.insert(LAST_ID, last_id);
                }
                self.tail += 1;
            }
            let (bytes, head) = (message.bytes.len(), length(headers));
            if (bytes + head) as u64 > self.longest {
                let (seq, longest) = (message.seq, self.longest);
                let why = format!(
                    "{bytes} bytes and {head} of headers are too many: it takes up to {longest}"
                );
                return Err(Trouble::Refused { seq, why });
            }
            let subject = self.letterhead.subject.clone();
            let (headers, bytes) = (message.headers, message.bytes.into());
            let sent = if at + 1 == count {
                let reply = reply.clone();
                self.client.publish_with_reply_and_headers(subject, reply, headers, bytes).await
            } else {
                self.client.publish_with_headers(subject, headers, bytes).await
            };
            sent.map_err(|error| match error.kind() {
                PublishErrorKind::MaxPayloadExceeded => {
                    Trouble::Refused { seq: message.seq, why: error.to_string() }
                }
                _ => self.letterhead.again(error),
            })?;
        }
        Ok(())
    }

    /// The id of another batch: no other one of the stream has it that is not complete yet, of
    /// this queue or of another one.
    fn next_batch(&mut self) -> String {
        self.batches = self.batches.wrapping_add(1);
        format!("{}{}", self.letterhead.queue, short(self.batches, 3))
    }

    /// Asks the server for a sign of life when nothing is in flight, and looks whether anything
    /// came since it was asked.
    async fn pulse(&mut self) -> Result<(), Trouble> {
        let heard = self.client.statistics().in_bytes.load(Ordering::Relaxed);
        if !self.in_flight.is_empty() {
            self.pulse = None;
            return Ok(());
        }
        if self.pulse.replace(heard) == Some(heard) {
            return Err(self.letterhead.again("the server gives no sign of life"));
        }
        // The client ends a subscription with a ping, so that it knows when no more can come.
        let pinged = async {
            let mut none = self.client.subscribe(format!("{}0", self.inbox)).await.ok()?;
            none.drain().await.ok()
        };
        pinged.await.ok_or_else(|| self.letterhead.again("the connection was closed"))
    }

    /// A message's id, which a stream knows for a while. Word of a gap has the number of the
    /// message before it, and may be sent again meanwhile, so it has its position in it.
    /// (The sum tells it from the same message in another chain, which an earlier session sent.)
    fn id(&self, seq: u64, sum: u32, kind: OutgoingKind) -> String {
        // In the mode `chain` no other queue writes to the stream, unless one did before this one.
        let is_alone = self.mode == NatsMode::Chain && self.letterhead.succeeds.is_none();
        let queue = if is_alone { "" } else { &self.letterhead.queue };
        match kind {
            OutgoingKind::Gap => format!("{queue}{seq}-{sum:x}-{}", self.tail),
            _ => format!("{queue}{seq}-{sum:x}"),
        }
    }

    /// Hears an answer, and those that have arrived behind it.
    fn hear(&mut self, mut message: Option<Message>) -> Result<(), Trouble> {
        loop {
            let Some(heard) = message else {
                return Err(self.letterhead.again("the connection was closed"));
            };
            self.hear_one(&heard)?;
            let Some(more) = self.has_arrived() else { return Ok(()) };
            message = more;
        }
    }

    fn has_arrived(&mut self) -> Option<Option<Message>> {
        let answers = Pin::new(&mut self.answers);
        match answers.poll_next(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            Poll::Ready(message) => Some(message),
            Poll::Pending => None,
        }
    }

    fn hear_one(&mut self, message: &Message) -> Result<(), Trouble> {
        let unit = message.subject.rsplit('.').next().and_then(|it| it.parse::<u64>().ok());
        let again = |what: String| self.letterhead.again(what);
        let Some(unit) = unit.filter(|it| *it > self.acknowledged && *it <= self.published) else {
            return Err(again(format!("an answer that nobody waits for: {}", message.subject)));
        };
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            let subject = &self.letterhead.subject;
            return Err(again(format!("nobody takes messages of {subject} now")));
        }
        let answer: Value = serde_json::from_slice(&message.payload)
            .map_err(|error| again(format!("an answer that is not JSON: {error}")))?;
        let at = (unit - self.acknowledged - 1) as usize;
        let Some(in_flight) = self.in_flight.get(at) else { return Ok(()) };
        if !answer["error"].is_null() {
            self.most = most(&answer["error"], in_flight.count);
            return Err(self.letterhead.trouble(&answer["error"], Some(in_flight.first)));
        }
        if answer["duplicate"].as_bool() == Some(true) {
            return Err(Trouble::Again(
                self.letterhead.error(format!(
                    "it knows the id of message {} from earlier, though it does not hold it any \
                     more: waiting for the end of its window of duplicates",
                    in_flight.first
                )),
                DUPLICATES,
            ));
        }
        let position = answer["seq"].as_u64();
        let Some(position) = position.filter(|it| in_flight.position.is_none_or(|at| at == *it))
        else {
            return Err(again(format!("an acknowledgement of another message: {answer}")));
        };
        // What is acknowledged was stored behind all before it.
        self.until = in_flight.last + 1;
        self.position = position;
        self.in_flight.drain(..=at);
        self.acknowledged = unit;
        if self.mode != NatsMode::Chain {
            self.tail = position;
        }
        Ok(())
    }
}

async fn next(answers: &mut Subscriber) -> Option<Message> {
    poll_fn(|context| Pin::new(&mut *answers).poll_next(context)).await
}

/// How many messages a batch may have, if this error says that so many are too many.
fn most(error: &Value, count: usize) -> Option<usize> {
    if error["err_code"].as_u64() != Some(10_199) {
        return None;
    }
    let said = error["description"].as_str().and_then(|it| it.rsplit(' ').next()?.parse().ok());
    Some(said.filter(|most| (1..count).contains(most)).unwrap_or(count.div_ceil(2)))
}
