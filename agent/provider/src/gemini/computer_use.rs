//! Gemini's models that use a computer: they bring their functions along, and want pictures inside
//! the answers to them.
//!
//! Format: <https://ai.google.dev/gemini-api/docs/computer-use>.

use serde_json::{Value, json};

use crate::message::ToolResult;
use crate::provider::{ProviderFacts, ToolDefinition};

/// How such a model is told by its name, e.g. `gemini-2.5-computer-use-preview-10-2025`.
const MODEL: &str = "computer-use";
/// The functions that it brings along.
const OWN: [&str; 13] = [
    "click_at",
    "drag_and_drop",
    "go_back",
    "go_forward",
    "hover_at",
    "key_combination",
    "navigate",
    "open_web_browser",
    "scroll_at",
    "scroll_document",
    "search",
    "type_text_at",
    "wait_5_seconds",
];

/// Whether the model uses a computer, and is offered to.
pub(crate) fn is_meant(facts: &ProviderFacts, tools: &[ToolDefinition]) -> bool {
    facts.model.contains(MODEL) && tools.iter().any(|tool| is_own(&tool.name))
}

/// Whether it brings this function along.
pub(crate) fn is_own(name: &str) -> bool {
    OWN.contains(&name)
}

/// The tool that stands for all of its functions.
pub(crate) fn tool() -> Value {
    json!({ "computerUse": { "environment": "ENVIRONMENT_BROWSER" } })
}

/// An answer: an object, and the pictures inside it.
pub(crate) fn response(result: &ToolResult) -> Value {
    let told: Value = serde_json::from_str(&result.text).unwrap_or_default();
    let told = if told.is_object() { told } else { json!({ "output": result.text }) };
    let mut response = json!({ "name": result.name, "response": told });
    if !result.images.is_empty() {
        let part = |image: &crate::message::Image| json!({ "inlineData": { "mimeType": image.media_type, "data": image.data } });
        response["parts"] = result.images.iter().map(part).collect();
    }
    json!({ "functionResponse": response })
}
