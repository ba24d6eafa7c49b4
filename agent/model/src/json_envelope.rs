//! The envelope in which a small model answers: a JSON object, `{"thought": …, "name": …,
//! "arguments": {…}}`. The call `answer{text}` contains the model's text, which is streamed.

use serde_json::Value;

use crate::json_scanner::{JsonEvent, JsonScanner};

/// The pseudo tool that contains the model's text.
pub(crate) const ANSWER: &str = "answer";

/// The key of the text before the call.
pub(crate) const THOUGHT: &str = "thought";

/// A piece of the model's output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ModelOutput {
    /// Text.
    Text(String),
    /// A complete call.
    Call {
        /// The tool.
        name: String,
        /// The arguments, as far as they were generated.
        args: Value,
        /// Whether the output limit truncated it.
        cut: bool,
    },
}

/// Parses an envelope incrementally.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonEnvelope {
    scanner: JsonScanner,
    raw: Vec<u8>,
    name: Vec<u8>,
    words: Utf8Decoder,
}

impl JsonEnvelope {
    /// Parses the next bytes and returns the text among them.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<ModelOutput> {
        let mut text = String::new();
        for byte in bytes {
            if self.ended() {
                break;
            }
            self.raw.push(*byte);
            let Some(JsonEvent::Bytes(decoded)) = self.scanner.push(*byte) else { continue };
            if self.scanner.is_at(&["name"]) {
                self.name.extend(decoded);
            } else if self.is_answer() && self.scanner.is_at(&["arguments", "text"]) {
                text.push_str(&self.words.push(&decoded));
            }
        }
        (!text.is_empty()).then_some(ModelOutput::Text(text))
    }

    /// Whether the object is complete.
    pub(crate) fn ended(&self) -> bool {
        self.scanner.ended()
    }

    /// Returns the output byte for byte: the conversation repeats it, so that its KV can be reused.
    pub(crate) fn raw(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }

    /// Returns the call once the output is complete. An answer has none.
    pub(crate) fn call(&self) -> Option<ModelOutput> {
        if self.is_answer() {
            return None;
        }
        let cut = !self.ended();
        let value: Value = serde_json::from_str(&self.closed()).unwrap_or_default();
        let name = String::from_utf8_lossy(&self.name).into_owned();
        let args =
            value.get("arguments").cloned().unwrap_or_else(|| Value::Object(Default::default()));
        Some(ModelOutput::Call { name, args, cut })
    }

    fn is_answer(&self) -> bool {
        self.name == ANSWER.as_bytes()
    }

    /// Returns the output, completed to valid JSON.
    fn closed(&self) -> String {
        let complete = &self.raw[..self.raw.len() - self.scanner.dangling().min(self.raw.len())];
        let mut text = String::from_utf8_lossy(complete).into_owned();
        if !self.ended() {
            text.push_str(&self.scanner.closing());
        }
        text
    }
}

/// Decodes bytes that may split a character.
#[derive(Clone, Debug, Default)]
pub(crate) struct Utf8Decoder {
    pending: Vec<u8>,
}

impl Utf8Decoder {
    /// Returns the text that is complete with these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            let error = match std::str::from_utf8(&self.pending) {
                Ok(valid_text) => {
                    text.push_str(valid_text);
                    self.pending.clear();
                    return text;
                }
                Err(error) => error,
            };
            let valid_len = error.valid_up_to();
            text.push_str(&String::from_utf8_lossy(&self.pending[..valid_len]));
            let Some(invalid_len) = error.error_len() else {
                self.pending.drain(..valid_len);
                return text; // an incomplete character
            };
            text.push('\u{FFFD}');
            self.pending.drain(..valid_len + invalid_len);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(pieces: &[&[u8]]) -> (String, Option<ModelOutput>) {
        let mut envelope = JsonEnvelope::default();
        let mut words = String::new();
        for piece in pieces {
            if let Some(ModelOutput::Text(text)) = envelope.push(piece) {
                words.push_str(&text);
            }
        }
        (words, envelope.call())
    }

    #[test]
    fn a_call_is_returned_as_a_whole() {
        let json = br#"{"name": "write_file", "arguments": {"path": "a", "content": "x\ny"}}"#;
        let args = json!({"path": "a", "content": "x\ny"});
        let call = ModelOutput::Call { name: "write_file".into(), args, cut: false };
        assert_eq!(read(&[json]), (String::new(), Some(call)));
    }

    #[test]
    fn a_truncated_call_is_marked_and_keeps_its_arguments() {
        let json = br#"{"name": "write_file", "arguments": {"path": "a", "content": "x\u00e"#;
        let args = json!({"path": "a", "content": "x"});
        let call = ModelOutput::Call { name: "write_file".into(), args, cut: true };
        assert_eq!(read(&[json]), (String::new(), Some(call)));
    }

    proptest! {
        #[test]
        fn an_answer_reads_the_same_at_every_split(text in "[\\PC\n\"\\\\]{0,12}", ascii in any::<bool>()) {
            let mut json = json!({"name": "answer", "arguments": {"text": text}}).to_string();
            if ascii {
                json = json.encode_utf16().map(|unit| match u8::try_from(unit) {
                    Ok(byte) if byte.is_ascii() => char::from(byte).to_string(),
                    _ => format!("\\u{unit:04x}"),
                }).collect();
            }
            let bytes = json.as_bytes();
            for split in 0..=bytes.len() {
                let (words, call) = read(&[&bytes[..split], &bytes[split..]]);
                prop_assert_eq!(&words, &text);
                prop_assert_eq!(call, None);
            }
        }
    }
}
