//! The headers of a message, and what the errors of a server mean.

use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use async_nats::header::{HeaderMap, HeaderName};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use mmq::forward::{FarError, Outgoing, OutgoingKind, Trouble};

/// What the headers of any message take at the least.
pub(super) const LEAST: u64 = 90;
/// What they take at the most, but for the missing numbers and the stream's name.
const REST: usize = 300;
/// What a pack leaves of the longest message for all headers.
pub(super) const HEADERS: u64 = (REST + MISSING) as u64;
/// The most that the list of missing numbers takes.
const MISSING: usize = 800;
/// How many digits of a queue's id stand for it.
pub(super) const QUEUE_DIGITS: usize = 8;
/// The pause when a stream is full, or the server has no room.
const FULL: Duration = Duration::from_millis(500);

const MESSAGE: HeaderName = HeaderName::from_static("Mmq");
const WORD_OF_GAP: HeaderName = HeaderName::from_static("Mmq-Gap");
const MISSING_BEFORE: HeaderName = HeaderName::from_static("Mmq-Missing");
const TIME: HeaderName = HeaderName::from_static("Mmq-Time");
const PACK: HeaderName = HeaderName::from_static("Mmq-Pack");
const TTL: HeaderName = HeaderName::from_static("Nats-TTL");
pub(super) const STREAM: HeaderName = HeaderName::from_static("Nats-Expected-Stream");
pub(super) const LAST: HeaderName = HeaderName::from_static("Nats-Expected-Last-Sequence");
pub(super) const LAST_OF_SUBJECT: HeaderName =
    HeaderName::from_static("Nats-Expected-Last-Subject-Sequence");
pub(super) const LAST_ID: HeaderName = HeaderName::from_static("Nats-Expected-Last-Msg-Id");
pub(super) const ID: HeaderName = HeaderName::from_static("Nats-Msg-Id");
pub(super) const BATCH_ID: HeaderName = HeaderName::from_static("Nats-Batch-Id");
pub(super) const BATCH_SEQ: HeaderName = HeaderName::from_static("Nats-Batch-Sequence");
pub(super) const COMMIT: HeaderName = HeaderName::from_static("Nats-Batch-Commit");

/// Whether a message may become the last one of its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InBatch {
    /// Others of its batch follow it: the stream stores them as one.
    Before,
    MayBeLast,
}

/// What all messages of a session have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Letterhead {
    /// The first digits of the queue's id.
    pub(super) queue: String,
    /// The first digits of the queue before it, whose last message it may follow.
    pub(super) succeeds: Option<String>,
    pub(super) stream: String,
    pub(super) subject: String,
    /// How long the stream keeps a message.
    pub(super) ttl: Option<Duration>,
}

/// Whose message it is and of which number; its sum, if it was the last of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MessageOrigin<'a> {
    pub(super) queue: &'a str,
    pub(super) seq: u64,
    pub(super) sum: Option<u32>,
}

impl Letterhead {
    /// The headers of a message, but for its conditions and its place in a batch: its number, and
    /// what only the last message of a subject is asked for. The message takes `longest` with them.
    pub(super) fn headers(
        &self,
        message: &Outgoing<'_>,
        within: InBatch,
        longest: u64,
    ) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let Outgoing { seq, sum, .. } = message;
        let queue = &self.queue;
        headers.insert(
            MESSAGE,
            match within {
                InBatch::MayBeLast => format!("{seq} {sum:08x} {queue}"),
                InBatch::Before => seq.to_string(),
            },
        );
        if let Some(ttl) = self.ttl {
            headers.insert(TTL, ttl.as_secs().max(1).to_string());
        }
        let since = message.segment_time.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        if let Some(since) = since {
            headers.insert(TIME, since.as_millis().to_string());
        }
        let longest = usize::try_from(longest).unwrap_or(usize::MAX);
        let taken = message.bytes.len() + REST + self.stream.len();
        let room = longest.saturating_sub(taken).min(MISSING);
        if let OutgoingKind::Pack { messages } = message.kind {
            headers.insert(PACK, messages.to_string());
        }
        match message.kind {
            OutgoingKind::Gap => headers.insert(WORD_OF_GAP, missing(message, room)),
            _ if message.missing_before.is_empty() => {}
            _ => headers.insert(MISSING_BEFORE, missing(message, room)),
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
            (10_176, _) => self.again(format!("{reported}; is the server or its disk full?")),
            (10_070 | 10_071 | 10_164, _) => {
                // A write of an earlier session arrived late, or the stream has another writer.
                let why =
                    format!("it does not end where it did, or is full: {reported}: asking again");
                match first {
                    Some(seq) => Trouble::NotStored { seq, why: self.error(why) },
                    None => self.again(why),
                }
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

    /// What the text of its headers says of a message. (Within a batch only the batch's id has the
    /// queue in it.)
    pub(super) fn origin(text: &str) -> Option<MessageOrigin<'_>> {
        let (mut message, mut batch) = (None, None);
        for line in text.lines() {
            match line.split_once(':') {
                Some(("Mmq", value)) => message = Some(value.trim()),
                Some(("Nats-Batch-Id", value)) => batch = value.trim().get(..QUEUE_DIGITS),
                _ => {}
            }
        }
        let mut words = message?.split(' ');
        let seq = words.next()?.parse().ok()?;
        let sum = words.next().and_then(|sum| u32::from_str_radix(sum, 16).ok());
        Some(MessageOrigin { queue: words.next().or(batch)?, seq, sum })
    }
}

/// The missing numbers, as far as there is room; the rest as one range of several causes.
fn missing(message: &Outgoing<'_>, room: usize) -> String {
    let mut text = String::new();
    let ranges = message.missing_before;
    for (at, range) in ranges.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        if at + 1 < ranges.len() && text.len() + 100 > room {
            let last = ranges.last().map_or(range.last, |it| it.last);
            let _ = write!(text, "{comma}{}-{last} several", range.first);
            break;
        }
        let _ = write!(text, "{comma}{range}");
    }
    text
}

/// How many bytes these headers take.
pub(super) fn length(headers: &HeaderMap) -> usize {
    let of = |name: &HeaderName| AsRef::<[u8]>::as_ref(name).len();
    let all = headers.iter().flat_map(|(name, values)| values.iter().map(move |it| (name, it)));
    let all = all.map(|(name, value)| of(name) + value.as_str().len() + ": \r\n".len());
    "NATS/1.0\r\n\r\n".len() + all.sum::<usize>()
}

/// So many bytes of a number, in a few characters that a subject and an id may have.
pub(super) fn short(number: u64, bytes: usize) -> String {
    let all = number.to_le_bytes();
    URL_SAFE_NO_PAD.encode(all.get(..bytes).unwrap_or(&all))
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
        let text = |ranges: &[MissingNumbers], room| {
            let kind = OutgoingKind::Message;
            let segment_time = None;
            let bytes = &[];
            missing(
                &Outgoing { seq: 7, sum: 0, bytes, missing_before: ranges, segment_time, kind },
                room,
            )
        };
        for room in [0, 100, MISSING] {
            assert_eq!(text(&of(1), room), format!("{first}-{first} unflushed"));
            let long = text(&of(5_000), room);
            assert!(long.len() <= room.max(100), "{}", long.len());
            assert!(long.ends_with(&format!("-{} several", first + 4_999)), "{long}");
        }
    }

    #[test]
    fn a_message_of_a_queue_is_known_by_its_headers() {
        let of = |queue, seq, sum| Some(MessageOrigin { queue, seq, sum });
        let last = "NATS/1.0\r\nMmq: 7 000000ff 0a0b0c0d\r\nNats-Batch-Id: 0a0b0c0dAAAA\r\n\r\n";
        assert_eq!(Letterhead::origin(last), of("0a0b0c0d", 7, Some(255)));
        let inner = "NATS/1.0\r\nNats-Batch-Id: 0a0b0c0dAAAA\r\nMmq: 7\r\n\r\n";
        assert_eq!(Letterhead::origin(inner), of("0a0b0c0d", 7, None));
        for foreign in ["Mmq: 7", "Mmq: x 000000ff 0a0b0c0d", "Nats-Batch-Id: 0a0b0c0dAAAA", ""] {
            let text = format!("NATS/1.0\r\n{foreign}\r\n\r\n");
            assert_eq!(Letterhead::origin(&text), None, "{foreign}");
        }
    }
}
