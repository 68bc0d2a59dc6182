//! JSON objects for programs, their fields in the order in which they were put in.
//!
//! By hand: serde_json sorts those of a map unless it builds indexmap, and leaves DEL and C1 raw.

use std::time::SystemTime;

use serde_json::Value;

use crate::times;

/// A value as JSON, without a byte that a terminal obeys: of the control characters JSON itself
/// escapes the first 32 alone.
pub(crate) fn text(value: &Value) -> String {
    let json = value.to_string();
    let mut escaped = String::with_capacity(json.len());
    escape(&json, is_obeyed, &mut escaped);
    escaped
}

/// Puts a text behind the others, as JSON and in quotes; as [`text`] does, but quickly.
pub(crate) fn quote(text: &str, json: &mut String) {
    json.push('"');
    escape(text, |c| c < ' ' || c == '"' || c == '\\' || is_obeyed(c), json);
    json.push('"');
}

fn is_obeyed(c: char) -> bool {
    ('\x7f'..='\u{9f}').contains(&c)
}

/// Copies the text, with those characters escaped.
fn escape(text: &str, is_escaped: impl Fn(char) -> bool, json: &mut String) {
    let mut copied = 0;
    for (at, c) in text.char_indices().filter(|(_, c)| is_escaped(*c)) {
        *json += text.get(copied..at).unwrap_or_default();
        copied = at + c.len_utf8();
        match c {
            '"' => *json += "\\\"",
            '\\' => *json += "\\\\",
            '\n' => *json += "\\n",
            '\r' => *json += "\\r",
            '\t' => *json += "\\t",
            '\x08' => *json += "\\b",
            '\x0c' => *json += "\\f",
            c => *json += &format!("\\u{:04x}", u32::from(c)),
        }
    }
    *json += text.get(copied..).unwrap_or_default();
}

/// A JSON object in the making.
#[derive(Debug, Default)]
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Object {
        Object::default()
    }

    pub(crate) fn with(self, name: &str, value: impl Into<Value>) -> Object {
        self.with_json(name, &text(&value.into()))
    }

    /// A time, or null.
    pub(crate) fn with_time(self, name: &str, time: Option<SystemTime>) -> Object {
        self.with(name, time.map(times::rfc3339))
    }

    /// A value that is JSON already.
    pub(crate) fn with_json(mut self, name: &str, json: &str) -> Object {
        self.0 += if self.0.is_empty() { "{" } else { "," };
        self.0 += &format!("{}:{json}", Value::from(name));
        self
    }

    /// A list of values that are JSON already.
    pub(crate) fn with_all(self, name: &str, all: impl IntoIterator<Item = String>) -> Object {
        let all: Vec<String> = all.into_iter().collect();
        self.with_json(name, &format!("[{}]", all.join(",")))
    }

    pub(crate) fn text(self) -> String {
        if self.0.is_empty() { "{}".to_owned() } else { self.0 + "}" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_order() {
        let object = Object::new().with("b", 1).with_time("a", None).with("\"", "x\n");
        let object = object.with_all("l", ["1".to_owned(), "{}".to_owned()]);
        assert_eq!(object.text(), r#"{"b":1,"a":null,"\"":"x\n","l":[1,{}]}"#);
        assert_eq!(Object::new().text(), "{}");
    }

    #[test]
    fn no_control_character_goes_out_raw() {
        let all: String = (0..0xa1).filter_map(char::from_u32).collect();
        let json = text(&all.as_str().into());
        assert!(!json.contains(char::is_control), "{json:?}");
        assert!(json.contains("\\u007f\\u0080") && json.contains("\\u009b"), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).as_ref().ok(), Some(&all));
        let mut quoted = String::new();
        quote(&all, &mut quoted);
        assert_eq!(quoted, json);
    }
}
