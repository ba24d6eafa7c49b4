//! Parses the arguments of calls as models send them.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::message::{ContentPart, Message, ToolCall};

/// Creates a call from its arguments as text. An empty text and `null` mean no arguments; an object
/// inside a JSON string is unwrapped, and one that gateways send twice, or after an empty one, is
/// read once; anything else makes a malformed call, which is not run.
pub(crate) fn call(id: String, name: String, text: &str) -> ToolCall {
    match object(text) {
        Some(args) => {
            ToolCall { id, name: plain_name(name), args: Value::Object(args), malformed: None }
        }
        None => malformed(id, name, text),
    }
}

/// Creates a call whose arguments are invalid; its text is kept as sent.
pub(crate) fn malformed(id: String, name: String, text: &str) -> ToolCall {
    let args = Value::String(text.to_owned());
    ToolCall { id, name: plain_name(name), args, malformed: Some(text.to_owned()) }
}

/// Returns the name of a tool without the namespace that gpt-oss writes before it
/// (`functions.shell`), and that some servers let through.
fn plain_name(name: String) -> String {
    name.strip_prefix("functions.").map(str::to_owned).unwrap_or(name)
}

/// Returns the arguments of an earlier call to send back: always an object, because servers reject
/// (or fail on) anything else.
pub(crate) fn args_to_send(call: &ToolCall) -> Value {
    match (&call.malformed, &call.args) {
        (Some(text), _) => serde_json::json!({ "malformed_arguments": text }),
        (None, Value::Object(_)) => call.args.clone(),
        (None, other) => serde_json::json!({ "arguments": other }),
    }
}

/// A signature that Gemini accepts for calls without one: those of another model, or of an earlier
/// version of a conversation.
///
/// Source: <https://ai.google.dev/gemini-api/docs/thought-signatures>.
pub(crate) const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Maximum length of an id or a name, in characters, for services that limit it.
const MAX_ID: usize = 40;
const MAX_NAME: usize = 64;

/// Shortens the id of a call for strict services; other services create longer ids, with dots and
/// colons. Keeps the end, which differs more than the beginning.
pub(crate) fn sanitize_id(id: &str) -> String {
    let sanitized = sanitize(id);
    sanitized[sanitized.len().saturating_sub(MAX_ID)..].to_owned()
}

/// Converts the name of an earlier call to one that services accept, since a model may have made
/// one up.
pub(crate) fn sanitize_name(name: &str) -> String {
    let mut name = sanitize(name);
    name.truncate(MAX_NAME);
    if name.is_empty() { "nameless".to_owned() } else { name }
}

/// Replaces all characters except letters, digits, `_` and `-`.
fn sanitize(text: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    text.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect()
}

/// Parses an object from text.
pub(crate) fn object(text: &str) -> Option<Map<String, Value>> {
    if text.trim().is_empty() {
        return Some(Map::new());
    }
    match repeated_value(text)? {
        Value::Object(args) => Some(args),
        Value::Null => Some(Map::new()),
        Value::String(inner) => serde_json::from_str(&inner).ok(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// Parses JSON in which one value may be repeated, or follow an empty object.
fn repeated_value(text: &str) -> Option<Value> {
    let empty = Value::Object(Map::new());
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let first = values.next()?.ok()?;
    values.try_fold(first, |value, next| {
        let next = next.ok()?;
        let is_same = next == value || next == empty;
        if is_same { Some(value) } else { (value == empty).then_some(next) }
    })
}

/// Assigns call ids that are unique in a conversation, for servers that send none or repeat them.
#[derive(Debug)]
pub(crate) struct CallIds {
    used: HashSet<String>,
    next: usize,
}

impl CallIds {
    /// Creates ids for the reply to these messages.
    pub(crate) fn after(messages: &[Message]) -> CallIds {
        let parts = messages.iter().flat_map(|message| &message.parts);
        let used = parts.filter_map(|part| match part {
            ContentPart::Call(call) => Some(call.id.clone()),
            ContentPart::Text { .. }
            | ContentPart::Note(_)
            | ContentPart::Reasoning { .. }
            | ContentPart::Result(_)
            | ContentPart::Image(_) => None,
        });
        let used: HashSet<String> = used.collect();
        CallIds { next: used.len(), used }
    }

    /// Returns the id that a server sent, or a new one if it is empty or taken.
    pub(crate) fn unique(&mut self, proposed: &str) -> String {
        let mut id = proposed.to_owned();
        while id.is_empty() || self.used.contains(&id) {
            id = format!("call_{}", self.next);
            self.next += 1;
        }
        self.used.insert(id.clone());
        id
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_run_and_other_arguments_are_kept_as_text() {
        let args = |text: &str| call("1".into(), "t".into(), text).args;
        assert_eq!(args(""), json!({}));
        assert_eq!(args("null"), json!({}));
        assert_eq!(args(r#"{"a": 1}"#), json!({"a": 1}));
        assert_eq!(args(r#""{\"a\": 1}""#), json!({"a": 1}));
        for repeated in [r#"{}{"a": 1}"#, r#"{"a": 1}{"a":1}"#, r#"{"a": 1} {}"#] {
            assert_eq!(args(repeated), json!({"a": 1}));
        }
        for bad in [r#"{"a": "#, "[1]", "7", "\"x\"", r#"{"a": 1}{"a": 2}"#, r#"{}{"a""#] {
            assert_eq!(call("1".into(), "t".into(), bad).malformed.as_deref(), Some(bad));
        }
    }

    #[test]
    fn accepted_ids_and_names_are_unchanged() {
        for fine in ["toolu_01AbC-9", "call_1", "mcp__jira__find"] {
            assert_eq!((sanitize_id(fine).as_str(), sanitize_name(fine).as_str()), (fine, fine));
        }
        assert_eq!(sanitize_id("functions.shell:0"), "functions_shell_0");
        let long = |n: u32| sanitize_id(&format!("chatcmpl-tool-{n:040}"));
        assert!(long(1).len() == 40 && long(1) != long(2));
        assert_eq!(sanitize_name("run shell!"), "run_shell_");
        assert_eq!(
            (sanitize_name(""), sanitize_name(&"é".repeat(99)).len()),
            ("nameless".into(), 64)
        );
    }

    #[test]
    fn missing_and_repeated_ids_are_replaced() {
        let mut ids = CallIds::after(&[]);
        assert_eq!(ids.unique("a"), "a");
        assert_eq!(ids.unique(""), "call_0");
        assert_eq!(ids.unique("a"), "call_1");
    }
}
