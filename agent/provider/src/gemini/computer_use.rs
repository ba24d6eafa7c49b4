//! Gemini's computer use models. They have built-in functions and expect images inside the function
//! responses.
//!
//! Format: <https://ai.google.dev/gemini-api/docs/computer-use>.

use serde_json::{Value, json};

use crate::message::ToolResult;
use crate::provider::{ProviderFacts, ToolDefinition};

/// Part of the name of such a model, e.g. `gemini-2.5-computer-use-preview-10-2025`.
const MODEL: &str = "computer-use";
/// The built-in functions of the model.
const FUNCTIONS: [&str; 13] = [
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

/// Whether the model is a computer use model and is offered one of its functions.
pub(crate) fn is_active(facts: &ProviderFacts, tools: &[ToolDefinition]) -> bool {
    facts.model.contains(MODEL) && tools.iter().any(|tool| is_function(&tool.name))
}

/// Whether a function is built into the model.
pub(crate) fn is_function(name: &str) -> bool {
    FUNCTIONS.contains(&name)
}

/// Returns the tool declaration that enables all built-in functions.
pub(crate) fn tool() -> Value {
    json!({ "computerUse": { "environment": "ENVIRONMENT_BROWSER" } })
}

/// Returns a function response: an object with the images inside it.
pub(crate) fn response(result: &ToolResult) -> Value {
    let output: Value = serde_json::from_str(&result.text).unwrap_or_default();
    let output = if output.is_object() { output } else { json!({ "output": result.text }) };
    let mut response = json!({ "name": result.name, "response": output });
    if !result.images.is_empty() {
        let part = |image: &crate::message::Image| json!({ "inlineData": { "mimeType": image.media_type, "data": image.data } });
        response["parts"] = result.images.iter().map(part).collect();
    }
    json!({ "functionResponse": response })
}
