//! Parses free text with calls between markers: `<tool_call>{…}</tool_call>`.

use serde_json::Value;

use crate::json_envelope::{ModelOutput, Utf8Decoder};
use crate::json_scanner::JsonScanner;

/// The start marker of a call.
pub(crate) const BEGIN: &str = "<tool_call>";
/// The end marker of a call.
pub(crate) const END: &str = "</tool_call>";

/// Parses free text incrementally.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolCallParser {
    words: Utf8Decoder,
    buffered: String,
    call: Option<Call>,
}

#[derive(Clone, Debug, Default)]
struct Call {
    scanner: JsonScanner,
    raw: String,
}

impl ToolCallParser {
    /// Parses the next bytes and returns completed text and calls.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<ModelOutput> {
        let text = self.words.push(bytes);
        self.buffered.push_str(&text);
        let mut outputs = Vec::new();
        while self.step(&mut outputs) {}
        outputs
    }

    /// Whether a call is in progress.
    pub(crate) fn in_call(&self) -> bool {
        self.call.is_some()
    }

    /// Returns the text after the start marker of the current call.
    pub(crate) fn partial_call(&self) -> &str {
        self.call.as_ref().map_or("", |call| &call.raw)
    }

    /// Returns the rest at the end of the output.
    pub(crate) fn finish(mut self) -> Option<ModelOutput> {
        match self.call.take() {
            Some(call) => Some(call.into_output(true)),
            None if self.buffered.is_empty() => None,
            None => Some(ModelOutput::Text(self.buffered)),
        }
    }

    /// Advances one step. Returns false if more input is needed.
    fn step(&mut self, outputs: &mut Vec<ModelOutput>) -> bool {
        if let Some(call) = &mut self.call {
            while !call.scanner.ended() {
                let Some(next) = self.buffered.chars().next() else { return false };
                self.buffered.drain(..next.len_utf8());
                call.raw.push(next);
                for byte in next.to_string().bytes() {
                    call.scanner.push(byte);
                }
            }
            let rest = self.buffered.trim_start();
            if rest.len() < END.len() && END.starts_with(rest) {
                return false;
            }
            let rest = rest.strip_prefix(END).unwrap_or(rest).to_owned();
            outputs.extend(self.call.take().map(|call| call.into_output(false)));
            self.buffered = rest;
            return true;
        }
        if let Some((before, after)) = self.buffered.split_once(BEGIN) {
            if !before.is_empty() {
                outputs.push(ModelOutput::Text(before.to_owned()));
            }
            self.buffered = after.to_owned();
            self.call = Some(Call::default());
            return true;
        }
        let partial_len = partial(&self.buffered, BEGIN);
        let rest = self.buffered.split_off(self.buffered.len() - partial_len);
        let ready = std::mem::replace(&mut self.buffered, rest);
        if !ready.is_empty() {
            outputs.push(ModelOutput::Text(ready));
        }
        false
    }
}

impl Call {
    fn into_output(self, cut: bool) -> ModelOutput {
        let raw =
            self.raw.clone() + if cut { self.scanner.closing() } else { String::new() }.as_str();
        let value: Value = serde_json::from_str(&raw).unwrap_or_default();
        let name = value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let args =
            value.get("arguments").cloned().unwrap_or_else(|| Value::Object(Default::default()));
        ModelOutput::Call { name, args, cut }
    }
}

/// Returns the number of bytes at the end of a text that may be the start of the marker.
fn partial(text: &str, mark: &str) -> usize {
    (1..mark.len()).rev().find(|n| text.ends_with(&mark[..*n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str, split: usize) -> Vec<ModelOutput> {
        let mut marked = ToolCallParser::default();
        let mut all = marked.push(&text.as_bytes()[..split]);
        all.extend(marked.push(&text.as_bytes()[split..]));
        all.extend(marked.finish());
        // Text may be split arbitrarily.
        let mut joined: Vec<ModelOutput> = Vec::new();
        for said in all {
            match (joined.last_mut(), said) {
                (Some(ModelOutput::Text(before)), ModelOutput::Text(text)) => {
                    before.push_str(&text)
                }
                (_, said) => joined.push(said),
            }
        }
        joined
    }

    #[test]
    fn text_and_calls_parse_the_same_at_every_split() {
        let text = "I läs <tool it.\n<tool_call>\n{\"name\": \"shell\", \"arguments\": {\"c\": \"}<é\"}}\n</tool_call>\n<tool_call>{\"name\":\"b\",\"arguments\":{}}</tool_call>";
        let call = |name: &str, args| ModelOutput::Call { name: name.into(), args, cut: false };
        let wanted = vec![
            ModelOutput::Text("I läs <tool it.\n".into()),
            call("shell", json!({"c": "}<é"})),
            ModelOutput::Text("\n".into()),
            call("b", json!({})),
        ];
        for split in 0..=text.len() {
            assert_eq!(read(text, split), wanted, "split at {split}");
        }
    }

    #[test]
    fn an_unterminated_call_is_truncated() {
        let said = read("<tool_call>{\"name\":\"w\",\"arguments\":{\"t\":\"ab", 12);
        assert_eq!(
            said,
            [ModelOutput::Call { name: "w".into(), args: json!({"t": "ab"}), cut: true }]
        );
    }
}
