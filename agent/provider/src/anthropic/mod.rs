//! Anthropic Messages API, streamed (`POST /v1/messages`, version 2023-06-01).
//!
//! Format: <https://docs.anthropic.com/en/api/messages-streaming>; recorded replies are in
//! `tests/fixtures/wire`.

pub mod reply;
pub mod request;

use std::sync::atomic::{AtomicBool, Ordering};

use base::config::providers::CacheConfig;
use serde_json::{Value, json};

use crate::hosted::{ReplyDecoder, WireFormat};
use crate::message::{ContentPart, Message, MessageRole};
use crate::provider::{ChatRequest, ProviderFacts};
use crate::tool_args::CallIds;

/// The Messages wire format.
#[derive(Debug, Default)]
pub struct MessagesWire {
    /// Time to live of cached prefixes.
    pub cache: CacheConfig,
    /// Sampling temperature. Not sent when absent, because newer models reject it.
    pub temperature: Option<f64>,
    /// Thinking budget in tokens.
    pub thinking: Option<u32>,
    /// The effort of a model that thinks as much as it needs (adaptive thinking), as the service
    /// names it.
    pub effort: Option<String>,
    /// What the model was found to reject.
    pub quirks: ModelQuirks,
}

/// What a model rejects, learned from its error messages.
#[derive(Debug, Default)]
pub struct ModelQuirks {
    no_temperature: AtomicBool,
    no_thinking_budget: AtomicBool,
}

impl MessagesWire {
    fn sent_temperature(&self) -> Option<f64> {
        self.temperature.filter(|_| !self.quirks.no_temperature.load(Ordering::Relaxed))
    }

    /// Returns the `thinking` parameter.
    fn thinking_parameter(&self, request: &ChatRequest<'_>) -> Option<Value> {
        let is_adaptive = self.quirks.no_thinking_budget.load(Ordering::Relaxed);
        match self.thinking {
            _ if self.effort.is_some() => Some(adaptive_thinking()),
            Some(_) if is_adaptive => Some(adaptive_thinking()),
            Some(budget) => thinking(budget, request, request::is_ours),
            None => None,
        }
    }
}

impl WireFormat for MessagesWire {
    fn body(&self, request: &ChatRequest<'_>, facts: &ProviderFacts) -> Value {
        request::body(self, request, facts)
    }

    fn decoder(&self, request: &ChatRequest<'_>) -> Box<dyn ReplyDecoder> {
        Box::new(reply::MessagesDecoder::new(CallIds::after(request.messages)))
    }

    fn adapt(&self, refusal: &str) -> bool {
        if self.thinking.is_some() && rejects_thinking_budget(refusal) {
            return !self.quirks.no_thinking_budget.swap(true, Ordering::Relaxed);
        }
        refusal.contains("temperature")
            && self.temperature.is_some()
            && !self.quirks.no_temperature.swap(true, Ordering::Relaxed)
    }
}

/// The `thinking` parameter of models that think as much as they need, with their thoughts in the
/// reply. Earlier replies of the turn may lack thinking blocks.
///
/// Source: <https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking>.
pub(crate) fn adaptive_thinking() -> Value {
    json!({"type": "adaptive", "display": "summarized"})
}

/// Whether a model rejects a thinking budget, as those since Opus 4.7 do.
pub(crate) fn rejects_thinking_budget(refusal: &str) -> bool {
    refusal.contains("thinking.type")
}

/// Minimum number of tokens that must remain for the answer next to the thinking budget.
pub(crate) const MIN_OUTPUT_BESIDE_REASONING: u64 = 1024;

/// Returns the `thinking` parameter for an Anthropic model on any wire format. Returns `None` if
/// thinking is not possible: the budget does not fit, or the turn was started without thinking
/// (perhaps by another model) and the service requires the thinking blocks that led to the calls.
pub(crate) fn thinking(
    budget: u32,
    request: &ChatRequest<'_>,
    is_ours: impl Fn(&Value) -> bool,
) -> Option<Value> {
    let fits = request.max_output > u64::from(budget) + MIN_OUTPUT_BESIDE_REASONING;
    let last_request = request.messages.iter().rposition(|message| {
        let is_not_result = |part: &ContentPart| !matches!(part, ContentPart::Result(_));
        message.role == MessageRole::User && message.parts.iter().any(is_not_result)
    });
    let turn = &request.messages[last_request.map_or(0, |index| index + 1)..];
    let mut calls =
        turn.iter().filter(|m| m.role == MessageRole::Assistant && m.calls().next().is_some());
    let has_reasoning = |message: &Message| {
        message.parts.iter().any(|part| match part {
            ContentPart::Reasoning { sealed: Some(sealed), .. } => is_ours(sealed),
            ContentPart::Reasoning { sealed: None, .. }
            | ContentPart::Text { .. }
            | ContentPart::Note(_)
            | ContentPart::Call(_)
            | ContentPart::Result(_)
            | ContentPart::Image(_) => false,
        })
    };
    let may_think = calls.next().is_none_or(has_reasoning);
    (fits && may_think).then(|| json!({"type": "enabled", "budget_tokens": budget}))
}
