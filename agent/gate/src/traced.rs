//! What is traced of the gate: which tool wanted what kind of access, and who decided; no paths and
//! no commands.

use base::config::agent::Action;

use super::policy::Verdict;
use super::{Access, AccessRequest, Answer};

/// A verdict; `hooked` when a hook answered what would be asked.
pub fn verdict(request: &AccessRequest<'_>, verdict: &Verdict, hooked: bool) {
    let by = if verdict.by_rule { "rule" } else { "reach" };
    match verdict.action {
        Action::Allow => decided(request, "allowed", by),
        Action::Box => decided(request, "boxed", by),
        Action::Deny => decided(request, "denied", by),
        Action::Ask if hooked => decided(request, "allowed", "hook"),
        Action::Ask => decided(request, "to be asked", by),
    }
}

/// A call may or may not run, and who says so: a `rule`, its `reach`, the permission `mode`, a `hook`.
pub fn decided(request: &AccessRequest<'_>, decision: &str, by: &str) {
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

/// Somebody was asked, or would have been.
pub fn asked(tool: &str, answer: Option<&Answer>) {
    let answer = match answer {
        Some(Answer::Once) => "once",
        Some(Answer::Always) => "always",
        Some(Answer::No) => "no",
        Some(Answer::Unasked(_)) => "denied unasked",
        None => "nobody is there",
    };
    tracing::info!(target: "g3::gate", tool, answer, "asked");
}
