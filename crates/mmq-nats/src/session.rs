//! The thread that has the client: connects, publishes, hears.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use async_nats::client::PublishErrorKind;
use async_nats::status::StatusCode;
use async_nats::{
    Client, ConnectErrorKind, ConnectOptions, Event, Message, ServerError, Subscriber,
};
use futures_core::Stream;
use serde_json::Value;
use tokio::sync::{Notify, mpsc, oneshot};

use super::ask::{StreamAnswer, ask};
use super::link::{LinkState, SendUnit};
use super::words::{BATCH_ID, BATCH_SEQ, COMMIT, ID, LAST, LAST_ID, LAST_OF_SUBJECT, Letterhead};
use crate::{Access, NatsMode, NatsOrder};
use mmq::forward::{Mark, OutgoingKind, Trouble};
use parking_lot::Mutex;

/// The longest wait for a connection, and for each answer to a question.
const PATIENCE: Duration = Duration::from_secs(5);
/// Acknowledgements that wait to be heard. More than are ever in flight.
const HEARD: usize = 8_192;

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
        () = alarm.rung.notified() => Err(alarm.trouble(letterhead)),
    };
    let (mut session, answer) = match began {
        Ok(began) => began,
        Err(trouble) => return trouble,
    };
    shared.answer(answer);
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
            () = alarm.rung.notified() => Err(alarm.trouble(letterhead)),
        };
        shared.acknowledge(session.acknowledged, session.until, session.position);
        let published = match outcome {
            Ok(()) => session.publish().await,
            Err(trouble) => Err(trouble),
        };
        if let Err(trouble) = published {
            return trouble;
        }
    }
}

/// What the client tells beside the answers.
#[derive(Default)]
struct Alarm {
    rung: Notify,
    /// What the server said, or what happened.
    why: Mutex<String>,
    is_denied: AtomicBool,
}

impl Alarm {
    fn ring(&self, event: Event) {
        let why = match event {
            Event::ServerError(ServerError::Other(text)) => {
                if text.to_lowercase().starts_with("permissions violation") {
                    self.is_denied.store(true, Ordering::Relaxed);
                }
                text
            }
            Event::ServerError(error) => error.to_string(),
            Event::SlowConsumer(_) => "acknowledgements were lost on the way".to_owned(),
            Event::Disconnected => "the connection was lost".to_owned(),
            _ => return,
        };
        let mut first = self.why.lock();
        if first.is_empty() {
            *first = why;
        }
        self.rung.notify_one();
    }

    fn trouble(&self, letterhead: &Letterhead) -> Trouble {
        let why = self.why.lock().clone();
        if !self.is_denied.load(Ordering::Relaxed) {
            return letterhead.again(why);
        }
        letterhead.lost(format!(
            "{why}; the user needs to publish to {}, $JS.API.STREAM.INFO.{stream} and \
             $JS.API.STREAM.MSG.GET.{stream}, and to subscribe to _INBOX.>",
            letterhead.subject,
            stream = letterhead.stream,
        ))
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
        let client = connect(order, letterhead, alarm).await?;
        let inbox = format!("{}.", client.new_inbox());
        let answers = client.subscribe(format!("{inbox}*")).await;
        let answers = answers.map_err(|error| letterhead.again(error))?;
        let answer = ask(&client, order, letterhead, mark).await?;
        let StreamAnswer { mode, is_own, tail, .. } = answer;
        let session = Session {
            client,
            letterhead,
            answers,
            inbox,
            mode,
            is_own,
            tail,
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
        self.in_flight.push_back(InFlight { first, last, position });
        let reply = format!("{}{}", self.inbox, self.published);
        let condition = if self.is_own { LAST } else { LAST_OF_SUBJECT };
        for (at, mut message) in unit.into_iter().enumerate() {
            let headers = &mut message.headers;
            match self.mode {
                NatsMode::Batch => {
                    if at == 0 {
                        headers.insert(condition.clone(), self.tail.to_string());
                    }
                    headers.insert(BATCH_ID, reply.as_str());
                    headers.insert(BATCH_SEQ, (at + 1).to_string());
                    if at + 1 == count {
                        headers.insert(COMMIT, "1");
                    }
                }
                NatsMode::Chain => {
                    let id = self.id(message.seq, message.kind);
                    headers.insert(LAST, self.tail.to_string());
                    if let Some(last_id) = self.last_id.replace(id.clone()) {
                        headers.insert(LAST_ID, last_id);
                    }
                    headers.insert(ID, id);
                    self.tail += 1;
                }
                NatsMode::Window => {
                    headers.insert(condition.clone(), self.tail.to_string());
                    headers.insert(ID, self.id(message.seq, message.kind));
                }
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

    /// A message's id. Word of a gap has the number of the message before it, and may be sent again
    /// while the stream still knows the id of the first time, so it has its position in it.
    fn id(&self, seq: u64, kind: OutgoingKind) -> String {
        let queue = &self.letterhead.queue;
        match kind {
            OutgoingKind::Message => format!("{queue}:{seq}"),
            OutgoingKind::Gap => format!("{queue}:{seq}:gap:{}", self.tail),
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
            return Err(self.letterhead.trouble(&answer["error"], Some(in_flight.first)));
        }
        if answer["duplicate"].as_bool() == Some(true) {
            return Err(Trouble::Again(
                self.letterhead.error(format!(
                    "it knows the id of message {} from earlier, though it does not hold it any \
                     more: waiting for the end of its window of duplicates",
                    in_flight.first
                )),
                PATIENCE,
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

/// Connects. The client does not connect a second time.
async fn connect(
    order: &NatsOrder,
    letterhead: &Letterhead,
    alarm: &Arc<Alarm>,
) -> Result<Client, Trouble> {
    let Access { credentials, nkey, user, token, roots, certificate } = order.access.clone();
    let (is_connected, heard) = (Arc::new(AtomicBool::new(false)), alarm.clone());
    let was_connected = is_connected.clone();
    let mut options = ConnectOptions::new()
        .name("mmq")
        .connection_timeout(PATIENCE)
        .request_timeout(Some(PATIENCE))
        .subscription_capacity(HEARD)
        .event_callback(move |event| {
            heard.ring(event);
            std::future::ready(())
        })
        .reconnect_delay_callback(move |_| match was_connected.load(Ordering::Relaxed) {
            true => Duration::MAX,
            false => Duration::ZERO,
        });
    if let Some(path) = credentials {
        options = options.credentials_file(&path).await.map_err(|error| {
            letterhead.lost(format!("credentials file {}: {error}", path.display()))
        })?;
    }
    if let Some(seed) = nkey {
        options = options.nkey(seed);
    }
    if let Some((user, password)) = user {
        options = options.user_and_password(user, password);
    }
    if let Some(token) = token {
        options = options.token(token);
    }
    if !roots.is_empty() || certificate.is_some() {
        options = options.require_tls(true);
    }
    for path in roots {
        options = options.add_root_certificates(path);
    }
    if let Some((certificate, key)) = certificate {
        options = options.add_client_certificate(certificate, key);
    }
    let client = options.connect(order.servers.clone()).await.map_err(|error| {
        let reported = with_causes(&error);
        match error.kind() {
            ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
                letterhead.lost(format!(
                    "{reported}; look at user and password in the URL, the credentials file or the nkey"
                ))
            }
            ConnectErrorKind::Tls => {
                letterhead.lost(format!("{reported}; look at the files of certificates and keys"))
            }
            _ => letterhead.again(reported),
        }
    })?;
    is_connected.store(true, Ordering::Relaxed);
    Ok(client)
}

/// An error with its causes. (The client's own texts have some of them in it.)
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut reported = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !reported.contains(&more) {
            reported = format!("{reported}: {more}");
        }
        cause = error.source();
    }
    reported
}
