//! Builds a request in the Messages format. Cache markers are set for each request: on the system
//! prompt, the last tool and the last two user messages, four at most.

use base::config::providers::CacheConfig;
use serde_json::{Value, json};

use crate::history::repair;
use crate::message::{ContentPart, HarnessNote, Image, Message, MessageRole, ToolResult};
use crate::provider::{ChatRequest, ProviderFacts, ToolDefinition};
use crate::tool_args::{args_to_send, sanitize_id};

use super::MessagesWire;

/// Builds the body of a request.
pub(crate) fn body(wire: &MessagesWire, request: &ChatRequest<'_>, facts: &ProviderFacts) -> Value {
    let mark = mark(wire.cache);
    let mut body = json!({"model": facts.model, "max_tokens": request.max_output});
    if !request.system.trim().is_empty() {
        body["system"] = json!([{"type": "text", "text": request.system, "cache_control": mark}]);
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
        if let Some(last) = body["tools"].as_array_mut().and_then(|tools| tools.last_mut()) {
            last["cache_control"] = mark.clone();
        }
    }
    let mut messages: Vec<Value> = repair(request.messages).iter().map(message).collect();
    mark_last_two(&mut messages, &mark);
    body["messages"] = json!(messages);
    if let Some(effort) = &wire.effort {
        body["output_config"] = json!({"effort": effort});
    }
    match (wire.thinking_parameter(request), wire.sent_temperature()) {
        // Thinking models accept only their default temperature.
        (Some(thinking_parameter), _) => body["thinking"] = thinking_parameter,
        (None, Some(temperature)) => body["temperature"] = json!(temperature),
        (None, None) => {}
    }
    body["stream"] = json!(true);
    body
}

fn mark(cache: CacheConfig) -> Value {
    match cache {
        CacheConfig::Ephemeral => json!({"type": "ephemeral"}),
        CacheConfig::FiveMinutes => json!({"type": "ephemeral", "ttl": "5m"}),
        CacheConfig::OneHour => json!({"type": "ephemeral", "ttl": "1h"}),
    }
}

fn mark_last_two(messages: &mut [Value], mark: &Value) {
    let users = messages.iter_mut().rev().filter(|message| message["role"] == "user").take(2);
    for user in users {
        if let Some(last) = user["content"].as_array_mut().and_then(|blocks| blocks.last_mut()) {
            last["cache_control"] = mark.clone();
        }
    }
}

fn tool(spec: &ToolDefinition) -> Value {
    json!({"name": spec.name, "description": spec.description, "input_schema": spec.parameters})
}

fn message(message: &Message) -> Value {
    let role = match message.role {
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
    };
    let blocks: Vec<Value> = message.parts.iter().filter_map(block).collect();
    json!({"role": role, "content": blocks})
}

fn block(part: &ContentPart) -> Option<Value> {
    match part {
        ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
            Some(json!({"type": "text", "text": text}))
        }
        ContentPart::Reasoning { sealed, .. } => sealed.clone().filter(is_ours),
        ContentPart::Call(call) => Some(json!({"type": "tool_use", "id": sanitize_id(&call.id),
            "name": call.name, "input": args_to_send(call)})),
        ContentPart::Result(result) => Some(tool_result(result)),
        ContentPart::Image(picture) => Some(image(picture)),
    }
}

/// Whether a reasoning block may be sent back. Blocks of other providers are not sent, nor are
/// thinking blocks without the signature that the provider verifies.
pub(crate) fn is_ours(sealed: &Value) -> bool {
    match sealed["type"].as_str() {
        Some("thinking") => sealed["signature"].as_str().is_some_and(|text| !text.is_empty()),
        Some("redacted_thinking") => true,
        Some(_) | None => false,
    }
}

fn tool_result(result: &ToolResult) -> Value {
    let mut block = json!({"type": "tool_result", "tool_use_id": sanitize_id(&result.call_id)});
    if result.images.is_empty() {
        // The format rejects empty text but accepts a result without content.
        if !result.text.is_empty() {
            block["content"] = json!(result.text);
        }
    } else {
        let text = Some(&result.text).filter(|text| !text.trim().is_empty());
        let text = text.map(|text| json!({"type": "text", "text": text}));
        block["content"] = text.into_iter().chain(result.images.iter().map(image)).collect();
    }
    if !result.ok {
        block["is_error"] = json!(true);
    }
    block
}

fn image(image: &Image) -> Value {
    json!({"type": "image",
        "source": {"type": "base64", "media_type": image.media_type, "data": image.data}})
}
