//! Fuzz targets: the stream of a model service, its wire formats, and calls in text.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use base::model_host::connection::lines;
use base::model_host::wire::HostResponseLine;
use serde_json::Value;

use crate::anthropic::MessagesWire;
use crate::gemini::GeminiWire;
use crate::hosted::WireFormat;
use crate::message::{Message, MessageRole, ToolCall};
use crate::models::cost;
use crate::openai_chat::ChatWire;
use crate::openai_chat::dialect::ChatService;
use crate::openai_responses::ResponsesWire;
use crate::provider::{ChatRequest, Delta, ProviderFacts, ToolDefinition};
use crate::sse::{SseEvent, SseReader};
use crate::text_calls::call_filter::TextPiece;
use crate::text_calls::parse::TextCallParser;

/// Maximum growth of text: one byte that is not UTF-8 becomes three.
const MAX_GROWTH: usize = 3;

fn events(chunks: &[&[u8]]) -> Vec<SseEvent> {
    let (mut reader, mut events) = (SseReader::default(), Vec::new());
    for chunk in chunks {
        reader.push(chunk, &mut events).unwrap();
    }
    reader.end(&mut events);
    events
}

/// Events do not depend on how the bytes are split, and are not larger than the bytes.
pub fn sse(data: &[u8]) {
    let whole = events(&[data]);
    let size = 1 + data.first().map_or(0, |byte| usize::from(*byte) % 7);
    let chunks: Vec<&[u8]> = data.chunks(size).collect();
    assert_eq!(events(&chunks), whole);
    let length: usize = whole.iter().map(|event| event.data.len() + event.name.len()).sum();
    assert!(length <= MAX_GROWTH * data.len(), "{length} bytes of {}", data.len());
}

/// A reply in the Messages format.
pub fn anthropic(data: &[u8]) {
    reply(&MessagesWire::default(), data);
}

/// A reply in the chat completions format.
pub fn openai_chat(data: &[u8]) {
    reply(&ChatWire::default(), data);
}

/// A reply of a serving endpoint of Databricks.
pub fn databricks(data: &[u8]) {
    reply(&ChatWire { service: ChatService::DatabricksClaude, ..ChatWire::default() }, data);
}

/// A reply in the Responses format.
pub fn openai_responses(data: &[u8]) {
    reply(&ResponsesWire::new(None), data);
}

/// A reply of Gemini.
pub fn gemini(data: &[u8]) {
    reply(&GeminiWire::new(None), data);
}

/// Decodes a stream, or a whole object if the bytes start with a brace. A reply has no more calls
/// than bytes, each with its own id, and an object as arguments unless it is marked as malformed; it
/// can be stored, read and sent back.
fn reply(wire: &dyn WireFormat, data: &[u8]) {
    let question = [Message::text(MessageRole::User, "hi")];
    let tools = [ToolDefinition {
        name: "shell".to_owned(),
        description: String::new(),
        parameters: serde_json::json!({"type": "object"}),
    }];
    let facts = ProviderFacts {
        provider: "x.y".to_owned(),
        model: "m".to_owned(),
        context: 100_000,
        max_output: 1000,
        small: false,
        priced: true,
    };
    let request = ChatRequest {
        system: "",
        messages: &question,
        tools: &tools,
        max_output: 1000,
        session: "s",
    };
    let mut decoder = wire.decoder(&request);
    let mut streamed = 0;
    let mut on_delta = |delta: Delta<'_>| {
        if let Delta::Text(text) | Delta::Reasoning(text) = delta {
            streamed += text.len();
        }
    };
    let whole =
        data.starts_with(b"{").then(|| serde_json::from_slice::<Value>(data).ok()).flatten();
    match whole {
        Some(body) => drop(decoder.decode_whole(&body, &mut on_delta)),
        None => {
            for event in events(&[data]) {
                if decoder.event(&event, &mut on_delta).is_err() {
                    break;
                }
            }
        }
    }
    assert!(streamed <= 2 * MAX_GROWTH * data.len() + 1024, "{streamed} bytes of {}", data.len());
    let Some(reply) = decoder.reply() else { return };
    let _ = reply.usage.plus(reply.usage).tokens();
    let price = base::config::providers::Price {
        input: 1.0,
        output: 1.0,
        cache_read: None,
        cache_write: None,
        long_prompt: None,
    };
    assert!(cost(&reply.usage, price) >= 0.0);
    let mut ids: Vec<&str> = reply.message.calls().map(|call| call.id.as_str()).collect();
    assert!(ids.len() <= data.len() && ids.iter().all(|id| !id.is_empty()));
    ids.sort_unstable();
    let count = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), count, "two calls have one id");
    let is_readable = |call: &ToolCall| call.args.is_object() || call.malformed.is_some();
    assert!(reply.message.calls().all(is_readable), "{:?}", reply.message);
    let text = serde_json::to_string(&reply.message).unwrap();
    assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), reply.message);
    let next = Message::text(MessageRole::User, "go on");
    let history = [question[0].clone(), reply.message, next];
    let _ = wire.body(&ChatRequest { messages: &history, ..request }, &facts).to_string();
}

/// Lines of the model host are read or refused, and mean the same when they are written again.
pub fn embedded(data: &[u8]) {
    for line in lines::<HostResponseLine>(data).take(1 + data.len()) {
        let Ok(line) = line else { continue };
        let text = serde_json::to_string(&line).unwrap();
        let read: HostResponseLine = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
}

/// Parses a reply; adjacent text is joined.
fn pieces(chunks: &[&str], is_quotation: bool) -> Vec<TextPiece> {
    let mut parser = TextCallParser::new(["shell".to_owned(), "read_file".to_owned()]);
    let mut found: Vec<TextPiece> = chunks.iter().flat_map(|chunk| parser.push(chunk)).collect();
    found.extend(parser.end(&|_| is_quotation));
    let mut joined: Vec<TextPiece> = Vec::new();
    for piece in found {
        match (joined.last_mut(), piece) {
            (Some(TextPiece::Text(text)), TextPiece::Text(more))
            | (Some(TextPiece::Thought(text)), TextPiece::Thought(more)) => text.push_str(&more),
            (_, piece) => joined.push(piece),
        }
    }
    joined
}

fn has_call(pieces: &[TextPiece]) -> bool {
    pieces.iter().any(|piece| matches!(piece, TextPiece::Call(_)))
}

/// Calls do not depend on how the text is split, and text in a code fence that more text follows,
/// or that repeats what the model was shown, is no call.
pub fn text_calls(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let whole = pieces(&[&text], false);
    let at = text.char_indices().map(|(at, _)| at).nth(text.chars().count() / 2).unwrap_or(0);
    assert_eq!(pieces(&[&text[..at], &text[at..]], false), whole);
    let length: usize = whole
        .iter()
        .map(|piece| match piece {
            TextPiece::Text(text) | TextPiece::Thought(text) => text.len(),
            TextPiece::Call(call) => call.source.len(),
        })
        .sum();
    assert!(length <= 2 * text.len(), "{length} bytes of {}", text.len());
    if !text.contains("```") {
        let example = format!("This is the file:\n```text\n{text}\n```\nThat is all of it.");
        assert!(!has_call(&pieces(&[&example], false)), "{example}");
        let quotation = format!("This is the file:\n```text\n{text}\n```\n");
        assert!(!has_call(&pieces(&[&quotation], true)), "{quotation}");
    }
}

#[cfg(test)]
mod short_runs {
    #[test]
    fn streams_of_any_bytes_are_read_in_any_pieces() {
        short_fuzz::run("sse", super::sse);
    }

    #[test]
    fn replies_of_any_bytes_can_be_stored_and_sent_back() {
        short_fuzz::run("anthropic", super::anthropic);
        short_fuzz::run("openai_chat", super::openai_chat);
        short_fuzz::run("databricks", super::databricks);
        short_fuzz::run("openai_responses", super::openai_responses);
        short_fuzz::run("gemini", super::gemini);
    }

    #[test]
    fn lines_of_a_model_host_are_read_or_refused() {
        short_fuzz::run("embedded", super::embedded);
    }

    #[test]
    fn quoted_text_is_never_a_call() {
        short_fuzz::run("text_calls", super::text_calls);
    }
}
