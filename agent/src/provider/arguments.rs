//! The arguments of a call, as models send them.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::message::{Message, Part, ToolCall};

/// A call from its arguments as text. Nothing and `null` mean no arguments; an object inside a
/// JSON string is taken out of it; anything else makes a malformed call, which is not run.
pub fn call(id: String, name: String, text: &str) -> ToolCall {
    match object(text) {
        Some(args) => ToolCall { id, name, args: Value::Object(args), malformed: None },
        None => malformed(id, name, text),
    }
}

/// A call whose arguments cannot be understood; its text is kept as sent.
pub fn malformed(id: String, name: String, text: &str) -> ToolCall {
    let args = Value::String(text.to_owned());
    ToolCall { id, name, args, malformed: Some(text.to_owned()) }
}

/// The arguments to send back for a call of the past: always an object, because servers refuse
/// (or fail on) anything else.
pub fn sendable(call: &ToolCall) -> Value {
    match (&call.malformed, &call.args) {
        (Some(text), _) => serde_json::json!({ "malformed_arguments": text }),
        (None, Value::Object(_)) => call.args.clone(),
        (None, other) => serde_json::json!({ "arguments": other }),
    }
}

/// An object from text.
pub fn object(text: &str) -> Option<Map<String, Value>> {
    if text.trim().is_empty() {
        return Some(Map::new());
    }
    match serde_json::from_str(text).ok()? {
        Value::Object(args) => Some(args),
        Value::Null => Some(Map::new()),
        Value::String(inner) => serde_json::from_str(&inner).ok(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// Ids of calls that are unique in their conversation, for servers that send none or repeat them.
#[derive(Debug)]
pub struct Ids {
    taken: HashSet<String>,
    next: usize,
}

impl Ids {
    /// Ids for the reply to these messages.
    pub fn after(messages: &[Message]) -> Ids {
        let parts = messages.iter().flat_map(|message| &message.parts);
        let taken = parts.filter_map(|part| match part {
            Part::Call(call) => Some(call.id.clone()),
            Part::Text { .. } | Part::Reasoning { .. } | Part::Result(_) | Part::Image(_) => None,
        });
        let taken: HashSet<String> = taken.collect();
        Ids { next: taken.len(), taken }
    }

    /// The id that a server sent, or one of ours when it is empty or taken.
    pub fn unique(&mut self, sent: &str) -> String {
        let mut id = sent.to_owned();
        while id.is_empty() || self.taken.contains(&id) {
            id = format!("call_{}", self.next);
            self.next += 1;
        }
        self.taken.insert(id.clone());
        id
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_an_object_is_run_and_the_rest_is_kept_as_text() {
        let args = |text: &str| call("1".into(), "t".into(), text).args;
        assert_eq!(args(""), json!({}));
        assert_eq!(args("null"), json!({}));
        assert_eq!(args(r#"{"a": 1}"#), json!({"a": 1}));
        assert_eq!(args(r#""{\"a\": 1}""#), json!({"a": 1}));
        for bad in [r#"{"a": "#, "[1]", "7", "\"x\"", "{} {}"] {
            assert_eq!(call("1".into(), "t".into(), bad).malformed.as_deref(), Some(bad));
        }
    }

    #[test]
    fn missing_and_repeated_ids_are_replaced() {
        let mut ids = Ids::after(&[]);
        assert_eq!(ids.unique("a"), "a");
        assert_eq!(ids.unique(""), "call_0");
        assert_eq!(ids.unique("a"), "call_1");
    }
}
