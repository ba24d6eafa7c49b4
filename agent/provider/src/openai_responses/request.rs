//! Builds a request in the responses format: a list of items.

use serde_json::{Value, json};

use crate::history::repair;
use crate::message::{ContentPart, HarnessNote, Image, Message, MessageRole, ToolResult};
use crate::provider::{ChatRequest, ProviderFacts, ToolDefinition};
use crate::tool_args::{args_to_send, sanitize_id};

use super::ResponsesWire;

/// Builds the body of a request.
pub(crate) fn body(
    wire: &ResponsesWire,
    request: &ChatRequest<'_>,
    facts: &ProviderFacts,
) -> Value {
    let mut input = Vec::new();
    for message in repair(request.messages) {
        match message.role {
            MessageRole::User => user(&message, &mut input),
            MessageRole::Assistant => assistant(&message, &mut input),
        }
    }
    let mut body = json!({"model": facts.model, "input": input});
    if !request.system.trim().is_empty() {
        body["instructions"] = json!(request.system);
    }
    if !request.tools.is_empty() {
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    body["max_output_tokens"] = json!(request.max_output);
    if let Some(temperature) = wire.sent_temperature() {
        body["temperature"] = json!(temperature);
    }
    if let Some(effort) = &wire.effort {
        body["reasoning"] = json!({"effort": effort});
    }
    if !request.session.is_empty() {
        body["prompt_cache_key"] = json!(request.session);
    }
    body["store"] = json!(false);
    if wire.wants_thought() {
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    body["stream"] = json!(true);
    body
}

/// Declares a tool without `strict`, which would make every parameter required.
fn tool(spec: &ToolDefinition) -> Value {
    json!({"type": "function", "name": spec.name, "description": spec.description,
        "parameters": spec.parameters, "strict": false})
}

/// Appends a user message. Its results are separate items and come first.
fn user(message: &Message, input: &mut Vec<Value>) {
    let mut content: Vec<Value> = Vec::new();
    for part in &message.parts {
        match part {
            ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
                content.push(json!({"type": "input_text", "text": text}))
            }
            ContentPart::Image(picture) => content.push(image(picture)),
            ContentPart::Result(result) => input.push(output(result)),
            ContentPart::Call(_) | ContentPart::Reasoning { .. } => {}
        }
    }
    if !content.is_empty() {
        input.push(json!({"type": "message", "role": "user", "content": content}));
    }
}

fn output(result: &ToolResult) -> Value {
    let output = if result.images.is_empty() {
        json!(result.text)
    } else {
        let text = json!({"type": "input_text", "text": result.text});
        std::iter::once(text).chain(result.images.iter().map(image)).collect()
    };
    json!({"type": "function_call_output", "call_id": sanitize_id(&result.call_id), "output": output})
}

fn assistant(message: &Message, input: &mut Vec<Value>) {
    // Whether the next text is a commentary or the final answer, for models that say so.
    let mut phase: Option<Value> = None;
    for part in &message.parts {
        match part {
            ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
                let mut item = json!({"type": "message", "role": "assistant",
                    "content": [{"type": "output_text", "text": text}]});
                if let Some(phase) = phase.take() {
                    item["phase"] = phase;
                }
                input.push(item);
            }
            ContentPart::Call(call) => input.push(json!({"type": "function_call",
                "call_id": sanitize_id(&call.id), "name": call.name,
                "arguments": args_to_send(call).to_string()})),
            // Reasoning that is not encrypted, or that another wire format encrypted, cannot be
            // sent.
            ContentPart::Reasoning { sealed, .. } => {
                phase = sealed.as_ref().and_then(|sealed| sealed.get("phase")).cloned().or(phase);
                input.extend(sealed.as_ref().and_then(|sealed| sealed.get("item")).cloned());
            }
            ContentPart::Result(_) | ContentPart::Image(_) => {}
        }
    }
}

fn image(image: &Image) -> Value {
    let url = format!("data:{};base64,{}", image.media_type, image.data);
    json!({"type": "input_image", "image_url": url})
}
