//! The answer of a JSON-RPC service: one object, or server-sent events.

use serde_json::Value;

use provider::sse::SseReader;

/// Reads an answer as it arrives.
#[derive(Default)]
pub(crate) struct SearchReply {
    whole: Vec<u8>,
    events: SseReader,
}

impl SearchReply {
    /// Takes the next bytes, and returns the answer as soon as an event contains it. The error is
    /// the service's message.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Option<Result<String, String>> {
        self.whole.extend_from_slice(bytes);
        let mut events = Vec::new();
        if let Err(error) = self.events.push(bytes, &mut events) {
            return Some(Err(error.to_string()));
        }
        events.iter().find_map(|event| parse(&event.data))
    }

    /// Returns the number of bytes received.
    pub(crate) fn length(&self) -> usize {
        self.whole.len()
    }

    /// Ends the input. Returns `None` if it contained no answer.
    pub(crate) fn end(mut self) -> Option<Result<String, String>> {
        let mut events = Vec::new();
        self.events.end(&mut events);
        let last = events.iter().find_map(|event| parse(&event.data));
        last.or_else(|| parse(&String::from_utf8_lossy(&self.whole)))
    }
}

/// Returns the text or the error of an object; `None` if it has neither or is not an object.
fn parse(text: &str) -> Option<Result<String, String>> {
    let value: Value = serde_json::from_str(text).ok()?;
    if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
        let message = error["message"].as_str().map(str::to_owned);
        return Some(Err(message.unwrap_or_else(|| error.to_string())));
    }
    let content = value["result"]["content"].as_array()?;
    let texts: Vec<&str> = content.iter().filter_map(|part| part["text"].as_str()).collect();
    let text = texts.join("\n");
    match value["result"]["isError"] == true {
        _ if text.is_empty() => None,
        true => Some(Err(text)),
        false => Some(Ok(text)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, cut: usize) -> Option<Result<String, String>> {
        let mut answer = SearchReply::default();
        let (first, second) = text.as_bytes().split_at(cut.min(text.len()));
        answer.take(first).or_else(|| answer.take(second)).or_else(|| answer.end())
    }

    const EVENTS: &str = ": hello\nevent: message\ndata: [DONE]\n\ndata: {broken\n\n\
        data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n\
        data: {\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"grün\"},\
        {\"type\":\"text\",\"text\":\"b\"}]}}\n\n";

    proptest! {
        #[test]
        fn the_first_event_with_a_text_is_the_answer_however_it_is_split(cut in 0..EVENTS.len()) {
            prop_assert_eq!(read(EVENTS, cut), Some(Ok("grün\nb".to_owned())));
        }
    }

    #[test]
    fn errors_are_returned_and_an_empty_answer_is_none() {
        let error = "{\"error\":{\"code\":-32000,\"message\":\"no credit\"}}";
        assert_eq!(read(error, 3), Some(Err("no credit".to_owned())));
        assert_eq!(read(&format!("data: {error}\n\n"), 9), Some(Err("no credit".to_owned())));
        let failed = "{\"result\":{\"isError\":true,\"content\":[{\"text\":\"bad query\"}]}}";
        assert_eq!(read(failed, 0), Some(Err("bad query".to_owned())));
        let plain = "{\"error\":null,\"result\":{\"content\":[{\"text\":\"x\"}]}}";
        assert_eq!(read(plain, 7), Some(Ok("x".to_owned())));
        for nothing in ["", "{}", "[1]", "{\"result\":{\"content\":[]}}", "data: [DONE]\n\n"] {
            assert_eq!(read(nothing, 2), None, "{nothing}");
        }
    }
}
