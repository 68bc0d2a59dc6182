//! A message as a JSON object in a line.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::SystemTime;

use mmq::{Gap, Origin};
use serde_json::value::RawValue;

use super::base64;
use crate::figures;
use crate::json_object::{self, Object};
use crate::times;

/// What a line of input holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum JsonLine {
    Message(Vec<u8>),
    /// A gap that was reported to somebody: no message. That of numbers which were only reserved
    /// takes none either.
    Gap {
        reserved: bool,
    },
}

/// What is known of a message besides its number and its bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct About {
    /// It was put in at that time or later.
    pub(crate) time: Option<SystemTime>,
    /// Where a dead letter comes from.
    pub(crate) origin: Option<Origin>,
}

/// Makes the lines of messages. Those that follow each other mostly have one time.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    line: String,
    time: Option<SystemTime>,
    time_text: String,
}

impl Lines {
    /// The line of the first bytes of a message of that length, with its newline.
    pub(crate) fn of(&mut self, seq: u64, head: &[u8], len: usize, about: About) -> &[u8] {
        let line = &mut self.line;
        line.clear();
        // A string takes all that it is given.
        let _ = write!(line, "{{\"seq\":{seq},\"len\":{len},");
        match std::str::from_utf8(head) {
            Ok(text) => {
                line.push_str("\"text\":");
                json_object::quote(text, line);
            }
            Err(_) => {
                line.push_str("\"base64\":\"");
                base64::encode(head, line);
                line.push('"');
            }
        }
        if let Some(time) = about.time {
            if self.time != about.time {
                self.time = about.time;
                self.time_text = times::rfc3339(time);
            }
            line.push_str(",\"segment_time\":\"");
            line.push_str(&self.time_text);
            line.push('"');
        }
        if let Some(origin) = about.origin {
            line.push_str(",\"origin\":");
            line.push_str(&figures::origin(&origin));
        }
        line.push_str("}\n");
        line.as_bytes()
    }
}

/// The line of a gap, without its newline.
pub(crate) fn gap_line(gap: Gap) -> String {
    Object::new().with_json("gap", &figures::gap(&gap)).text()
}

/// Reads a line. What is wrong with it is the error.
pub(super) fn parse(line: &[u8]) -> Result<JsonLine, String> {
    let object: BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(line).map_err(|error| format!("is not a JSON object: {error}"))?;
    let string = |value: &RawValue, name: &str| {
        serde_json::from_str::<String>(value.get()).map_err(|_| format!("{name:?} is not a string"))
    };
    let contents = ["text", "base64", "json", "gap"];
    let mut found =
        contents.into_iter().filter_map(|name| object.get(name).map(|value| (name, value)));
    let one = found.next();
    if found.next().is_some() {
        return Err("has two contents: give one of \"text\", \"base64\", \"json\"".into());
    }
    match one {
        Some(("text", value)) => Ok(JsonLine::Message(string(value, "text")?.into_bytes())),
        Some(("base64", value)) => base64::decode(&string(value, "base64")?)
            .map(JsonLine::Message)
            .ok_or_else(|| "\"base64\" is not valid base64".into()),
        Some(("json", value)) => Ok(JsonLine::Message(compact(value.get()))),
        Some((_, gap)) => Ok(JsonLine::Gap { reserved: gap.get().contains("\"reserved\"") }),
        None => Err("has no content: give \"text\", \"base64\" or \"json\"".into()),
    }
}

/// Reads a line and the number of its message, or the last one of its gap, where it has one.
pub(crate) fn numbered(line: &[u8]) -> Result<(Option<u64>, JsonLine), String> {
    let parsed = parse(line)?;
    let object: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
    let last = || object.get("gap").and_then(|gap| gap.get("last"));
    let number = object.get("seq").or_else(last);
    Ok((number.and_then(serde_json::Value::as_u64), parsed))
}

/// Valid JSON without the blanks between its parts. Numbers and the order of keys stay as they
/// are.
fn compact(json: &str) -> Vec<u8> {
    let (mut quoted, mut escaped) = (false, false);
    let mut kept = Vec::with_capacity(json.len());
    for byte in json.bytes() {
        if quoted || !byte.is_ascii_whitespace() {
            kept.push(byte);
        }
        quoted ^= byte == b'"' && !escaped;
        escaped = quoted && byte == b'\\' && !escaped;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seq: u64, message: &[u8]) -> String {
        let mut lines = Lines::default();
        let line = lines.of(seq, message, message.len(), About::default());
        String::from_utf8(line.strip_suffix(b"\n").unwrap().to_vec()).unwrap()
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        for message in [&b""[..], b"hello", b"a\n\"b\"\\\x01\x7f", "\u{e9}".as_bytes(), b"\xff\0"] {
            let line = line(7, message);
            assert!(!line.contains('\n'));
            assert_eq!(parse(line.as_bytes()), Ok(JsonLine::Message(message.to_vec())), "{line}");
        }
        assert_eq!(line(1042, b"hello"), r#"{"seq":1042,"len":5,"text":"hello"}"#);
        assert_eq!(line(0, b"\xff"), r#"{"seq":0,"len":1,"base64":"/w=="}"#);
        let gap = Gap { first: 7, last: 9, cause: mmq::GapCause::Damaged };
        let reported = r#"{"gap":{"first":7,"last":9,"count":3,"cause":"damaged"}}"#;
        assert_eq!(gap_line(gap), reported);
        assert_eq!(parse(reported.as_bytes()), Ok(JsonLine::Gap { reserved: false }));
    }

    #[test]
    fn any_value_is_stored_compact_and_otherwise_as_it_is() {
        let line =
            r#"{ "json" : { "b" : [ 1.50, 12345678901234567890123 ], "a \" b" : "x  \\" } }"#;
        let stored = r#"{"b":[1.50,12345678901234567890123],"a \" b":"x  \\"}"#;
        assert_eq!(parse(line.as_bytes()), Ok(JsonLine::Message(stored.into())));
    }

    #[test]
    fn what_is_no_message_is_refused_with_the_reason() {
        for (line, reason) in [
            ("", "not a JSON object"),
            ("7", "not a JSON object"),
            ("{}", "no content"),
            (r#"{"text":7}"#, "\"text\" is not a string"),
            (r#"{"base64":"A"}"#, "not valid base64"),
            (r#"{"text":"a","base64":"AA"}"#, "two contents"),
        ] {
            let said = parse(line.as_bytes()).unwrap_err();
            assert!(said.contains(reason), "{line}: {said}");
        }
    }
}
