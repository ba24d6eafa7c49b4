//! Lenient JSON: finds the end of an object and repairs small errors that models make, without
//! guessing at content.

use serde_json::Value;

/// The end of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectEnd {
    /// The object is complete after this many bytes.
    Complete(usize),
    /// The closing tag is at this byte, outside of strings and before the object is closed.
    Tag(usize),
    /// More input is needed.
    Open {
        /// Whether the input ends inside a string.
        in_string: bool,
    },
}

/// Scans text that begins with `{`; `tag` ends it early.
pub(crate) fn scan(text: &str, tag: Option<&str>) -> ObjectEnd {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return ObjectEnd::Complete(index + 1);
                }
            }
            b'<' if tag.is_some_and(|tag| text[index..].starts_with(tag)) => {
                return ObjectEnd::Tag(index);
            }
            _ => {}
        }
    }
    ObjectEnd::Open { in_string }
}

/// Parses text. Repairs, in this order, raw control characters in strings, single quotes, and
/// missing brackets at the end.
pub(crate) fn parse(text: &str) -> Option<Value> {
    let escaped = escape_controls(text);
    let unchanged = || serde_json::from_str(text).ok();
    let with_escapes = || serde_json::from_str(&escaped).ok();
    let with_quotes = || serde_json::from_str(&double_quotes(&escaped)?).ok();
    let with_brackets = || serde_json::from_str(&close_brackets(&escaped)?).ok();
    unchanged().or_else(with_escapes).or_else(with_quotes).or_else(with_brackets)
}

/// Returns the tool name at the start of a call with invalid JSON.
pub(crate) fn name_in(text: &str) -> Option<&str> {
    ["\"name\"", "\"tool\""].iter().find_map(|key| {
        let value = text.split_once(key)?.1.trim_start().strip_prefix(':')?.trim_start();
        let name = value.strip_prefix('"')?.split_once('"')?.0;
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        (!name.is_empty() && name.chars().all(is_name_char)).then_some(name)
    })
}

fn escape_controls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            '\n' if in_string => {
                out.push_str("\\n");
                continue;
            }
            '\t' if in_string => {
                out.push_str("\\t");
                continue;
            }
            '\r' if in_string => {
                out.push_str("\\r");
                continue;
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

/// Replaces single quotes used in place of double quotes: those next to structure. An apostrophe
/// inside a word is kept. Returns `None` if there is no single quote.
fn double_quotes(text: &str) -> Option<String> {
    let chars: Vec<char> = text.chars().collect();
    let neighbor_in = |index: usize, set: &str, step: isize| {
        let mut index = index.checked_add_signed(step);
        while let Some(c) = index.and_then(|index| chars.get(index)) {
            if !c.is_whitespace() {
                return set.contains(*c);
            }
            index = index.and_then(|index| index.checked_add_signed(step));
        }
        false
    };
    let mut out = String::with_capacity(text.len());
    let (mut open, mut has_quotes) = (None, false);
    for (index, c) in chars.iter().enumerate() {
        match (open, c) {
            (None, '"') => open = Some('"'),
            (Some('"'), '"') if index == 0 || chars[index - 1] != '\\' => open = None,
            (None, '\'') if neighbor_in(index, "{[:,", -1) => {
                (open, has_quotes) = (Some('\''), true);
                out.push('"');
                continue;
            }
            (Some('\''), '\'') if neighbor_in(index, "}]:,", 1) => {
                open = None;
                out.push('"');
                continue;
            }
            (Some('\''), '"') => out.push('\\'),
            _ => {}
        }
        out.push(*c);
    }
    has_quotes.then_some(out)
}

/// Adds the brackets that are missing at the end. Returns `None` inside a string, whose rest is
/// unknown.
fn close_brackets(text: &str) -> Option<String> {
    let (mut stack, mut in_string, mut escaped) = (Vec::new(), false, false);
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' => stack.push('}'),
            '[' => stack.push(']'),
            '}' | ']' => {
                stack.pop();
            }
            _ => {}
        }
    }
    (!in_string).then(|| text.chars().chain(stack.into_iter().rev()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_ends_at_its_closing_brace() {
        assert_eq!(scan(r#"{"a": "}"} x"#, None), ObjectEnd::Complete(10));
        assert_eq!(scan(r#"{"a": "\"}"}"#, None), ObjectEnd::Complete(12));
        assert_eq!(scan(r#"{"a": {"#, None), ObjectEnd::Open { in_string: false });
        assert_eq!(scan(r#"{"a": "x}"#, None), ObjectEnd::Open { in_string: true });
        assert_eq!(scan(r#"{"a": 1</t>"#, Some("</t>")), ObjectEnd::Tag(7));
        assert_eq!(scan(r#"{"a": "</t>"}"#, Some("</t>")), ObjectEnd::Complete(13));
    }

    #[test]
    fn small_errors_are_repaired_and_content_is_unchanged() {
        assert_eq!(parse("{\"a\": \"x\ny\"}"), Some(json!({"a": "x\ny"})));
        assert_eq!(parse("{'a': 'it is', 'b': [1]}"), Some(json!({"a": "it is", "b": [1]})));
        assert_eq!(parse("{'a': 'it's \"so\"'}"), Some(json!({"a": "it's \"so\""})));
        assert_eq!(parse(r#"{"a": "it's"}"#), Some(json!({"a": "it's"})));
        assert_eq!(parse(r#"{"a": {"b": [1"#), Some(json!({"a": {"b": [1]}})));
        assert_eq!(parse(r#"{"a": "cut"#), None);
        assert_eq!(name_in(r#"{"name" : "shell", "arguments": {"#), Some("shell"));
        assert_eq!(name_in(r#"{"name": "a b""#), None);
    }
}
