//! The headers of a message, and what the errors of a server mean.

use std::fmt::Write;
use std::time::Duration;

use async_nats::header::{HeaderMap, HeaderName};
use serde_json::Value;

use mmq::forward::{FarError, Outgoing, OutgoingKind, Trouble};

/// The most that the headers of a message take, without the stream's name.
pub(super) const HEADROOM: u64 = 1_500;
/// The most that the list of missing numbers takes of it.
const MISSING: usize = 800;
/// The pause when a stream is full, or the server has no room.
const FULL: Duration = Duration::from_secs(5);

const QUEUE: HeaderName = HeaderName::from_static("Mmq-Queue");
const SEQ: HeaderName = HeaderName::from_static("Mmq-Seq");
const SUM: HeaderName = HeaderName::from_static("Mmq-Sum");
const WORD_OF_GAP: HeaderName = HeaderName::from_static("Mmq-Gap");
const MISSING_BEFORE: HeaderName = HeaderName::from_static("Mmq-Missing");
const STREAM: HeaderName = HeaderName::from_static("Nats-Expected-Stream");
pub(super) const LAST: HeaderName = HeaderName::from_static("Nats-Expected-Last-Sequence");
pub(super) const LAST_OF_SUBJECT: HeaderName =
    HeaderName::from_static("Nats-Expected-Last-Subject-Sequence");
pub(super) const LAST_ID: HeaderName = HeaderName::from_static("Nats-Expected-Last-Msg-Id");
pub(super) const ID: HeaderName = HeaderName::from_static("Nats-Msg-Id");
pub(super) const BATCH_ID: HeaderName = HeaderName::from_static("Nats-Batch-Id");
pub(super) const BATCH_SEQ: HeaderName = HeaderName::from_static("Nats-Batch-Sequence");
pub(super) const COMMIT: HeaderName = HeaderName::from_static("Nats-Batch-Commit");

/// What all messages of a session have in common.
#[derive(Debug)]
pub(super) struct Letterhead {
    /// The queue's id in 32 hexadecimal digits.
    pub(super) queue: String,
    pub(super) stream: String,
    pub(super) subject: String,
}

impl Letterhead {
    /// The headers of a message, but for its conditions.
    pub(super) fn headers(&self, message: &Outgoing<'_>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(QUEUE, self.queue.as_str());
        headers.insert(SEQ, message.seq.to_string());
        headers.insert(SUM, format!("{:08x}", message.sum));
        headers.insert(STREAM, self.stream.as_str());
        match message.kind {
            OutgoingKind::Gap => headers.insert(WORD_OF_GAP, missing(message)),
            OutgoingKind::Message if message.missing_before.is_empty() => {}
            OutgoingKind::Message => headers.insert(MISSING_BEFORE, missing(message)),
        }
        headers
    }

    /// What this says of a server's trouble, as an error.
    pub(super) fn error(&self, what: impl std::fmt::Display) -> FarError {
        format!("stream {} of NATS: {what}", self.stream).into()
    }

    pub(super) fn again(&self, what: impl std::fmt::Display) -> Trouble {
        Trouble::Again(self.error(what), Duration::ZERO)
    }

    pub(super) fn lost(&self, what: impl std::fmt::Display) -> Trouble {
        Trouble::Lost(self.error(what))
    }

    /// What to do about an error that the stream answers, to a message or a batch that begins with
    /// the number `first`, or to a question.
    pub(super) fn trouble(&self, error: &Value, first: Option<u64>) -> Trouble {
        let code = error["err_code"].as_u64().unwrap_or_default();
        let text = error["description"].as_str().unwrap_or("an error without words");
        let reported = format!("{text} ({code})");
        match (code, first) {
            (10_054 | 10_097, Some(seq)) => Trouble::Refused { seq, why: reported },
            // Full: the stream, of messages or bytes; or the account or the server.
            (10_077 | 10_002 | 10_023 | 10_028 | 10_047, _) => {
                let advice = "the stream is full: purge it, or raise its limits";
                Trouble::Again(self.error(format!("{reported}; {advice}")), FULL)
            }
            (10_059, _) => self.lost(format!(
                "{reported}: there is no such stream; make it with `{}`",
                self.how_to_make()
            )),
            (10_035 | 10_039 | 10_076, _) => {
                self.lost(format!("{reported}; give the account JetStream, or name another one"))
            }
            (10_060, _) => self.lost(format!(
                "{reported}: the subject {} belongs to another stream",
                self.subject
            )),
            (10_109, _) => self.lost(format!("{reported}: it takes no more messages")),
            (10_070 | 10_071 | 10_164, _) => {
                // A write of an earlier session arrived late, or the stream has another writer.
                self.again(format!("it does not end where it did: {reported}: asking again"))
            }
            _ => self.again(reported),
        }
    }

    /// The command that makes the stream.
    pub(super) fn how_to_make(&self) -> String {
        let Letterhead { stream, subject, .. } = self;
        format!(
            "nats stream add {stream} --subjects '{subject}' --storage file --discard new \
             --allow-batch --defaults"
        )
    }

    /// Whose message this is, of which number and checksum, by the text of its headers.
    pub(super) fn origin(text: &str) -> Option<(&str, u64, u32)> {
        let (mut queue, mut seq, mut sum) = (None, None, None);
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            match name {
                "Mmq-Queue" => queue = Some(value.trim()),
                "Mmq-Seq" => seq = value.trim().parse().ok(),
                "Mmq-Sum" => sum = u32::from_str_radix(value.trim(), 16).ok(),
                _ => {}
            }
        }
        Some((queue?, seq?, sum?))
    }
}

/// The missing numbers, as far as there is room; the rest as one range of several causes.
fn missing(message: &Outgoing<'_>) -> String {
    let mut text = String::new();
    for (at, range) in message.missing_before.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        if text.len() > MISSING - 100 {
            let last = message.missing_before.last().map_or(range.last, |it| it.last);
            let _ = write!(text, "{comma}{}-{last} several", range.first);
            break;
        }
        let _ = write!(text, "{comma}{range}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmq::GapCause;
    use mmq::forward::{MissingCause, MissingNumbers};

    #[test]
    fn the_longest_list_of_missing_numbers_fits() {
        let cause = MissingCause::Gap(GapCause::Unflushed);
        let first = u64::MAX / 4;
        let of = |count: u64| -> Vec<_> {
            let range = |at| MissingNumbers { first: first + at, last: first + at, cause };
            (0..count).map(range).collect()
        };
        let text = |ranges: &[MissingNumbers]| {
            let kind = OutgoingKind::Message;
            missing(&Outgoing { seq: 7, sum: 0, bytes: &[], missing_before: ranges, kind })
        };
        assert_eq!(text(&of(1)), format!("{first}-{first} unflushed"));
        let long = text(&of(5_000));
        assert!(long.len() <= MISSING, "{}", long.len());
        assert!(long.ends_with(&format!("-{} several", first + 4_999)), "{long}");
    }

    #[test]
    fn a_message_of_a_queue_is_known_by_its_headers() {
        let text = "NATS/1.0\r\nMmq-Seq: 7\r\nMmq-Sum: 000000ff\r\nMmq-Queue: ab\r\n\r\n";
        assert_eq!(Letterhead::origin(text), Some(("ab", 7, 255)));
        assert_eq!(Letterhead::origin("NATS/1.0\r\nMmq-Seq: 7\r\n\r\n"), None);
    }
}
