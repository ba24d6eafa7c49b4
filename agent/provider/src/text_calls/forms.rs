//! The forms of a call in a model's text: decides which JSON objects are calls.

use serde_json::{Map, Value};

use super::lenient::{self, ObjectEnd};
use crate::tool_args;

/// The code fence marker.
pub(crate) const FENCE: &str = "```";
/// The tag that ends a block with a call.
pub(crate) const BLOCK_END: &str = "</tool_call>";

/// A call found in text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FoundCall {
    /// The name of the tool.
    pub name: String,
    /// The arguments; `None` if they are invalid.
    pub args: Option<Map<String, Value>>,
    /// The source text of the call.
    pub source: String,
}

/// The content of a code fence.
pub(crate) enum FenceContent {
    /// Undecided: more input is needed.
    Wait,
    /// Something other than calls.
    Other,
    /// Only calls, and the end offset of the closing marker.
    Calls(Vec<FoundCall>, usize),
}

/// Parses a call in a block. Accepts any name, so that an unknown one gets an error result.
pub(crate) fn named_call(text: &str) -> Option<FoundCall> {
    let source = text.to_owned();
    match lenient::parse(text).and_then(|value| call_of(&value)) {
        Some((name, args)) => Some(FoundCall { name, args: args.or(Some(Map::new())), source }),
        None => {
            let name = lenient::name_in(text)?.to_owned();
            Some(FoundCall { name, args: None, source })
        }
    }
}

/// Parses a call of one of these tools that has arguments.
pub(crate) fn known_call(text: &str, tools: &[String]) -> Option<FoundCall> {
    let (name, args) = lenient::parse(text).and_then(|value| call_of(&value))?;
    let source = text.to_owned();
    tools.contains(&name).then_some(FoundCall { name, args: Some(args?), source })
}

/// Classifies the fence whose content begins at `start`.
pub(crate) fn fenced_calls(
    text: &str,
    start: usize,
    tools: &[String],
    is_end: bool,
) -> FenceContent {
    let undecided = || if is_end { FenceContent::Other } else { FenceContent::Wait };
    let mut calls = Vec::new();
    let mut offset = start;
    loop {
        let rest = text[offset..].trim_start();
        offset = text.len() - rest.len();
        if rest.starts_with(FENCE) && !calls.is_empty() {
            return FenceContent::Calls(calls, offset + FENCE.len());
        }
        if rest.len() < FENCE.len() && FENCE.starts_with(rest) {
            return undecided();
        }
        match begins_like_a_call(rest) {
            None => return undecided(),
            Some(false) => return FenceContent::Other,
            Some(true) => {}
        }
        let ObjectEnd::Complete(end) = lenient::scan(rest, None) else { return undecided() };
        let Some(call) = known_call(&rest[..end], tools) else { return FenceContent::Other };
        calls.push(call);
        offset += end;
    }
}

/// Whether an object's first key is that of a call; `None` if more input is needed.
pub(crate) fn begins_like_a_call(text: &str) -> Option<bool> {
    let Some(content) = text.strip_prefix('{') else { return Some(false) };
    let content = content.trim_start();
    let keys = ["\"tool\"", "\"name\""];
    if keys.iter().any(|key| content.starts_with(key)) {
        return Some(true);
    }
    if keys.iter().any(|key| key.starts_with(content)) { None } else { Some(false) }
}

/// Returns the name and arguments of an object in the form of a call, g3's or Qwen's.
fn call_of(value: &Value) -> Option<(String, Option<Map<String, Value>>)> {
    let object = value.as_object()?;
    let name = object.get("tool").or_else(|| object.get("name"))?.as_str()?;
    let args = ["args", "arguments", "parameters"].iter().find_map(|key| object.get(*key));
    let args = match args {
        None => None,
        Some(Value::Object(args)) => Some(args.clone()),
        Some(Value::String(text)) => Some(tool_args::object(text)?),
        Some(Value::Null) => Some(Map::new()),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_)) => return None,
    };
    (!name.is_empty()).then(|| (name.to_owned(), args))
}
