//! Builds a request in Gemini's format.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::history::repair;
use crate::message::{ContentPart, HarnessNote, Image, Message, MessageRole, ToolResult};
use crate::provider::{ChatRequest, ToolDefinition};
use crate::tool_args::{NO_SIGNATURE, args_to_send};

use super::{GeminiWire, computer_use};

/// Builds the body of a request. The model is part of the URL. A computer use model has built-in
/// functions, which are not declared.
pub(crate) fn body(wire: &GeminiWire, request: &ChatRequest<'_>, uses_computer: bool) -> Value {
    let repaired = repair(request.messages);
    let mut contents: Vec<Value> = repaired.iter().map(|it| content(it, uses_computer)).collect();
    if wire.requires_signatures.load(Ordering::Relaxed) {
        contents.iter_mut().for_each(sign_first_call);
    }
    let mut body = json!({ "contents": contents });
    if !request.system.trim().is_empty() {
        body["systemInstruction"] = json!({"parts": [{"text": request.system}]});
    }
    if !request.tools.is_empty() {
        let is_function_tool =
            |tool: &&ToolDefinition| !(uses_computer && computer_use::is_function(&tool.name));
        let declarations: Vec<Value> =
            request.tools.iter().filter(is_function_tool).map(declaration).collect();
        let declarations = json!({ "functionDeclarations": declarations });
        body["tools"] = match uses_computer {
            true => json!([computer_use::tool(), declarations]),
            false => json!([declarations]),
        };
    }
    let mut settings = json!({ "maxOutputTokens": request.max_output });
    if let Some(temperature) = wire.temperature {
        settings["temperature"] = json!(temperature);
    }
    if !wire.no_thought.load(Ordering::Relaxed) {
        settings["thinkingConfig"] = json!({ "includeThoughts": true });
    }
    body["generationConfig"] = settings;
    body
}

/// Declares a tool. `parametersJsonSchema` accepts any JSON Schema, `parameters` only a subset.
fn declaration(spec: &ToolDefinition) -> Value {
    let mut declared = json!({"name": spec.name, "description": spec.description});
    let has_any = spec.parameters["properties"].as_object().is_some_and(|all| !all.is_empty());
    if has_any {
        declared["parametersJsonSchema"] = spec.parameters.clone();
    }
    declared
}

fn content(message: &Message, uses_computer: bool) -> Value {
    let role = match message.role {
        MessageRole::User => "user",
        MessageRole::Assistant => "model",
    };
    let mut parts: Vec<Value> = Vec::new();
    // A signature belongs to the part after it.
    let mut signature: Option<Value> = None;
    for part in &message.parts {
        let mut value = match part {
            ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
                json!({ "text": text })
            }
            ContentPart::Image(image_part) => image(image_part),
            ContentPart::Call(call) => {
                json!({"functionCall": {"name": call.name, "args": args_to_send(call)}})
            }
            ContentPart::Result(result) if uses_computer => {
                parts.push(computer_use::response(result));
                continue;
            }
            ContentPart::Result(result) => {
                parts.push(response(result));
                parts.extend(result.images.iter().map(image));
                continue;
            }
            ContentPart::Reasoning { sealed, .. } => {
                let thought_signature =
                    sealed.as_ref().and_then(|sealed| sealed.get("thoughtSignature"));
                signature = thought_signature.cloned().or(signature);
                continue;
            }
        };
        if let Some(signature) = signature.take() {
            value["thoughtSignature"] = signature;
        }
        parts.push(value);
    }
    if let Some(signature) = signature {
        parts.push(json!({"text": "", "thoughtSignature": signature}));
    }
    json!({"role": role, "parts": parts})
}

/// Gives the first call of a message a substitute for a missing signature. Gemini signs only the
/// first of several calls.
fn sign_first_call(content: &mut Value) {
    let mut parts = content["parts"].as_array_mut().into_iter().flatten();
    let call = parts.find(|part| part["functionCall"].is_object());
    if let Some(call) = call.filter(|call| call["thoughtSignature"].is_null()) {
        call["thoughtSignature"] = json!(NO_SIGNATURE);
    }
}

fn response(result: &ToolResult) -> Value {
    let key = if result.ok { "output" } else { "error" };
    json!({"functionResponse": {"name": result.name, "response": {key: result.text}}})
}

fn image(image: &Image) -> Value {
    json!({"inlineData": {"mimeType": image.media_type, "data": image.data}})
}
