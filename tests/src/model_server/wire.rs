//! Encodes a reply in its wire format, streamed or whole.

mod databricks;
mod gemini;
mod responses;

use serde_json::{Value, json};

use super::reply::{ReplyPart, ScriptedReply};
use super::request::RequestWire;

/// A placeholder for a byte that is not UTF-8; replaced when the bytes are generated.
pub const INVALID: char = '\u{e000}';

/// Returns a streamed reply: the opening, one entry per part, the closing.
pub fn stream(reply: &ScriptedReply, wire: RequestWire, number: usize) -> Vec<Vec<u8>> {
    let events = match wire {
        RequestWire::Anthropic => anthropic_events(reply, number),
        RequestWire::OpenaiChat => openai_events(reply, number),
        RequestWire::Databricks => databricks::events(reply, number),
        RequestWire::OpenaiResponses => responses::events(reply, number),
        RequestWire::Gemini => gemini::events(reply, number),
    };
    events.into_iter().map(spoiled).collect()
}

/// Returns a reply as one JSON object.
pub fn whole(reply: &ScriptedReply, wire: RequestWire, number: usize) -> Vec<u8> {
    let mut reply = reply.clone();
    reply.parts.dedup_by(|later, earlier| {
        let (ReplyPart::Text(more), ReplyPart::Text(text)) = (later, earlier) else { return false };
        text.push_str(more);
        true
    });
    let reply = &reply;
    let object = match wire {
        RequestWire::Anthropic => anthropic_whole(reply, number),
        RequestWire::OpenaiChat => openai_whole(reply, number),
        RequestWire::Databricks => databricks::whole(reply, number),
        RequestWire::OpenaiResponses => responses::whole(reply, number),
        RequestWire::Gemini => gemini::whole(reply, number),
    };
    spoiled(object.to_string())
}

/// Returns the wire format's error object for a status.
pub fn error(wire: Option<RequestWire>, status: u16) -> Vec<u8> {
    let (kind, message) = match status {
        400 => ("invalid_request_error", "bad request"),
        401 => ("authentication_error", "invalid x-api-key"),
        403 => ("permission_error", "not allowed"),
        404 => ("not_found_error", "model: scripted"),
        413 => ("request_too_large", "request exceeds the maximum size"),
        429 => ("rate_limit_error", "too many requests"),
        529 => ("overloaded_error", "Overloaded"),
        _ => ("api_error", "internal server error"),
    };
    let body = match wire {
        Some(RequestWire::OpenaiChat | RequestWire::OpenaiResponses) => {
            json!({"error": {"message": message, "type": kind, "code": null}})
        }
        Some(RequestWire::Databricks) => json!({"error_code": kind, "message": message}),
        Some(RequestWire::Gemini) => {
            json!({"error": {"code": status, "message": message, "status": kind}})
        }
        Some(RequestWire::Anthropic) | None => {
            json!({"type": "error", "error": {"type": kind, "message": message}})
        }
    };
    body.to_string().into_bytes()
}

/// Returns a server-sent event.
pub fn event(name: Option<&str>, data: &Value) -> String {
    let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
    format!("{name}data: {data}\n\n")
}

fn spoiled(text: String) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut pieces = text.split(INVALID);
    bytes.extend_from_slice(pieces.next().unwrap_or_default().as_bytes());
    for piece in pieces {
        bytes.push(0xff);
        bytes.extend_from_slice(piece.as_bytes());
    }
    bytes
}

fn call_id(id: &str, prefix: &str, number: usize, index: usize) -> String {
    if id.is_empty() { format!("{prefix}_{number}_{index}") } else { id.to_owned() }
}

fn named(name: &str, mut data: Value) -> String {
    data["type"] = json!(name);
    event(Some(name), &data)
}

fn anthropic_stop(reply: &ScriptedReply) -> String {
    let calls = reply.parts.iter().any(|part| matches!(part, ReplyPart::Call { .. }));
    reply.stop.clone().unwrap_or_else(|| if calls { "tool_use" } else { "end_turn" }.to_owned())
}

fn anthropic_usage(reply: &ScriptedReply) -> Value {
    let tokens = reply.tokens;
    json!({"input_tokens": tokens.input, "cache_read_input_tokens": tokens.cache_read,
        "cache_creation_input_tokens": tokens.cache_write, "output_tokens": 1})
}

fn anthropic_message(reply: &ScriptedReply, number: usize) -> Value {
    json!({"id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": "scripted",
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": anthropic_usage(reply)})
}

fn anthropic_events(reply: &ScriptedReply, number: usize) -> Vec<String> {
    let opening = named("message_start", json!({"message": anthropic_message(reply, number)}))
        + &named("ping", json!({}));
    let mut events = vec![opening];
    let mut index = 0;
    for (at, part) in reply.parts.iter().enumerate() {
        if let ReplyPart::Error { kind, message } = part {
            events.push(named("error", json!({"error": {"type": kind, "message": message}})));
            return events;
        }
        let same = |other: Option<&ReplyPart>| {
            matches!((part, other), (ReplyPart::Text(_), Some(ReplyPart::Text(_))))
        };
        let mut piece = String::new();
        let before = at.checked_sub(1).and_then(|at| reply.parts.get(at));
        if !same(before) {
            let block = anthropic_block(part, number, index);
            piece += &named("content_block_start", json!({"index": index, "content_block": block}));
        }
        for delta in anthropic_deltas(part, number) {
            piece += &named("content_block_delta", json!({"index": index, "delta": delta}));
        }
        if !same(reply.parts.get(at + 1)) {
            piece += &named("content_block_stop", json!({"index": index}));
            index += 1;
        }
        events.push(piece);
    }
    let delta = json!({"delta": {"stop_reason": anthropic_stop(reply), "stop_sequence": null},
        "usage": {"output_tokens": reply.tokens.output}});
    events.push(named("message_delta", delta) + &named("message_stop", json!({})));
    events
}

/// Returns the start of a block, without the content of later deltas.
fn anthropic_block(part: &ReplyPart, number: usize, index: usize) -> Value {
    match part {
        ReplyPart::Text(_) | ReplyPart::Error { .. } => json!({"type": "text", "text": ""}),
        ReplyPart::Thought(_) => json!({"type": "thinking", "thinking": "", "signature": ""}),
        ReplyPart::Sealed(data) => json!({"type": "redacted_thinking", "data": data}),
        ReplyPart::Call { id, name, .. } => {
            json!({"type": "tool_use", "id": call_id(id, "toolu", number, index), "name": name, "input": {}})
        }
    }
}

fn anthropic_deltas(part: &ReplyPart, number: usize) -> Vec<Value> {
    match part {
        ReplyPart::Text(text) => vec![json!({"type": "text_delta", "text": text})],
        ReplyPart::Thought(text) => vec![
            json!({"type": "thinking_delta", "thinking": text}),
            json!({"type": "signature_delta", "signature": format!("signature-{number}")}),
        ],
        ReplyPart::Sealed(_) | ReplyPart::Error { .. } => Vec::new(),
        ReplyPart::Call { args, .. } => {
            let pieces = std::iter::once("").chain(halves(args));
            pieces.map(|text| json!({"type": "input_json_delta", "partial_json": text})).collect()
        }
    }
}

fn anthropic_whole(reply: &ScriptedReply, number: usize) -> Value {
    let mut message = anthropic_message(reply, number);
    let blocks = reply.parts.iter().enumerate().map(|(index, part)| {
        let mut block = anthropic_block(part, number, index);
        match part {
            ReplyPart::Text(text) => block["text"] = json!(text),
            ReplyPart::Thought(text) => {
                block["thinking"] = json!(text);
                block["signature"] = json!(format!("signature-{number}"));
            }
            ReplyPart::Call { args, .. } => {
                block["input"] = serde_json::from_str(args).unwrap_or_else(|_| json!(args));
            }
            ReplyPart::Sealed(_) | ReplyPart::Error { .. } => {}
        }
        block
    });
    message["content"] = blocks.collect();
    message["stop_reason"] = json!(anthropic_stop(reply));
    message["usage"]["output_tokens"] = json!(reply.tokens.output);
    message
}

fn openai_stop(reply: &ScriptedReply) -> String {
    let calls = reply.parts.iter().any(|part| matches!(part, ReplyPart::Call { .. }));
    reply.stop.clone().unwrap_or_else(|| if calls { "tool_calls" } else { "stop" }.to_owned())
}

fn openai_usage(reply: &ScriptedReply) -> Value {
    let tokens = reply.tokens;
    let prompt = tokens.input + tokens.cache_read;
    json!({"prompt_tokens": prompt, "completion_tokens": tokens.output,
        "total_tokens": prompt.saturating_add(tokens.output),
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read}})
}

fn openai_chunk(number: usize, delta: Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk = json!({"id": format!("chatcmpl-{number}"), "object": "chat.completion.chunk",
        "created": 0, "model": "scripted", "choices": [choice]});
    event(None, &chunk)
}

fn openai_events(reply: &ScriptedReply, number: usize) -> Vec<String> {
    let opening = openai_chunk(number, json!({"role": "assistant", "content": ""}), None);
    let mut events = vec![opening];
    let mut calls = 0;
    for part in &reply.parts {
        let piece = match part {
            ReplyPart::Text(text) => openai_chunk(number, json!({"content": text}), None),
            ReplyPart::Thought(text) => {
                openai_chunk(number, json!({"reasoning_content": text}), None)
            }
            ReplyPart::Sealed(_) => String::new(),
            ReplyPart::Call { id, name, args } => {
                calls += 1;
                openai_call(number, calls - 1, (id, name, args))
            }
            ReplyPart::Error { kind, message } => {
                events.push(event(None, &json!({"error": {"type": kind, "message": message}})));
                return events;
            }
        };
        events.push(piece);
    }
    let usage = json!({"id": format!("chatcmpl-{number}"), "object": "chat.completion.chunk",
        "created": 0, "model": "scripted", "choices": [], "usage": openai_usage(reply)});
    let closing = openai_chunk(number, json!({}), Some(&openai_stop(reply)));
    events.push(closing + &event(None, &usage) + "data: [DONE]\n\n");
    events
}

fn openai_call(number: usize, index: usize, (id, name, args): (&str, &str, &str)) -> String {
    let id = call_id(id, "call", number, index);
    let first = json!({"tool_calls": [{"index": index, "id": id, "type": "function",
        "function": {"name": name, "arguments": ""}}]});
    let rest = halves(args).map(|text| {
        let delta = json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]});
        openai_chunk(number, delta, None)
    });
    std::iter::once(openai_chunk(number, first, None)).chain(rest).collect()
}

fn openai_whole(reply: &ScriptedReply, number: usize) -> Value {
    let mut text = String::new();
    let mut thought = String::new();
    let mut calls = Vec::new();
    for part in &reply.parts {
        match part {
            ReplyPart::Text(more) => text += more,
            ReplyPart::Thought(more) => thought += more,
            ReplyPart::Sealed(_) | ReplyPart::Error { .. } => {}
            ReplyPart::Call { id, name, args } => calls.push(json!({"type": "function",
                "id": call_id(id, "call", number, calls.len()),
                "function": {"name": name, "arguments": args}})),
        }
    }
    let mut message = json!({"role": "assistant", "content": text});
    if !thought.is_empty() {
        message["reasoning_content"] = json!(thought);
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let choice = json!({"index": 0, "message": message, "finish_reason": openai_stop(reply)});
    json!({"id": format!("chatcmpl-{number}"), "object": "chat.completion", "created": 0,
        "model": "scripted", "choices": [choice], "usage": openai_usage(reply)})
}

/// Splits a text into two halves, so that arguments arrive in more than one delta.
fn halves(text: &str) -> impl Iterator<Item = &str> {
    let mut middle = text.len() / 2;
    while !text.is_char_boundary(middle) {
        middle -= 1;
    }
    let (first, second) = text.split_at(middle);
    [first, second].into_iter().filter(|half| !half.is_empty())
}
