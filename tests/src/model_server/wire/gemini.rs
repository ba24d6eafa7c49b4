//! Encodes a reply in Gemini's wire format: chunks of one candidate, ended by its finish reason.

use serde_json::{Value, json};

use crate::model_server::reply::{ReplyPart, ScriptedReply};

/// Returns the events of a streamed reply: the opening, one entry per part, the closing.
pub fn events(reply: &ScriptedReply, number: usize) -> Vec<String> {
    let mut events = vec![chunk(reply, number, &[json!({"text": ""})], None)];
    for part in &reply.parts {
        if let ReplyPart::Error { kind, message } = part {
            let error = json!({"error": {"code": code(kind), "message": message, "status": kind}});
            events.push(event(&error));
            return events;
        }
        events.push(chunk(reply, number, &parts(part, number), None));
    }
    events.push(chunk(reply, number, &[json!({"text": ""})], Some(&stop(reply))));
    events
}

/// Returns a reply as one JSON object.
pub fn whole(reply: &ScriptedReply, number: usize) -> Value {
    let parts: Vec<Value> = reply.parts.iter().flat_map(|part| parts(part, number)).collect();
    object(reply, number, &parts, Some(&stop(reply)))
}

fn event(data: &Value) -> String {
    format!("data: {data}\r\n\r\n")
}

fn chunk(reply: &ScriptedReply, number: usize, parts: &[Value], finish: Option<&str>) -> String {
    event(&object(reply, number, parts, finish))
}

fn object(reply: &ScriptedReply, number: usize, parts: &[Value], finish: Option<&str>) -> Value {
    let tokens = reply.tokens;
    let prompt = tokens.input + tokens.cache_read;
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
    if let Some(finish) = finish {
        candidate["finishReason"] = json!(finish);
    }
    json!({"candidates": [candidate], "modelVersion": "scripted", "responseId": format!("r{number}"),
        "usageMetadata": {"promptTokenCount": prompt, "candidatesTokenCount": tokens.output,
            "cachedContentTokenCount": tokens.cache_read, "totalTokenCount": prompt.saturating_add(tokens.output)}})
}

/// Returns the parts. Arguments are an object; anything else is sent as text.
fn parts(part: &ReplyPart, number: usize) -> Vec<Value> {
    match part {
        ReplyPart::Text(text) => vec![json!({ "text": text })],
        ReplyPart::Thought(text) => vec![json!({"text": text, "thought": true})],
        ReplyPart::Call { name, args, .. } => {
            let args: Value = serde_json::from_str(args).unwrap_or_else(|_| json!(args));
            vec![json!({"functionCall": {"name": name, "args": args},
                "thoughtSignature": format!("signature-{number}")})]
        }
        ReplyPart::Sealed(_) | ReplyPart::Error { .. } => Vec::new(),
    }
}

fn stop(reply: &ScriptedReply) -> String {
    reply.stop.clone().unwrap_or_else(|| "STOP".to_owned())
}

/// Returns the status code for an error type.
fn code(kind: &str) -> u16 {
    match kind {
        "rate_limit_error" => 429,
        "overloaded_error" | "api_error" | "server_error" => 503,
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        _ => 0,
    }
}
