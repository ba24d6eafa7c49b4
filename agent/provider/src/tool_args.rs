//! The arguments of a call, as models send them.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::message::{ContentPart, Message, ToolCall};

/// A call from its arguments as text. Nothing and `null` mean no arguments; an object inside a
/// JSON string is taken out of it; anything else makes a malformed call, which is not run.
pub(crate) fn call(id: String, name: String, text: &str) -> ToolCall {
    match object(text) {
        Some(args) => ToolCall { id, name, args: Value::Object(args), malformed: None },
        None => malformed(id, name, text),
    }
}

/// A call whose arguments cannot be understood; its text is kept as sent.
pub(crate) fn malformed(id: String, name: String, text: &str) -> ToolCall {
    let args = Value::String(text.to_owned());
    ToolCall { id, name, args, malformed: Some(text.to_owned()) }
}

/// The arguments to send back for a call of the past: always an object, because servers refuse
/// (or fail on) anything else.
pub(crate) fn sendable(call: &ToolCall) -> Value {
    match (&call.malformed, &call.args) {
        (Some(text), _) => serde_json::json!({ "malformed_arguments": text }),
        (None, Value::Object(_)) => call.args.clone(),
        (None, other) => serde_json::json!({ "arguments": other }),
    }
}

/// Characters of an id or a name at most, where a service counts them.
const MOST_OF_ID: usize = 40;
const MOST_OF_NAME: usize = 64;

/// The id of a call as strict services take it; other services make longer ones, with dots and
/// colons. Their ends differ more than their beginnings.
pub(crate) fn plain_id(id: &str) -> String {
    let plain = plain(id);
    plain[plain.len().saturating_sub(MOST_OF_ID)..].to_owned()
}

/// The name of a call of the past as services take it: a model may have made one up.
pub(crate) fn plain_name(name: &str) -> String {
    let mut name = plain(name);
    name.truncate(MOST_OF_NAME);
    if name.is_empty() { "nameless".to_owned() } else { name }
}

/// A text of letters, digits, `_` and `-` alone.
fn plain(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    text.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}

/// An object from text.
pub(crate) fn object(text: &str) -> Option<Map<String, Value>> {
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
pub(crate) struct CallIds {
    taken: HashSet<String>,
    next: usize,
}

impl CallIds {
    /// Ids for the reply to these messages.
    pub(crate) fn after(messages: &[Message]) -> CallIds {
        let parts = messages.iter().flat_map(|message| &message.parts);
        let taken = parts.filter_map(|part| match part {
            ContentPart::Call(call) => Some(call.id.clone()),
            ContentPart::Text { .. }
            | ContentPart::Note(_)
            | ContentPart::Reasoning { .. }
            | ContentPart::Result(_)
            | ContentPart::Image(_) => None,
        });
        let taken: HashSet<String> = taken.collect();
        CallIds { next: taken.len(), taken }
    }

    /// The id that a server sent, or one of ours when it is empty or taken.
    pub(crate) fn unique(&mut self, sent: &str) -> String {
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
    fn ids_and_names_that_services_take_stay_as_they_are() {
        for fine in ["toolu_01AbC-9", "call_1", "mcp__jira__find"] {
            assert_eq!((plain_id(fine).as_str(), plain_name(fine).as_str()), (fine, fine));
        }
        assert_eq!(plain_id("functions.shell:0"), "functions_shell_0");
        let long = |n: u32| plain_id(&format!("chatcmpl-tool-{n:040}"));
        assert!(long(1).len() == 40 && long(1) != long(2));
        assert_eq!(plain_name("run shell!"), "run_shell_");
        assert_eq!((plain_name(""), plain_name(&"é".repeat(99)).len()), ("nameless".into(), 64));
    }

    #[test]
    fn missing_and_repeated_ids_are_replaced() {
        let mut ids = CallIds::after(&[]);
        assert_eq!(ids.unique("a"), "a");
        assert_eq!(ids.unique(""), "call_0");
        assert_eq!(ids.unique("a"), "call_1");
    }
}
