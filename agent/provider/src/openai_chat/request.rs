//! Builds a request in the chat completions format.

use serde_json::{Value, json};

use crate::anthropic::{adaptive_thinking, thinking};
use crate::history::repair;
use crate::message::{ContentPart, HarnessNote, Image, Message, MessageRole, ToolCall};
use crate::provider::{ChatRequest, ProviderFacts, ToolDefinition};
use crate::tool_args::{NO_SIGNATURE, args_to_send};

use super::dialect::{CallIdFormat, ChatService, Dialect};
use super::{ChatWire, ReasoningEffort};

/// Builds the body of a request.
pub(crate) fn body(wire: &ChatWire, request: &ChatRequest<'_>, facts: &ProviderFacts) -> Value {
    let dialect = wire.service.dialect();
    let mut messages = Vec::new();
    if !request.system.trim().is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    for message in repair(request.messages) {
        match message.role {
            MessageRole::User => user(&message, dialect.ids, &mut messages),
            MessageRole::Assistant => messages.push(assistant(&message, wire)),
        }
    }
    let mut body = json!({"model": facts.model, "messages": messages});
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(|spec| tool(spec, dialect)).collect();
    }
    if dialect.cache_marks && wire.quirks.accepts("cache_control") {
        set_cache_marks(&mut body);
    }
    // OpenAI's newer models reject the old name; other servers know only the old one.
    let needs_new_limit = !wire.quirks.accepts("max_tokens");
    let limit = if needs_new_limit { "max_completion_tokens" } else { dialect.limit };
    body[limit] = json!(request.max_output);
    let is_thinking = set_reasoning(wire, request, &mut body);
    let temperature =
        wire.temperature.filter(|_| !is_thinking && wire.quirks.accepts("temperature"));
    if let Some(temperature) = temperature {
        body["temperature"] = json!(temperature);
    }
    if dialect.cache_key && !request.session.is_empty() {
        body["prompt_cache_key"] = json!(request.session);
    }
    body["stream"] = json!(true);
    if wire.quirks.accepts("stream_options") {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

/// Sets the reasoning parameters. Returns whether they rule out a temperature.
fn set_reasoning(wire: &ChatWire, request: &ChatRequest<'_>, body: &mut Value) -> bool {
    match &wire.thought {
        None => false,
        Some(ReasoningEffort::Effort(word)) => {
            body["reasoning_effort"] = json!(word);
            false
        }
        Some(ReasoningEffort::Budget(budget)) => {
            let is_ours = |sealed: &Value| sealed["block"].is_object();
            let parameter = match wire.quirks.accepts_thinking_budget() {
                true => thinking(*budget, request, is_ours),
                false => Some(adaptive_thinking()),
            };
            let is_thinking = parameter.is_some();
            if let Some(parameter) = parameter {
                body["thinking"] = parameter;
            }
            is_thinking
        }
    }
}

/// Sets cache markers on the system prompt, the last tool and the last two user messages. Messages
/// with tool results accept no markers.
fn set_cache_marks(body: &mut Value) {
    let ephemeral = json!({"type": "ephemeral"});
    let last = body["tools"].as_array_mut().and_then(|tools| tools.last_mut());
    if let Some(last) = last {
        last["function"]["cache_control"] = ephemeral.clone();
    }
    let messages = body["messages"].as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
    let (system, others): (Vec<_>, Vec<_>) =
        messages.iter_mut().partition(|message| message["role"] == "system");
    let users = others.into_iter().rev().filter(|message| message["role"] == "user").take(2);
    for message in system.into_iter().chain(users) {
        if let Some(text) = message["content"].as_str() {
            message["content"] = json!([{"type": "text", "text": text}]);
        }
        if let Some(last) = message["content"].as_array_mut().and_then(|all| all.last_mut()) {
            last["cache_control"] = ephemeral.clone();
        }
    }
}

fn tool(spec: &ToolDefinition, dialect: Dialect) -> Value {
    let mut parameters = spec.parameters.clone();
    let is_empty = parameters["properties"].as_object().is_some_and(serde_json::Map::is_empty);
    if is_empty && !dialect.empty_properties {
        parameters.as_object_mut().map(|schema| schema.remove("properties"));
    }
    json!({"type": "function", "function":
        {"name": spec.name, "description": spec.description, "parameters": parameters}})
}

/// Appends a user message. Each result becomes its own message. Images of results, which a result
/// cannot contain, follow in one user message.
fn user(message: &Message, ids: CallIdFormat, messages: &mut Vec<Value>) {
    let mut content: Vec<Value> = Vec::new();
    for part in &message.parts {
        match part {
            ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
                content.push(json!({"type": "text", "text": text}))
            }
            ContentPart::Image(image_part) => content.push(image(image_part)),
            ContentPart::Result(result) => {
                let (id, text) = (ids.sent(&result.call_id), &result.text);
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
                if !result.images.is_empty() {
                    let title = format!("Pictures from the result of {} ({id}):", result.name);
                    content.push(json!({"type": "text", "text": title}));
                    content.extend(result.images.iter().map(image));
                }
            }
            ContentPart::Call(_) | ContentPart::Reasoning { .. } => {}
        }
    }
    if content.is_empty() {
        return;
    }
    // A turn without a reply leaves two consecutive user messages, which the templates of many
    // models reject.
    if let Some(last) = messages.pop_if(|last| last["role"] == "user") {
        let earlier = match last["content"].as_str() {
            Some(text) => vec![json!({"type": "text", "text": text})],
            None => last["content"].as_array().cloned().unwrap_or_default(),
        };
        content.splice(..0, earlier);
    }
    messages.push(json!({"role": "user", "content": plain(content)}));
}

/// Collapses text-only content into a string, since many servers accept nothing else.
fn plain(content: Vec<Value>) -> Value {
    if content.iter().any(|part| part["type"] != "text") {
        return Value::Array(content);
    }
    let texts: Vec<&str> = content.iter().filter_map(|part| part["text"].as_str()).collect();
    json!(texts.join("\n\n"))
}

fn assistant(message: &Message, wire: &ChatWire) -> Value {
    let text_content = message.full_text();
    let calls = calls(message, wire);
    let mut object = json!({"role": "assistant"});
    let mut blocks = Vec::new();
    // The format specifies `null` next to calls; an empty string makes some templates generate
    // text.
    object["content"] = if text_content.is_empty() { Value::Null } else { json!(text_content) };
    if calls.is_empty() {
        return object;
    }
    // Servers whose models reason between calls require that reasoning back, under the field name
    // that they used. Reasoning that led to plain text is not needed.
    for part in &message.parts {
        if let ContentPart::Reasoning { sealed: Some(sealed), text } = part {
            if let Some(details) = sealed.get("reasoning_details") {
                object["reasoning_details"] = details.clone();
            } else if let Some(block) = sealed.get("block") {
                blocks.push(block.clone());
            } else if let Some(field) = sealed["field"].as_str() {
                let earlier = object[field].as_str().unwrap_or_default();
                object[field] = json!(format!("{earlier}{text}"));
            }
        }
    }
    if !blocks.is_empty() {
        let text =
            (!text_content.is_empty()).then(|| json!({"type": "text", "text": text_content}));
        object["content"] = blocks.into_iter().chain(text).collect();
    }
    object["tool_calls"] = json!(calls);
    object
}

/// Returns the calls of a message. The extra content of a service's calls goes to other services
/// only if they tolerate unknown fields.
fn calls(message: &Message, wire: &ChatWire) -> Vec<Value> {
    let ids = wire.service.dialect().ids;
    let mut calls = Vec::new();
    let mut extra = None;
    for part in &message.parts {
        match part {
            ContentPart::Reasoning { sealed: Some(sealed), .. } => {
                extra = sealed.get("extra_content").cloned().or(extra);
            }
            ContentPart::Call(tool_call) => {
                let mut sent = call(tool_call, ids);
                let extra = extra.take().filter(|_| wire.service == ChatService::Other);
                let needs_signature = calls.is_empty() && wire.quirks.requires_signatures();
                if let Some(extra) = extra.or_else(|| needs_signature.then(no_signature)) {
                    sent["extra_content"] = extra;
                }
                calls.push(sent);
            }
            ContentPart::Reasoning { sealed: None, .. }
            | ContentPart::Text { .. }
            | ContentPart::Note(_)
            | ContentPart::Result(_)
            | ContentPart::Image(_) => {}
        }
    }
    calls
}

fn no_signature() -> Value {
    json!({"google": {"thought_signature": NO_SIGNATURE}})
}

fn call(call: &ToolCall, ids: CallIdFormat) -> Value {
    json!({"id": ids.sent(&call.id), "type": "function",
        "function": {"name": call.name, "arguments": args_to_send(call).to_string()}})
}

fn image(image: &Image) -> Value {
    let url = format!("data:{};base64,{}", image.media_type, image.data);
    json!({"type": "image_url", "image_url": {"url": url}})
}
