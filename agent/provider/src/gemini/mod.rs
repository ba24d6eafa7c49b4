//! Google Gemini API, `streamGenerateContent`. Thought signatures are sent back on the part that
//! they belong to.
//!
//! Format: <https://ai.google.dev/api/generate-content>; recorded replies are in
//! `tests/fixtures/wire`.

pub mod computer_use;
pub mod reply;
pub mod request;

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::hosted::{ReplyDecoder, WireFormat};
use crate::provider::{ChatRequest, ProviderFacts};
use crate::tool_args::CallIds;

/// The Gemini wire format.
#[derive(Debug, Default)]
pub struct GeminiWire {
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// Set after the server rejects the option: the model does not return its thoughts.
    no_thought: AtomicBool,
    /// Set after the server rejects a call without a signature.
    requires_signatures: AtomicBool,
}

impl GeminiWire {
    /// Creates the wire format with this temperature.
    pub fn new(temperature: Option<f64>) -> GeminiWire {
        GeminiWire { temperature, ..GeminiWire::default() }
    }
}

impl WireFormat for GeminiWire {
    fn body(&self, request: &ChatRequest<'_>, facts: &ProviderFacts) -> Value {
        request::body(self, request, computer_use::is_active(facts, request.tools))
    }

    fn decoder(&self, request: &ChatRequest<'_>) -> Box<dyn ReplyDecoder> {
        Box::new(reply::GeminiDecoder::new(CallIds::after(request.messages)))
    }

    fn adapt(&self, refusal: &str) -> bool {
        if refusal.contains("thought_signature") {
            return !self.requires_signatures.swap(true, Ordering::Relaxed);
        }
        let about_thought = refusal.to_lowercase().contains("think");
        about_thought && !self.no_thought.swap(true, Ordering::Relaxed)
    }
}
