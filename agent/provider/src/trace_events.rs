//! Trace events of model requests: provider, count, duration and usage, never content.
//!
//! Names follow OpenTelemetry's semantic conventions for generative AI, where these define one.

use std::time::Duration;

use tracing::{Span, field};

use crate::error::ProviderError;
use crate::http::StreamedResponse;
use crate::message::{Reply, StopReason};
use crate::provider::{ChatRequest, ProviderFacts};

/// Headers in which services send their request id.
const REQUEST_ID_HEADERS: [&str; 4] =
    ["request-id", "x-request-id", "x-goog-request-id", "apim-request-id"];
/// Maximum length of an id that is recorded.
const MAX_REQUEST_ID: usize = 128;

/// Creates the span of one attempt.
pub(crate) fn chat_span(facts: &ProviderFacts, request: &ChatRequest<'_>, attempt: u32) -> Span {
    let service = facts.provider.split('.').next().unwrap_or_default();
    tracing::info_span!(
        target: "g3::model",
        "chat",
        otel.name = format!("chat {}", facts.model),
        otel.kind = "client",
        otel.status_code = field::Empty,
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = if service == "gemini" { "gcp.gemini" } else { service },
        gen_ai.request.model = facts.model,
        gen_ai.request.max_tokens = request.max_output,
        gen_ai.conversation.id = base::id::tail(request.session),
        gen_ai.usage.input_tokens = field::Empty,
        gen_ai.usage.output_tokens = field::Empty,
        gen_ai.usage.cache_read.input_tokens = field::Empty,
        gen_ai.usage.cache_creation.input_tokens = field::Empty,
        server.address = field::Empty,
        http.response.status_code = field::Empty,
        error.type = field::Empty,
        g3.provider = facts.provider,
        g3.attempt = attempt,
        g3.messages = request.messages.len(),
        g3.request_id = field::Empty,
        g3.stop = field::Empty,
        g3.cost_usd = field::Empty,
    )
}

/// Records in the current span that a service responded.
pub(crate) fn record_response(host: &str, response: &StreamedResponse) {
    let span = Span::current();
    span.record("server.address", host);
    span.record("http.response.status_code", response.status());
    if let Some(id) = REQUEST_ID_HEADERS.iter().find_map(|name| response.header(name)) {
        span.record("g3.request_id", base::text::head(id, MAX_REQUEST_ID));
    }
}

/// Records the end of an attempt.
pub(crate) fn record_result(span: &Span, result: &Result<Reply, ProviderError>) {
    match result {
        Ok(reply) => {
            let usage = reply.usage;
            span.record("gen_ai.usage.input_tokens", usage.sent());
            span.record("gen_ai.usage.output_tokens", usage.output);
            span.record("gen_ai.usage.cache_read.input_tokens", usage.cache_read);
            span.record("gen_ai.usage.cache_creation.input_tokens", usage.cache_write);
            span.record("g3.cost_usd", usage.cost_usd);
            span.record(
                "g3.stop",
                match reply.stop {
                    StopReason::Done => "done",
                    StopReason::Calls => "calls",
                    StopReason::Length => "length",
                    StopReason::Refused => "refused",
                },
            );
        }
        Err(error) => {
            span.record("otel.status_code", "ERROR");
            span.record("error.type", kind(error));
        }
    }
}

/// Records a retry.
pub(crate) fn retry(error: &ProviderError, after: Duration, attempt: u32) {
    let after_ms = after.as_millis() as u64;
    tracing::warn!(target: "g3::model", why = kind(error), after_ms, attempt, "retry");
}

/// Returns the kind of an error in one word. Its text is not recorded, since a service may repeat
/// the request in it.
pub(crate) fn kind(error: &ProviderError) -> &'static str {
    match error {
        ProviderError::RateLimited { .. } => "rate_limited",
        ProviderError::Busy { .. } => "busy",
        ProviderError::Overloaded(_) => "overloaded",
        ProviderError::TooLong(_) => "too_long",
        ProviderError::Rejected(_) => "rejected",
        ProviderError::Unreachable(_) => "unreachable",
        ProviderError::Broken(_) => "broken",
        ProviderError::Cancelled => "cancelled",
    }
}
