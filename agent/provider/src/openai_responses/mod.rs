//! OpenAI responses, streamed. Nothing is kept on the server: each request carries the whole
//! conversation, and what the model thought goes back sealed as it came.
//!
//! Format: <https://platform.openai.com/docs/api-reference/responses-streaming>; recorded replies
//! lie in `tests/fixtures/wire`.

pub mod reply;
pub mod request;

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::hosted::{ReplyDecoder, WireFormat};
use crate::provider::{ChatRequest, ProviderFacts};
use crate::tool_args::CallIds;

/// The responses wire.
#[derive(Debug, Default)]
pub struct ResponsesWire {
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// How much the model thinks, in OpenAI's words; its own choice when absent.
    pub effort: Option<String>,
    /// Found out: the model has no thought that could be sealed.
    no_sealed_thought: AtomicBool,
    /// Found out: the model takes no temperature.
    no_temperature: AtomicBool,
}

impl ResponsesWire {
    /// A wire with this temperature.
    pub fn new(temperature: Option<f64>) -> ResponsesWire {
        ResponsesWire { temperature, ..ResponsesWire::default() }
    }

    /// Sets how much the model thinks.
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
