//! What the stream is and holds, and which mode follows from that.

use std::time::Duration;

use async_nats::Client;
use async_nats::client::RequestErrorKind;
use base64::Engine;
use serde_json::{Value, json};

use super::words::Letterhead;
use crate::{NatsMode, NatsOrder};
use mmq::forward::{Held, Trouble};

/// What a session begins with.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamAnswer {
    pub(super) held: Held,
    pub(super) mode: NatsMode,
    /// The position that the first message is conditional on.
    pub(super) tail: u64,
    /// What the stream takes in one message, headers and all.
    pub(super) longest: u64,
}

/// Asks the stream what it is, and then for the last message of the subject. (In this order: what
/// is stored between the two has a position above the one that the first answer names.)
pub(super) async fn ask(
    client: &Client,
    order: &NatsOrder,
    letterhead: &Letterhead,
) -> Result<StreamAnswer, Trouble> {
    let info = call(client, order, letterhead, "INFO", json!({})).await?;
    let info = info.map_err(|error| letterhead.trouble(&error, None))?;
    let mode = mode(order.mode, &info["config"], letterhead)?;
    let last = json!({ "last_by_subj": letterhead.subject });
    let last = match call(client, order, letterhead, "MSG.GET", last).await? {
        Ok(answer) => Some(answer),
        // (No message found.)
        Err(error) if error["err_code"].as_u64() == Some(10_037) => None,
        Err(error) => return Err(letterhead.trouble(&error, None)),
    };
    let of_stream = info["state"]["last_seq"].as_u64().unwrap_or_default();
    let (held, of_subject) = match &last {
        Some(last) => {
            let at = last["message"]["seq"].as_u64().unwrap_or_default();
            (held(&last["message"], letterhead)?, at)
        }
        // Messages that are old enough go by themselves.
        None if of_stream > 0 && info["config"]["max_age"].as_u64() > Some(0) => {
            (Held::Removed { stored: None }, 0)
        }
        None => (Held::Nothing, 0),
    };
    let tail = if mode == NatsMode::Chain { of_stream.max(of_subject) } else { of_subject };
    let of_server = client.max_payload() as u64;
    let longest = info["config"]["max_msg_size"].as_u64().unwrap_or(u64::MAX).min(of_server);
    Ok(StreamAnswer { held, mode, tail, longest })
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
    let answer = client.request(subject, request.to_string().into()).await;
    let answer = answer.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders if !client.server_info().jetstream => {
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

/// What the last message of the subject says.
fn held(message: &Value, letterhead: &Letterhead) -> Result<Held, Trouble> {
    let Letterhead { queue, subject, .. } = letterhead;
    let headers = message["hdrs"].as_str().unwrap_or_default();
    let headers = base64::engine::general_purpose::STANDARD.decode(headers).unwrap_or_default();
    let at = &message["seq"];
    match Letterhead::origin(&String::from_utf8_lossy(&headers)) {
        Some((there, seq, sum)) if there == queue => Ok(Held::Until { seq, sum: Some(sum) }),
        Some((there, ..)) => Err(letterhead.lost(format!(
            "its subject {subject} holds the messages of queue {there}, and this is {queue}: name \
             another subject"
        ))),
        None => Err(letterhead.lost(format!(
            "its subject {subject} ends in message {at}, which no queue wrote: give the queue a \
             subject of its own"
        ))),
    }
}

/// The mode, if the stream is one that messages can be forwarded to.
fn mode(
    asked: Option<NatsMode>,
    config: &Value,
    letterhead: &Letterhead,
) -> Result<NatsMode, Trouble> {
    let Letterhead { stream, subject, .. } = letterhead;
    let is_set = |name: &str| config[name].as_bool() == Some(true);
    let subjects = config["subjects"].as_array().map_or(&[][..], Vec::as_slice);
    let subjects: Vec<_> = subjects.iter().filter_map(Value::as_str).collect();
    let is_fed = !config["mirror"].is_null() || !config["sources"].is_null();
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
        None if subjects == [subject] && !is_fed => Ok(NatsMode::Chain),
        None => Err(letterhead.lost(format!(
            "it allows no batches, and others may write to it ({}). Either allow batches, `nats \
             stream edit {stream} --allow-batch` (server 2.12 or later); or give the queue a \
             stream whose only subject is {subject}",
            if is_fed { "it has sources".to_owned() } else { subjects.join(", ") }
        ))),
    }
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
