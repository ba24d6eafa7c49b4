//! A plan that the model proposes and only the user can approve.
//!
//! `plan.g3.md` contains the plan, `plan.json` the user's approval. The approval is bound to the
//! hash of the text: a changed text is a new plan.

use std::io;
use std::path::{Path, PathBuf};

use base::clock::Clock;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use gate::permission_mode::PermissionMode;
use gate::{PermissionAnswer, PermissionQuestion};
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

/// Maximum size of a plan in bytes.
const MAX_PLAN: usize = 64 * 1024;

/// The user's approval of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanApproval {
    /// SHA-256 of the approved text, in hexadecimal.
    pub sha256: String,
    /// RFC 3339.
    pub approved_at: String,
}

#[derive(Deserialize)]
struct Args {
    plan: String,
}

/// The tool that proposes a plan to the user.
pub(crate) struct PlanTool;

impl Tool for PlanTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("plan.propose", Effect::Looks)
    }

    fn scope(&self, _call: &Invocation<'_>) -> CallScope {
        CallScope::keyed("plan")
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Stores the plan and asks the user. An approved plan may be carried out.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { plan } = call.decode()?;
    if plan.trim().is_empty() || plan.len() > MAX_PLAN {
        let reason = format!("a plan has between 1 and {MAX_PLAN} bytes, this one {}", plan.len());
        return Err(ToolError::invalid(reason));
    }
    let dir = &call.context.session_dir;
    let failed = |e: io::Error| ToolError::io("cannot keep the plan", &e);
    base::files::replace(&file(dir), plan.as_bytes()).map_err(failed)?;
    let sha256 = hash(&plan);
    let metadata = |approved| json!({"plan": plan, "sha256": sha256, "approved": approved});
    let question = PermissionQuestion {
        tool: call.profile_tool.name.clone(),
        what: format!("carry out this plan:\n\n{plan}\n"),
        reason: "nothing is changed before you approve it".to_owned(),
        rule: String::new(),
        host: None,
        writes: None,
        details: None,
    };
    match call.context.gate.ask_user(&question).await {
        Some(PermissionAnswer::Once | PermissionAnswer::Always) => {
            let approved_at = Clock::from_env().stamp();
            let approval = PlanApproval { sha256: sha256.clone(), approved_at };
            base::files::replace_json(&approval_file(dir), &approval).map_err(failed)?;
            call.context.gate.set_permission_mode(PermissionMode::Auto);
            Ok(ToolOutput::success("The user approved the plan. Carry it out.")
                .with(metadata(true)))
        }
        Some(PermissionAnswer::No) => {
            let text = "The user did not approve the plan. Ask what should be different, and \
                        change nothing.";
            Ok(ToolOutput::failed(ToolErrorKind::Denied, text).with(metadata(false)))
        }
        None | Some(PermissionAnswer::Unasked(_)) => {
            let text = "The plan is kept and waits for the user's approval. End your turn with a \
                        short summary of it.";
            Ok(ToolOutput::success(text).with(metadata(false)))
        }
    }
}

/// Returns the path of a session's plan.
pub fn file(session_dir: &Path) -> PathBuf {
    session_dir.join("plan.g3.md")
}

fn approval_file(session_dir: &Path) -> PathBuf {
    session_dir.join("plan.json")
}

/// Approves the current plan of the session. Returns `None` if there is none. Only called by the
/// user's own process.
pub fn approve(session_dir: &Path) -> io::Result<Option<PlanApproval>> {
    let text = match base::files::read_text(&file(session_dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let approval = PlanApproval { sha256: hash(&text), approved_at: Clock::from_env().stamp() };
    base::files::replace_json(&approval_file(session_dir), &approval)?;
    Ok(Some(approval))
}

/// Whether the user approved the plan in its current form.
pub fn is_approved(session_dir: &Path) -> bool {
    let approval = base::files::read(&approval_file(session_dir)).ok();
    let approval: Option<PlanApproval> =
        approval.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let text = base::files::read_text(&file(session_dir)).ok();
    approval.zip(text).is_some_and(|(approval, text)| approval.sha256 == hash(&text))
}

fn hash(text: &str) -> String {
    base::text::hex(&Sha256::digest(text))
}
