//! Scans a JSON value incrementally: tracks the position and decodes strings.

/// An event caused by a byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JsonEvent {
    /// Decoded bytes of a string value (not of a key). They may split a character.
    Bytes(Vec<u8>),
    /// A string value ended.
    StringEnd,
    /// The whole value ended.
    End,
}

/// The position within an incomplete JSON value.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonScanner {
    stack: Vec<Level>,
    inside: Inside,
    ended: bool,
}

#[derive(Clone, Debug)]
enum Level {
    Object { key: Vec<u8>, expect_key: bool },
    Array,
}

#[derive(Clone, Debug, Default, PartialEq)]
enum Inside {
    #[default]
    Structure,
    Text {
        is_key: bool,
        escape: Escape,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
enum Escape {
    #[default]
    None,
    Backslash,
    /// `\u` and the hex digits so far.
    Unicode(Vec<u8>),
    /// The first half of a surrogate pair; the second must follow.
    High(u16),
    HighBackslash(u16),
    HighUnicode(u16, Vec<u8>),
}

impl JsonScanner {
    /// Scans the next byte of well-formed JSON.
    pub(crate) fn push(&mut self, byte: u8) -> Option<JsonEvent> {
        if self.ended {
            return None;
        }
        match std::mem::take(&mut self.inside) {
            Inside::Structure => self.structure(byte),
            Inside::Text { is_key, escape } => self.text(byte, is_key, escape),
        }
    }

    /// Whether the next byte is within a string value.
    #[cfg(test)]
    fn in_string(&self) -> bool {
        matches!(self.inside, Inside::Text { is_key: false, .. })
    }

    /// Returns the keys that lead to the current value, outermost first; arrays have none.
    fn path(&self) -> impl Iterator<Item = &[u8]> {
        self.stack.iter().filter_map(|level| match level {
            Level::Object { key, .. } => Some(key.as_slice()),
            Level::Array => None,
        })
    }

    /// Whether the current value is exactly at these keys.
    pub(crate) fn is_at(&self, keys: &[&str]) -> bool {
        self.stack.len() == keys.len() && self.path().eq(keys.iter().map(|key| key.as_bytes()))
    }

    /// Whether the value is complete.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Returns the quote, brackets and braces that complete a value that was truncated in a string.
    pub(crate) fn closing(&self) -> String {
        let mut closing = String::new();
        if matches!(self.inside, Inside::Text { .. }) {
            closing.push('"');
        }
        let brackets = self.stack.iter().rev().map(|level| match level {
            Level::Object { .. } => '}',
            Level::Array => ']',
        });
        closing.extend(brackets);
        closing
    }

    /// Returns the number of bytes at the end that belong to an incomplete escape.
    pub(crate) fn dangling(&self) -> usize {
        let Inside::Text { escape, .. } = &self.inside else { return 0 };
        match escape {
            Escape::None => 0,
            Escape::Backslash => 1,
            Escape::Unicode(digits) => 2 + digits.len(),
            Escape::High(_) => 6,
            Escape::HighBackslash(_) => 7,
            Escape::HighUnicode(_, digits) => 8 + digits.len(),
        }
    }

    fn structure(&mut self, byte: u8) -> Option<JsonEvent> {
        match byte {
            b'{' => self.stack.push(Level::Object { key: Vec::new(), expect_key: true }),
            b'[' => self.stack.push(Level::Array),
            b'}' | b']' => {
                self.stack.pop();
                if self.stack.is_empty() {
                    self.ended = true;
                    return Some(JsonEvent::End);
                }
            }
            b',' => {
                if let Some(Level::Object { expect_key, .. }) = self.stack.last_mut() {
                    *expect_key = true;
                }
            }
            b'"' => {
                let mut is_key = false;
                if let Some(Level::Object { key, expect_key }) = self.stack.last_mut()
                    && std::mem::take(expect_key)
                {
                    key.clear();
                    is_key = true;
                }
                self.inside = Inside::Text { is_key, escape: Escape::None };
            }
            _ => {} // colons, blanks, numbers and words change nothing
        }
        None
    }

    fn text(&mut self, byte: u8, is_key: bool, escape: Escape) -> Option<JsonEvent> {
        if escape == Escape::None && byte == b'"' {
            let whole = !is_key && self.stack.is_empty();
            self.ended |= whole;
            return (!is_key).then_some(if whole { JsonEvent::End } else { JsonEvent::StringEnd });
        }
        let (escape, bytes) = escape.push(byte);
        self.inside = Inside::Text { is_key, escape };
        let bytes = bytes?;
        if !is_key {
            return Some(JsonEvent::Bytes(bytes));
        }
        if let Some(Level::Object { key, .. }) = self.stack.last_mut() {
            key.extend(bytes);
        }
        None
    }
}

impl Escape {
    fn push(self, byte: u8) -> (Escape, Option<Vec<u8>>) {
        match self {
            Escape::None if byte == b'\\' => (Escape::Backslash, None),
            Escape::None => (Escape::None, Some(vec![byte])),
            Escape::Backslash if byte == b'u' => (Escape::Unicode(Vec::new()), None),
            Escape::Backslash => (Escape::None, Some(vec![simple(byte)])),
            Escape::Unicode(digits) => match unit(digits, byte) {
                Ok(unit @ 0xD800..=0xDBFF) => (Escape::High(unit), None),
                Ok(unit) => (Escape::None, Some(encode(u32::from(unit)))),
                Err(digits) => (Escape::Unicode(digits), None),
            },
            Escape::High(high) if byte == b'\\' => (Escape::HighBackslash(high), None),
            Escape::HighBackslash(high) if byte == b'u' => {
                (Escape::HighUnicode(high, Vec::new()), None)
            }
            Escape::High(_) => Escape::None.after_lone_half(byte),
            Escape::HighBackslash(_) => Escape::Backslash.after_lone_half(byte),
            Escape::HighUnicode(high, digits) => match unit(digits, byte) {
                Ok(low @ 0xDC00..=0xDFFF) => {
                    let point =
                        0x10000 + ((u32::from(high) - 0xD800) << 10) + (u32::from(low) - 0xDC00);
                    (Escape::None, Some(encode(point)))
                }
                Ok(other @ 0xD800..=0xDBFF) => (Escape::High(other), Some(encode(0xFFFD))),
                Ok(other) => {
                    let mut all = encode(0xFFFD);
                    all.extend(encode(u32::from(other)));
                    (Escape::None, Some(all))
                }
                Err(digits) => (Escape::HighUnicode(high, digits), None),
            },
        }
    }
}

impl Escape {
    /// A lone surrogate becomes U+FFFD; what follows is scanned as usual.
    fn after_lone_half(self, byte: u8) -> (Escape, Option<Vec<u8>>) {
        let (escape, bytes) = self.push(byte);
        let mut all = encode(0xFFFD);
        all.extend(bytes.unwrap_or_default());
        (escape, Some(all))
    }
}

fn simple(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b't' => b'\t',
        b'r' => b'\r',
        b'b' => 8,
        b'f' => 12,
        other => other,
    }
}

/// Returns the UTF-16 unit once all four digits are known, otherwise the digits so far.
fn unit(mut digits: Vec<u8>, byte: u8) -> Result<u16, Vec<u8>> {
    digits.push(byte);
    if digits.len() < 4 {
        return Err(digits);
    }
    let text = std::str::from_utf8(&digits).unwrap_or("fffd");
    Ok(u16::from_str_radix(text, 16).unwrap_or(0xFFFD))
}

fn encode(point: u32) -> Vec<u8> {
    char::from_u32(point).unwrap_or('\u{FFFD}').to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns all strings of a value, decoded incrementally.
    fn strings(json: &str) -> Vec<String> {
        let mut scanner = JsonScanner::default();
        let (mut all, mut current) = (Vec::new(), Vec::new());
        for byte in json.bytes() {
            match scanner.push(byte) {
                Some(JsonEvent::Bytes(bytes)) => current.extend(bytes),
                Some(JsonEvent::StringEnd) => {
                    all.push(String::from_utf8(std::mem::take(&mut current)).unwrap());
                }
                Some(JsonEvent::End) | None => {}
            }
        }
        assert!(scanner.ended(), "{json} did not end");
        all
    }

    #[test]
    fn escapes_are_decoded_and_keys_are_skipped() {
        let json = r#"{"key":"a\n\"b\\ \u00e9 \ud83d\ude00","list":["x",{"y":"z"}],"n":1}"#;
        assert_eq!(strings(json), ["a\n\"b\\ é 😀", "x", "z"]);
        assert_eq!(
            strings(r#"["\ud83dx","\ud83d\n","\ud83d\u0041"]"#),
            ["\u{FFFD}x", "\u{FFFD}\n", "\u{FFFD}A"]
        );
    }

    #[test]
    fn the_path_leads_to_the_current_value() {
        let mut scanner = JsonScanner::default();
        for byte in br#"{"name":"answer","arguments":{"text":"h"# {
            scanner.push(*byte);
        }
        assert!(scanner.is_at(&["arguments", "text"]) && scanner.in_string());
        assert_eq!(scanner.closing(), "\"}}");
    }

    proptest! {
        #[test]
        fn a_truncated_value_is_completed_at_every_byte_of_a_string(text in "\\PC{0,20}", more in any::<Vec<u8>>()) {
            let json = serde_json::json!({"a": [{"text": text}], "b": more}).to_string();
            let mut scanner = JsonScanner::default();
            for (at, byte) in json.bytes().enumerate() {
                scanner.push(byte);
                if scanner.in_string() {
                    let whole = &json.as_bytes()[..=at - scanner.dangling().min(at)];
                    let mut cut = String::from_utf8_lossy(whole).into_owned();
                    cut.push_str(&scanner.closing());
                    prop_assert!(serde_json::from_str::<serde_json::Value>(&cut).is_ok(), "{cut}");
                }
            }
        }
    }
}
