//! Trace events for the events of a session, without any text of users or models.

use base::event::{EventKind, NoticeLevel};
use serde_json::Value;

/// Traces an event. Questions and calls are omitted, since they have their own spans and events.
pub(crate) fn event(what: &EventKind) {
    match what {
        EventKind::Start { session, provider, model, cwd } => tracing::info!(
            target: "g3::session",
            session = base::id::tail(session),
            provider,
            model,
            cwd,
            "session opened"
        ),
        EventKind::Turn { n } => tracing::debug!(target: "g3::session", n, "question"),
        EventKind::Context { used, limit } => {
            tracing::debug!(target: "g3::session", used, limit, "context");
        }
        EventKind::Thinned { detail } => tracing::info!(
            target: "g3::session",
            before = number(detail, "before"),
            after = number(detail, "after"),
            results = number(detail, "results"),
            "thinned"
        ),
        EventKind::Compacted { detail } => tracing::info!(
            target: "g3::session",
            before = number(detail, "before"),
            after = number(detail, "after"),
            messages = number(detail, "messages"),
            "summarised"
        ),
        EventKind::Plan { plan } => tracing::info!(
            target: "g3::session",
            mode = plan["mode"].as_str(),
            state = plan["state"].as_str(),
            round = number(plan, "round"),
            "plan"
        ),
        EventKind::Notice { level: NoticeLevel::Warning, .. } => {
            tracing::debug!(target: "g3::session", "the user was warned");
        }
        EventKind::Error { kind, .. } => tracing::error!(target: "g3::session", kind, "error"),
        EventKind::End { status, exit, turns, usage } => tracing::info!(
            target: "g3::session",
            status = status.word(),
            exit,
            turns,
            input = usage.input,
            output = usage.output,
            cache_read = usage.cache_read,
            cache_write = usage.cache_write,
            cost_usd = usage.cost_usd,
            "run ended"
        ),
        EventKind::Notice { level: NoticeLevel::Info, .. }
        | EventKind::Text { .. }
        | EventKind::Reasoning { .. }
        | EventKind::ToolStart { .. }
        | EventKind::ToolOutput { .. }
        | EventKind::ToolEnd { .. }
        | EventKind::Usage { .. }
        | EventKind::Todo { .. }
        | EventKind::Retry { .. }
        | EventKind::Ask { .. } => {}
    }
}

fn number(detail: &Value, key: &str) -> Option<u64> {
    detail[key].as_u64()
}
