//! What the stream is and holds, and which mode follows from that.

use std::time::Duration;

use async_nats::client::{RequestError, RequestErrorKind};
use async_nats::{Client, Message};
use base64::Engine;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::nats_stream::BATCH;
use super::standing::Standing;
use super::words::{BATCH_ID, HEADERS, Letterhead};
use crate::{NatsMode, NatsOrder};
use mmq::forward::{Held, Mark, Position, Trouble};

/// How often a question is repeated that nobody answers.
const REPEAT: Duration = Duration::from_secs(2);

/// What a session begins with.
#[derive(Debug, Clone)]
pub(super) struct StreamAnswer {
    pub(super) held: Held,
    pub(super) mode: NatsMode,
    /// The stream takes no other subject, and nobody but the queue writes to it.
    pub(super) is_own: bool,
    /// The position that the first message is conditional on.
    pub(super) tail: u64,
    /// Which stream it is: another value when somebody has made it anew.
    pub(super) store: u64,
    /// Where it ends behind what it holds of the queue.
    pub(super) position: Option<Position>,
    /// What the stream takes in one message, headers and all.
    pub(super) longest: u64,
    pub(super) warning: Option<String>,
}

/// Asks the stream what it is, and then for the last message of the subject. (In this order: what
/// is stored between the two has a position above the one that the first answer names.)
pub(super) async fn ask(
    client: &Client,
    order: &NatsOrder,
    letterhead: &Letterhead,
    mark: Option<Mark>,
) -> Result<StreamAnswer, Trouble> {
    let info = call(client, order, letterhead, "INFO", json!({})).await?;
    let info = info.map_err(|error| letterhead.trouble(&error, None))?;
    let config = &info["config"];
    let mode = mode(order.mode, config, letterhead)?;
    if letterhead.ttl.is_some() && config["allow_msg_ttl"].as_bool() != Some(true) {
        return Err(letterhead.lost(format!(
            "it allows no time to live of single messages: `nats stream edit {} --allow-msg-ttl` \
             (server 2.11 or later)",
            letterhead.stream
        )));
    }
    let last = json!({ "last_by_subj": letterhead.subject });
    let last = message(client, order, letterhead, last).await?;
    let of_subject = last.as_ref().map_or(0, |last| last["seq"].as_u64().unwrap_or_default());
    let store = fnv(info["created"].as_str().unwrap_or_default());
    let mut standing = Standing {
        is_own: is_own(config, letterhead),
        end: info["state"]["last_seq"].as_u64().unwrap_or_default().max(of_subject),
        last: match &last {
            Some(last) => {
                let headers = named(client, order, letterhead, last).await?;
                held(of_subject, &headers, letterhead)?.map(|held| (of_subject, held))
            }
            None => None,
        },
        mark: mark.map(|mark| mark.position).filter(|it| it.store == store).map(|it| it.at),
        is_refilled: false,
    };
    if standing.last.is_some_and(|(_, held)| held == Held::Nothing) {
        standing.pass_predecessor();
    }
    let Standing { is_own, end, .. } = standing;
    let lost = standing.mark.filter(|mark| !is_own && *mark <= end);
    let mut earlier_subject = None;
    if let Some(at) = lost.filter(|_| standing.has_lost_the_mark()) {
        let there = message(client, order, letterhead, json!({ "seq": at })).await?;
        let is_foreign = |there: &Value| there["subject"] != letterhead.subject;
        let foreign = there.filter(is_foreign);
        standing.is_refilled = foreign.is_some();
        earlier_subject = foreign.filter(|it| is_of(it, letterhead));
    }
    // Where the queue has had another subject, this one has lost nothing. The mark stays: without
    // it the next session could not tell.
    let (held, at) = match &earlier_subject {
        Some(_) => (Held::Nothing, lost),
        None => standing.held(),
    };
    let of_server = client.max_payload() as u64;
    let longest = config["max_msg_size"].as_u64().unwrap_or(u64::MAX).min(of_server);
    let pack = if longest > HEADERS { order.pack } else { 1 };
    let has_moved = earlier_subject.map(|there| has_moved(&there, letterhead));
    let no_pack = (pack < order.pack).then(|| {
        let Letterhead { stream, .. } = letterhead;
        format!(
            "stream {stream} of NATS takes messages of up to {longest} bytes, of which the headers \
             of a pack may need {HEADERS}: no messages are packed; raise its max_msg_size"
        )
    });
    let alone = format!("a stream whose only subject is {}", letterhead.subject);
    Ok(StreamAnswer {
        held,
        mode,
        is_own,
        tail: if is_own || mode == NatsMode::Chain { end } else { of_subject },
        store,
        position: at.map(|at| Position { store, at }),
        longest,
        warning: has_moved.or(no_pack).or_else(|| match (is_own, pack) {
            (true, 1) => None,
            (true, _) => warning(config, letterhead, "is sent packs", "without packs it"),
            (false, _) => warning(config, letterhead, "has other writers", &alone),
        }),
    })
}

/// The message of the stream that the request names, if there is one.
async fn message(
    client: &Client,
    order: &NatsOrder,
    letterhead: &Letterhead,
    which: Value,
) -> Result<Option<Value>, Trouble> {
    match call(client, order, letterhead, "MSG.GET", which).await? {
        Ok(mut answer) => Ok(Some(answer["message"].take())),
        // (No message found.)
        Err(error) if error["err_code"].as_u64() == Some(10_037) => Ok(None),
        Err(error) => Err(letterhead.trouble(&error, None)),
    }
}

/// The 64-bit FNV-1a.
fn fnv(text: &str) -> u64 {
    let with = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, with)
}

/// One request to JetStream's own subjects: the answer, or the error that it is.
async fn call(
    client: &Client,
    order: &NatsOrder,
    letterhead: &Letterhead,
    what: &str,
    request: Value,
) -> Result<Result<Value, Value>, Trouble> {
    let domain = order.domain.as_ref().map_or_else(String::new, |domain| format!("{domain}."));
    let subject = format!("$JS.{domain}API.STREAM.{what}.{}", order.stream);
    let answer = answered(client, &subject, &request.to_string()).await;
    let answer = answer.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders if has_none(client, order) => {
            letterhead.lost("the server has no JetStream: start it with `-js`, or name another one")
        }
        RequestErrorKind::NoResponders => {
            Trouble::Again(letterhead.error("JetStream does not answer yet"), Duration::ZERO)
        }
        _ => letterhead.again(error),
    })?;
    let answer: Value = serde_json::from_slice(&answer.payload)
        .map_err(|error| letterhead.again(format!("an answer that is not JSON: {error}")))?;
    let error = &answer["error"];
    Ok(if error.is_null() { Ok(answer) } else { Err(error.clone()) })
}

/// The first answer to the request, which is repeated meanwhile: nobody answers one that came while
/// the stream had no leader, and another one is elected within ten seconds.
async fn answered(client: &Client, subject: &str, request: &str) -> Result<Message, RequestError> {
    let (tell, mut told) = mpsc::unbounded_channel();
    loop {
        let (client, tell) = (client.clone(), tell.clone());
        let (subject, request) = (subject.to_owned(), request.to_owned());
        tokio::spawn(async move {
            // (Nobody listens any more behind the first answer.)
            let _ = tell.send(client.request(subject, request.into()).await);
        });
        // The first one ends it by its own time-out.
        if let Ok(Some(answer)) = timeout(REPEAT, told.recv()).await {
            return answer;
        }
    }
}

/// Whether no server that this one knows of has JetStream.
fn has_none(client: &Client, order: &NatsOrder) -> bool {
    let server = client.server_info();
    !server.jetstream && server.cluster.is_none() && order.domain.is_none()
}

/// What the last message of the subject says; `Held::Nothing` if the queue before this one wrote
/// it. `None`, if the server has put it where messages were that are gone (a delete marker).
fn held(at: u64, headers: &str, letterhead: &Letterhead) -> Result<Option<Held>, Trouble> {
    let Letterhead { queue, subject, .. } = letterhead;
    match Letterhead::origin(headers) {
        Some(there) if there.queue == queue => {
            Ok(Some(Held::Until { seq: there.seq, sum: there.sum }))
        }
        Some(there) if letterhead.succeeds.as_deref() == Some(there.queue) => {
            Ok(Some(Held::Nothing))
        }
        Some(there) => Err(letterhead.lost(format!(
            "its subject {subject} holds the messages of queue {0}..., and this is {queue}...: if \
             this queue goes on after that one, say so with `--succeed {0}`; else name another \
             subject",
            there.queue
        ))),
        None if headers.contains("\r\nNats-Marker-Reason:") => Ok(None),
        None => Err(letterhead.lost(format!(
            "its subject {subject} ends in message {at}, which no queue wrote: give the queue a \
             subject of its own; if the stream is a copy that ends within a batch, delete its \
             messages down to the last one whose header Mmq has three words"
        ))),
    }
}

/// The text of the headers of the last message, with the queue's name. Where the stream is a copy,
/// as by a mirror, that was cut within a batch, only the end of the batch before has the name.
async fn named(
    client: &Client,
    order: &NatsOrder,
    letterhead: &Letterhead,
    last: &Value,
) -> Result<String, Trouble> {
    let (text, at) = (headers(last), last["seq"].as_u64().unwrap_or_default());
    let is_bare = text.contains("\r\nMmq:") && Letterhead::origin(&text).is_none();
    for seq in (1..at).rev().take(if is_bare { BATCH } else { 0 }) {
        let which = json!({ "next_by_subj": letterhead.subject, "seq": seq });
        let earlier = message(client, order, letterhead, which).await?.unwrap_or_default();
        match Letterhead::origin(&headers(&earlier)).map(|it| it.queue == letterhead.queue) {
            Some(true) => return Ok(format!("{text}{BATCH_ID}: {}\r\n", letterhead.queue)),
            Some(false) => break,
            None => {}
        }
    }
    Ok(text)
}

/// The text of a message's headers.
fn headers(message: &Value) -> String {
    let headers = message["hdrs"].as_str().unwrap_or_default();
    let headers = base64::engine::general_purpose::STANDARD.decode(headers).unwrap_or_default();
    String::from_utf8_lossy(&headers).into_owned()
}

/// Whether this queue wrote the message.
fn is_of(message: &Value, letterhead: &Letterhead) -> bool {
    Letterhead::origin(&headers(message)).is_some_and(|there| there.queue == letterhead.queue)
}

/// That the queue's messages have another subject, `there`.
fn has_moved(there: &Value, letterhead: &Letterhead) -> String {
    let Letterhead { stream, subject, .. } = letterhead;
    let earlier = there["subject"].as_str().unwrap_or_default();
    format!(
        "stream {stream} of NATS holds the last message of this queue under the subject {earlier}, \
         and the subject is now {subject}: has somebody renamed the directory or changed --name or \
         --subject? With the subject {earlier} the queue goes on behind that message"
    )
}

/// The mode, if the stream is one that messages can be forwarded to.
fn mode(
    asked: Option<NatsMode>,
    config: &Value,
    letterhead: &Letterhead,
) -> Result<NatsMode, Trouble> {
    let Letterhead { stream, subject, .. } = letterhead;
    let is_set = |name: &str| config[name].as_bool() == Some(true);
    let subjects = subjects(config);
    if let Some(retention) = config["retention"].as_str().filter(|it| *it != "limits") {
        return Err(letterhead.lost(format!(
            "its retention is {retention}: what is consumed is gone, and nobody can say what was \
             the last message; forward to a stream with the retention limits, and let the other \
             one source it"
        )));
    }
    if is_set("no_ack") {
        return Err(
            letterhead.lost("it acknowledges nothing (no_ack): make it again without no_ack")
        );
    }
    if is_set("sealed") {
        return Err(letterhead.lost("it is sealed: it takes no more messages"));
    }
    if !config["subject_transform"].is_null() {
        return Err(letterhead.lost(format!(
            "it stores messages under other subjects than they were sent to (subject_transform), \
             so nobody can say what was the last of {subject}; forward to a stream without \
             subject_transform, and let the other one source it"
        )));
    }
    if !subjects.iter().any(|it| is_covered(subject, it)) {
        return Err(letterhead.lost(format!(
            "it does not take the subject {subject}, but {}; add it with `nats stream edit \
             {stream} --subjects ...`, or name another one",
            if subjects.is_empty() { "none".to_owned() } else { subjects.join(", ") }
        )));
    }
    let has_batches = is_set("allow_atomic");
    match asked {
        Some(NatsMode::Batch) if !has_batches => Err(letterhead.lost(format!(
            "it allows no batches: `nats stream edit {stream} --allow-batch` (server 2.12 or later)"
        ))),
        Some(mode) => Ok(mode),
        None if has_batches => Ok(NatsMode::Batch),
        None if subjects == [subject] && !is_fed(config) => Ok(NatsMode::Chain),
        None => Err(letterhead.lost(format!(
            "it allows no batches, and others may write to it ({}). Either allow batches, `nats \
             stream edit {stream} --allow-batch` (server 2.12 or later); or give the queue a \
             stream whose only subject is {subject}",
            if is_fed(config) { "it has sources".to_owned() } else { subjects.join(", ") }
        ))),
    }
}

fn subjects(config: &Value) -> Vec<&str> {
    let subjects = config["subjects"].as_array().map_or(&[][..], Vec::as_slice);
    subjects.iter().filter_map(Value::as_str).collect()
}

/// Whether messages come from other streams.
fn is_fed(config: &Value) -> bool {
    !config["mirror"].is_null() || !config["sources"].is_null()
}

/// Whether nobody else has a reason to write to it, not even the server (its delete markers).
fn is_own(config: &Value, letterhead: &Letterhead) -> bool {
    let has_markers = config["subject_delete_marker_ttl"].as_u64() > Some(0);
    subjects(config) == [&letterhead.subject] && !is_fed(config) && !has_markers
}

/// What a stream cannot say when it has removed the queue's last message, because of what it `has`;
/// another `counts`.
fn warning(config: &Value, letterhead: &Letterhead, has: &str, counts: &str) -> Option<String> {
    let is_limited = |name: &&str| config[name].as_i64().is_some_and(|limit| limit > 0);
    let makes_room = config["discard"].as_str() != Some("new");
    let mut limits = vec!["max_age"];
    limits.extend(["max_msgs", "max_bytes"].iter().filter(|_| makes_room));
    limits.retain(is_limited);
    let Letterhead { stream, subject, .. } = letterhead;
    (!limits.is_empty()).then(|| {
        format!(
            "stream {stream} of NATS {has} and removes messages by itself ({}): if it has removed \
             the last message of {subject} when a broken link is back, what was on its way may be \
             stored twice; {counts} counts exactly",
            limits.join(", ")
        )
    })
}

/// Whether a subject is among those of a pattern.
fn is_covered(subject: &str, pattern: &str) -> bool {
    let mut tokens = subject.split('.');
    for wanted in pattern.split('.') {
        match (wanted, tokens.next()) {
            (">", Some(_)) => return true,
            (_, None) => return false,
            ("*", Some(_)) => {}
            (_, Some(token)) if token == wanted => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_subjects_as_the_server_says() {
        for (subject, pattern, is_so) in [
            ("mmq.a", "mmq.a", true),
            ("mmq.a", "mmq.*", true),
            ("mmq.a", "mmq.>", true),
            ("mmq.a", ">", true),
            ("mmq.a", "*.a", true),
            ("mmq.a", "mmq", false),
            ("mmq.a", "mmq.a.*", false),
            ("mmq.a", "mmq.a.>", false),
            ("mmq.a", "mmq.b", false),
            ("mmq.a.live", "mmq.*", false),
        ] {
            assert_eq!(is_covered(subject, pattern), is_so, "{subject} {pattern}");
        }
    }
}
