//! Trace events of the gate: the tool, the kind of access and who decided, without paths and
//! commands.

use base::config::agent::GateAction;

use super::policy::PolicyVerdict;
use super::{Access, AccessRequest, PermissionAnswer};

/// Traces a verdict; `hooked` means that a hook answered the question.
pub(crate) fn verdict(request: &AccessRequest<'_>, verdict: &PolicyVerdict, hooked: bool) {
    let by = if verdict.by_rule { "rule" } else { "reach" };
    match verdict.action {
        GateAction::Allow => decided(request, "allowed", by),
        GateAction::Box => decided(request, "boxed", by),
        GateAction::Deny => decided(request, "denied", by),
        GateAction::Ask if hooked => decided(request, "allowed", "hook"),
        GateAction::Ask => decided(request, "to be asked", by),
    }
}

/// Traces a decision and its source: a `rule`, the `reach` of the call, the permission `mode` or a
/// `hook`.
pub(crate) fn decided(request: &AccessRequest<'_>, decision: &str, by: &str) {
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
pub(crate) fn asked(tool: &str, answer: Option<&PermissionAnswer>) {
    let answer = match answer {
        Some(PermissionAnswer::Once) => "once",
        Some(PermissionAnswer::Always) => "always",
        Some(PermissionAnswer::No) => "no",
        Some(PermissionAnswer::Unasked(_)) => "denied unasked",
        None => "no terminal",
    };
    tracing::info!(target: "g3::gate", tool, answer, "asked");
}
