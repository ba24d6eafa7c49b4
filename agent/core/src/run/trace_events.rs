//! Trace spans of turns: the agent, its owner and the outcome.

use base::event::{RunStatus, Usage};
use tracing::{Span, field};

use super::AgentSession;
use super::outcome::RunOutcome;
use crate::limits::Limit;

/// Creates the span of a user turn, or of a part of a run.
pub(crate) fn turn(agent_session: &AgentSession) -> Span {
    let (facts, role) = (agent_session.facts(), &agent_session.options.role);
    let name = role.name.as_deref().unwrap_or(if role.tool.is_some() { "coach" } else { "g3" });
    tracing::info_span!(
        target: "g3::session",
        "invoke_agent",
        otel.name = format!("invoke_agent {name}"),
        otel.status_code = field::Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = name,
        gen_ai.conversation.id = base::id::tail(agent_session.session.id.as_str()),
        gen_ai.request.model = facts.model,
        gen_ai.usage.input_tokens = field::Empty,
        gen_ai.usage.output_tokens = field::Empty,
        error.type = field::Empty,
        g3.provider = facts.provider,
        g3.questions = field::Empty,
        g3.status = field::Empty,
    )
}

/// Records the end of a turn; `before` is the usage of the conversation at its start.
pub(crate) fn record_end(
    span: &Span,
    agent_session: &AgentSession,
    outcome: &RunOutcome,
    before: (u32, Usage),
) {
    let (turns, usage) = (agent_session.conversation.turns(), agent_session.conversation.usage());
    span.record("g3.questions", turns.saturating_sub(before.0));
    span.record("gen_ai.usage.input_tokens", usage.sent().saturating_sub(before.1.sent()));
    span.record("gen_ai.usage.output_tokens", usage.output.saturating_sub(before.1.output));
    span.record("g3.status", outcome.status.word());
    if outcome.status == RunStatus::Failed {
        span.record("otel.status_code", "ERROR");
        span.record("error.type", "failed");
    }
}

/// Traces that a limit ended the turn.
pub(crate) fn limit(limit: Limit) {
    tracing::warn!(target: "g3::session", limit = %limit, "limit reached");
}
