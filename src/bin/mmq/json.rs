//! JSON objects for programs, their fields in the order in which they were put in.

use std::time::SystemTime;

use serde_json::Value;

use crate::times;

/// A JSON object in the making.
#[derive(Debug, Default)]
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Object {
        Object::default()
    }

    pub(crate) fn with(self, name: &str, value: impl Into<Value>) -> Object {
        self.with_json(name, &value.into().to_string())
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
}
