//! An Anthropic model behind chat completions, as in a Databricks serving endpoint: partial usage
//! in every chunk, content as text or as a list, thinking as signed blocks.

use serde_json::{Value, json};

use super::{call_id, event, halves, openai_stop};
use crate::model_server::reply::{ReplyPart, ScriptedReply};

/// Returns the reply as a stream.
pub fn events(reply: &ScriptedReply, number: usize) -> Vec<String> {
    let chunk = |delta: Value| chunk(reply, number, delta, None);
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}))];
    let mut calls = 0;
    for (at, part) in reply.parts.iter().enumerate() {
        let piece = match part {
            ReplyPart::Text(text) if at % 2 == 0 => chunk(json!({"content": text})),
            ReplyPart::Text(text) => chunk(json!({"content": [{"type": "text", "text": text}]})),
            ReplyPart::Thought(text) => {
                let [words, seal] = thought(text, number).map(|block| chunk(content(block)));
                words + &seal
            }
            ReplyPart::Sealed(data) => chunk(content(sealed(data))),
            ReplyPart::Call { id, name, args } => {
                calls += 1;
                let id = call_id(id, "toolu_bdrk", number, calls - 1);
                let first = json!({"tool_calls": [{"index": calls - 1, "id": id,
                    "type": "function", "function": {"name": name, "arguments": ""}}]});
                let rest = halves(args).map(|text| {
                    chunk(json!({"tool_calls": [{"index": calls - 1,
                        "function": {"arguments": text}}]}))
                });
                std::iter::once(chunk(first)).chain(rest).collect()
            }
            ReplyPart::Error { kind, message } => {
                events.push(event(None, &json!({"error": {"type": kind, "message": message}})));
                return events;
            }
        };
        events.push(piece);
    }
    let closing = self::chunk(reply, number, json!({"content": ""}), Some(&openai_stop(reply)));
    events.push(closing + "data: [DONE]\n\n");
    events
}

fn chunk(reply: &ScriptedReply, number: usize, delta: Value, finish: Option<&str>) -> String {
    let mut usage = usage(reply);
    if finish.is_none() {
        usage["completion_tokens"] = Value::Null;
        usage["total_tokens"] = Value::Null;
    }
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk = json!({"id": format!("msg_bdrk_{number}"), "object": "chat.completion.chunk",
        "created": 0, "model": "us.anthropic.scripted", "choices": [choice], "usage": usage});
    event(None, &chunk)
}

fn usage(reply: &ScriptedReply) -> Value {
    let tokens = reply.tokens;
    let prompt = tokens.input + tokens.cache_read + tokens.cache_write;
    json!({"prompt_tokens": prompt, "completion_tokens": tokens.output,
        "total_tokens": prompt.saturating_add(tokens.output), "cache_read_input_tokens": tokens.cache_read,
        "cache_creation_input_tokens": tokens.cache_write})
}

fn content(summary: Value) -> Value {
    json!({"content": [{"type": "reasoning", "summary": [summary]}]})
}

/// Returns the deltas of a thinking block: its text, then its signature.
fn thought(text: &str, number: usize) -> [Value; 2] {
    let seal = format!("signature-{number}");
    [(text, ""), ("", &seal)]
        .map(|(text, seal)| json!({"type": "summary_text", "text": text, "signature": seal}))
}

fn sealed(data: &str) -> Value {
    json!({"type": "summary_encrypted_text", "data": data})
}

/// Returns the reply as one JSON object.
pub fn whole(reply: &ScriptedReply, number: usize) -> Value {
    let mut blocks = Vec::new();
    let mut calls = Vec::new();
    for part in &reply.parts {
        match part {
            ReplyPart::Text(text) => blocks.push(json!({"type": "text", "text": text})),
            ReplyPart::Thought(text) => {
                let mut whole = thought(text, number)[1].clone();
                whole["text"] = json!(text);
                blocks.push(json!({"type": "reasoning", "summary": [whole]}));
            }
            ReplyPart::Sealed(data) => {
                blocks.push(json!({"type": "reasoning", "summary": [sealed(data)]}));
            }
            ReplyPart::Call { id, name, args } => calls.push(json!({"type": "function",
                "id": call_id(id, "toolu_bdrk", number, calls.len()),
                "function": {"name": name, "arguments": args}})),
            ReplyPart::Error { .. } => {}
        }
    }
    let mut message = json!({"role": "assistant", "content": blocks});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let choice = json!({"index": 0, "message": message, "finish_reason": openai_stop(reply)});
    json!({"id": format!("msg_bdrk_{number}"), "object": "chat.completion", "created": 0,
        "model": "us.anthropic.scripted", "choices": [choice], "usage": usage(reply)})
}
