//! Calls as Qwen3-Coder writes them: `<function=NAME>`, a `<parameter=KEY>` with its value for each
//! argument, `</function>`. Values are text; the tools convert them to the types of their parameters.

use serde_json::{Map, Value};

use super::forms::{BLOCK_END, FoundCall};

/// How such a call begins.
pub(crate) const FUNCTION: &str = "<function=";
const FUNCTION_END: &str = "</function>";
const PARAMETER: &str = "<parameter=";
const PARAMETER_END: &str = "</parameter>";
/// Maximum length of the name of a tool or a parameter.
const MAX_NAME: usize = 64;

/// What a text is that begins with [`FUNCTION`].
#[derive(Debug, PartialEq)]
pub(crate) enum TaggedCall {
    /// Undecided: more input is needed.
    Wait,
    /// Something other than a call.
    Other,
    /// A call, and its length in bytes.
    Call(FoundCall, usize),
}

/// Reads the call at the beginning of a text.
pub(crate) fn read(text: &str, is_end: bool) -> TaggedCall {
    let undecided = if is_end { TaggedCall::Other } else { TaggedCall::Wait };
    let (name, mut rest) = match tag_value(text, FUNCTION) {
        Ok(found) => found,
        Err(NotATag::Incomplete) => return undecided,
        Err(NotATag::Other) => return TaggedCall::Other,
    };
    let call = |args: Option<Map<String, Value>>, rest: &str| {
        let length = text.len() - rest.len();
        let source = text[..length].to_owned();
        TaggedCall::Call(FoundCall { name: name.to_owned(), args, source }, length)
    };
    let mut args = Map::new();
    loop {
        let before = rest;
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix(FUNCTION_END) {
            return call(Some(args), after);
        }
        // The end of the block around it may be the only one.
        if rest.starts_with(BLOCK_END) {
            return call(Some(args), rest);
        }
        let (key, value) = match tag_value(rest, PARAMETER) {
            Ok(found) => found,
            Err(NotATag::Incomplete) if !is_end => return TaggedCall::Wait,
            Err(NotATag::Incomplete) if rest.is_empty() && !args.is_empty() => {
                return call(Some(args), before);
            }
            Err(_) if begins_a_tag(rest, &[FUNCTION_END, BLOCK_END]) && !is_end => {
                return TaggedCall::Wait;
            }
            Err(_) => return TaggedCall::Other,
        };
        match value_end(value, is_end) {
            Some((length, after)) => {
                args.insert(key.to_owned(), Value::String(without_line_ends(&value[..length])));
                rest = &value[after..];
            }
            None if is_end => return call(None, ""),
            None => return TaggedCall::Wait,
        }
    }
}

/// Why a text does not begin with a tag.
enum NotATag {
    Incomplete,
    Other,
}

/// Returns the value of a tag (`<function=VALUE>`) at the beginning of a text, and what follows.
fn tag_value<'t>(text: &'t str, opener: &str) -> Result<(&'t str, &'t str), NotATag> {
    let Some(content) = text.strip_prefix(opener) else {
        let is_incomplete = begins_a_tag(text, &[opener]);
        return Err(if is_incomplete { NotATag::Incomplete } else { NotATag::Other });
    };
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let end = content.find(|c| !is_name_char(c)).unwrap_or(content.len());
    match content[end..].strip_prefix('>') {
        Some(rest) if (1..=MAX_NAME).contains(&end) => Ok((&content[..end], rest)),
        None if end == content.len() && end <= MAX_NAME => Err(NotATag::Incomplete),
        _ => Err(NotATag::Other),
    }
}

/// Whether a text is the beginning of one of these tags.
fn begins_a_tag(text: &str, tags: &[&str]) -> bool {
    tags.iter().any(|tag| tag.starts_with(text))
}

/// Returns the length of a value, and where its closing tag ends. A closing tag inside a value is not
/// followed by another parameter or the end of the call.
fn value_end(text: &str, is_end: bool) -> Option<(usize, usize)> {
    let ends = text.match_indices(PARAMETER_END);
    for (index, tag) in ends {
        let after = index + tag.len();
        let next = text[after..].trim_start();
        if [PARAMETER, FUNCTION_END, BLOCK_END].iter().any(|tag| next.starts_with(tag)) {
            return Some((index, after));
        }
        if begins_a_tag(next, &[PARAMETER, FUNCTION_END, BLOCK_END]) {
            return is_end.then_some((index, after));
        }
    }
    None
}

/// Removes the line ends between the tags and the value.
fn without_line_ends(value: &str) -> String {
    let value = value.strip_prefix("\r\n").or_else(|| value.strip_prefix('\n')).unwrap_or(value);
    let value = value.strip_suffix('\n').unwrap_or(value);
    value.strip_suffix('\r').unwrap_or(value).to_owned()
}
