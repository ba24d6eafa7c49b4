//! Trace spans of calls: name, duration and outcome, never arguments or results.

use tracing::{Instrument, field};

use super::output::ToolOutput;

/// Maximum length of a call id that is recorded.
const MAX_CALL_ID: usize = 128;

/// Runs a call within its span. A name that was not offered is not recorded, since it is text of
/// the model.
pub async fn call(
    (name, offered): (&str, bool),
    id: &str,
    work: impl Future<Output = ToolOutput>,
) -> ToolOutput {
    let name = if offered { name } else { "(not offered)" };
    let span = tracing::info_span!(
        target: "g3::tool",
        "execute_tool",
        otel.name = format!("execute_tool {name}"),
        otel.status_code = field::Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = name,
        gen_ai.tool.call.id = base::text::head(id, MAX_CALL_ID),
        gen_ai.tool.type = "function",
        error.type = field::Empty,
        g3.ok = field::Empty,
        g3.bytes = field::Empty,
    );
    let outcome = work.instrument(span.clone()).await;
    span.record("g3.ok", outcome.ok);
    span.record("g3.bytes", outcome.text.len());
    if !outcome.ok {
        span.record("otel.status_code", "ERROR");
        span.record("error.type", outcome.error_kind.map_or("failed", |kind| kind.id()));
    }
    outcome
}
