//! Trace events of the gate: the tool, the kind of access and who decided, without paths and
//! commands.

use base::config::agent::GateAction;

use super::policy::PolicyVerdict;
use super::{Access, AccessRequest, PermissionAnswer};

/// Traces a verdict; `answered_by_hook` means that a hook answered the question.
pub(crate) fn trace_verdict(
    request: &AccessRequest<'_>,
    verdict: &PolicyVerdict,
    answered_by_hook: bool,
) {
    let by = if verdict.by_rule { "rule" } else { "reach" };
    match verdict.action {
        GateAction::Allow => trace_decision(request, "allowed", by),
        GateAction::Box => trace_decision(request, "boxed", by),
        GateAction::Deny => trace_decision(request, "denied", by),
        GateAction::Ask if answered_by_hook => trace_decision(request, "allowed", "hook"),
        GateAction::Ask => trace_decision(request, "to be asked", by),
    }
}

/// Traces a decision and its source: a `rule`, the `reach` of the call, the permission `mode` or a
/// `hook`.
pub(crate) fn trace_decision(request: &AccessRequest<'_>, decision: &str, by: &str) {
    let access = match request.access {
        Access::Read(_) => "read",
        Access::Write(_) => "write",
        Access::Run { .. } => "run",
        Access::Foreign { .. } => "foreign",
        Access::Act(_) => "act",
        Access::Fetch { .. } => "fetch",
        Access::Screen { .. } => "screen",
    };
    let tool = request.tool;
    if decision == "allowed" {
        tracing::debug!(target: "g3::gate", tool, access, decision, by, "decided");
    } else {
        tracing::info!(target: "g3::gate", tool, access, decision, by, "decided");
    }
}

/// Traces a question and its answer, if it could be asked.
pub(crate) fn trace_answer(tool: &str, answer: Option<&PermissionAnswer>) {
    let answer = match answer {
        Some(PermissionAnswer::Once) => "once",
        Some(PermissionAnswer::Always) => "always",
        Some(PermissionAnswer::No) => "no",
        Some(PermissionAnswer::Unasked(_)) => "denied unasked",
        None => "no terminal",
    };
    tracing::info!(target: "g3::gate", tool, answer, "asked");
}
