//! OpenAI responses API, streamed. Nothing is stored on the server: each request carries the whole
//! conversation, and reasoning is sent back encrypted as it came.
//!
//! Format: <https://platform.openai.com/docs/api-reference/responses-streaming>; recorded replies
//! are in `tests/fixtures/wire`.

pub mod reply;
pub mod request;

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::hosted::{ReplyDecoder, WireFormat};
use crate::provider::{ChatRequest, ProviderFacts};
use crate::tool_args::CallIds;

/// The responses wire format.
#[derive(Debug, Default)]
pub struct ResponsesWire {
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// Reasoning effort, as in OpenAI's API; the model's default if absent.
    pub effort: Option<String>,
    /// Set after the server rejects the option: the model has no encrypted reasoning.
    no_sealed_thought: AtomicBool,
    /// Set after the server rejects the parameter: the model accepts no temperature.
    no_temperature: AtomicBool,
}

impl ResponsesWire {
    /// Creates the wire format with this temperature.
    pub fn new(temperature: Option<f64>) -> ResponsesWire {
        ResponsesWire { temperature, ..ResponsesWire::default() }
    }

    /// Sets the reasoning effort.
    #[must_use]
    pub(crate) fn thinking(mut self, effort: Option<String>) -> ResponsesWire {
        self.effort = effort;
        self
    }

    fn wants_thought(&self) -> bool {
        !self.no_sealed_thought.load(Ordering::Relaxed)
    }

    fn sent_temperature(&self) -> Option<f64> {
        self.temperature.filter(|_| !self.no_temperature.load(Ordering::Relaxed))
    }
}

impl WireFormat for ResponsesWire {
    fn body(&self, request: &ChatRequest<'_>, facts: &ProviderFacts) -> Value {
        request::body(self, request, facts)
    }

    fn decoder(&self, request: &ChatRequest<'_>) -> Box<dyn ReplyDecoder> {
        Box::new(reply::ResponsesDecoder::new(CallIds::after(request.messages)))
    }

    fn adapt(&self, refusal: &str) -> bool {
        let refusal = refusal.to_lowercase();
        if refusal.contains("encrypted") || refusal.contains("`include`") {
            return !self.no_sealed_thought.swap(true, Ordering::Relaxed);
        }
        refusal.contains("temperature")
            && self.temperature.is_some()
            && !self.no_temperature.swap(true, Ordering::Relaxed)
    }
}
