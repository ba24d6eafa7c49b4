//! OpenAI chat completions, streamed, for OpenAI and compatible servers: llama.cpp, ollama, vLLM,
//! OpenRouter, Groq, Databricks serving endpoints and others.
//!
//! Format: <https://platform.openai.com/docs/api-reference/chat-streaming>; recorded replies are in
//! `tests/fixtures/wire`.

pub mod dialect;
pub mod reply;
pub mod request;

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use self::dialect::ChatService;
use crate::anthropic::rejects_thinking_budget;
use crate::hosted::{ReplyDecoder, WireFormat};
use crate::provider::{ChatRequest, ProviderFacts};
use crate::tool_args::CallIds;

/// The host of OpenAI's own service, which accepts parameters that other servers reject.
pub(crate) const OPENAI_HOST: &str = "api.openai.com";

/// The chat completions wire format.
#[derive(Debug, Default)]
pub struct ChatWire {
    /// The service.
    pub service: ChatService,
    /// Sampling temperature; not sent when absent.
    pub temperature: Option<f64>,
    /// Reasoning effort; the model's default if absent.
    pub thought: Option<ReasoningEffort>,
    /// Parameters that this server was found to reject.
    pub quirks: ServerQuirks,
}

/// How much a model reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReasoningEffort {
    /// An effort level of OpenAI's models, e.g. `low`.
    Effort(String),
    /// A token budget for Anthropic's models.
    Budget(u32),
}

/// What the server or the model rejects, learned from its error messages.
#[derive(Debug, Default)]
pub struct ServerQuirks {
    no_stream_options: AtomicBool,
    no_temperature: AtomicBool,
    no_max_tokens: AtomicBool,
    no_cache_marks: AtomicBool,
    /// Whether a call without the signature of a Gemini model is rejected.
    requires_signatures: AtomicBool,
    /// Whether a model of Anthropic rejects a thinking budget.
    no_thinking_budget: AtomicBool,
}

impl ServerQuirks {
    fn flags(&self) -> [(&'static str, &AtomicBool); 4] {
        [
            ("stream_options", &self.no_stream_options),
            ("temperature", &self.no_temperature),
            ("max_tokens", &self.no_max_tokens),
            ("cache_control", &self.no_cache_marks),
        ]
    }

    /// Whether calls of other models need a substitute for a signature.
    pub(crate) fn requires_signatures(&self) -> bool {
        self.requires_signatures.load(Ordering::Relaxed)
    }

    /// Whether a model of Anthropic accepts a thinking budget.
    pub(crate) fn accepts_thinking_budget(&self) -> bool {
        !self.no_thinking_budget.load(Ordering::Relaxed)
    }

    /// Whether a parameter may be sent.
    pub(crate) fn accepts(&self, key: &str) -> bool {
        let is_refused = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        !self.flags().iter().any(|(name, flag)| *name == key && is_refused(flag))
    }
}

impl WireFormat for ChatWire {
    fn body(&self, request: &ChatRequest<'_>, facts: &ProviderFacts) -> Value {
        request::body(self, request, facts)
    }

    fn decoder(&self, request: &ChatRequest<'_>) -> Box<dyn ReplyDecoder> {
        Box::new(reply::ChatDecoder::new(CallIds::after(request.messages)))
    }

    /// An error message that names one of these parameters is about it, since users do not set
    /// them.
    fn adapt(&self, refusal: &str) -> bool {
        if refusal.contains("thought_signature") {
            return !self.quirks.requires_signatures.swap(true, Ordering::Relaxed);
        }
        if matches!(self.thought, Some(ReasoningEffort::Budget(_)))
            && rejects_thinking_budget(refusal)
        {
            return !self.quirks.no_thinking_budget.swap(true, Ordering::Relaxed);
        }
        let is_mentioned = |key: &str| refusal.contains(key) && self.quirks.accepts(key);
        let is_sent = |key: &str| match key {
            "temperature" => self.temperature.is_some(),
            "cache_control" => self.service.dialect().cache_marks,
            _ => true,
        };
        let mut flags = self.quirks.flags().into_iter().filter(|(key, _)| is_mentioned(key));
        let first = flags.find(|(key, _)| is_sent(key));
        first.inspect(|(_, flag)| flag.store(true, Ordering::Relaxed)).is_some()
    }
}
