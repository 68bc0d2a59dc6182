//! A dead letter: a message whose command has failed too often, and why, as the queue of `each
//! --dead` holds it. It is one JSON object with `"letter":1`.

use std::path::Path;

use serde_json::Value;

use crate::framing::base64;
use crate::json_object::Object;

/// The version of the object. What has another one is no dead letter.
const VERSION: u64 = 1;

/// A message, where it comes from, and why it failed.
#[derive(Debug)]
pub(crate) struct FailedMessage<'a> {
    pub(crate) queue: &'a Path,
    pub(crate) consumer: &'a str,
    pub(crate) seq: u64,
    pub(crate) attempts: u32,
    /// How the last attempt ended.
    pub(crate) reason: &'a str,
    /// The last line of standard error.
    pub(crate) last_line: &'a str,
    pub(crate) message: &'a [u8],
}

impl FailedMessage<'_> {
    pub(crate) fn text(&self) -> String {
        let object = Object::new()
            .with("letter", VERSION)
            .with("queue", self.queue.display().to_string())
            .with("consumer", self.consumer)
            .with("seq", self.seq)
            .with("attempts", self.attempts)
            .with("reason", self.reason)
            .with("stderr", self.last_line);
        match std::str::from_utf8(self.message) {
            Ok(text) => object.with("text", text).text(),
            Err(_) => {
                let mut text = String::new();
                base64::encode(self.message, &mut text);
                object.with("base64", text).text()
            }
        }
    }
}

/// The message within a dead letter. `None`: these bytes are no dead letter.
pub(crate) fn message_of(bytes: &[u8]) -> Option<Vec<u8>> {
    let object: Value = serde_json::from_slice(bytes).ok()?;
    object.get("letter").and_then(Value::as_u64).filter(|version| *version == VERSION)?;
    let string = |name: &str| object.get(name).and_then(Value::as_str);
    match string("text") {
        Some(text) => Some(text.as_bytes().to_vec()),
        None => base64::decode(string("base64")?),
    }
}
