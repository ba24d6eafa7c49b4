//! Suggests escalation to a stronger model; the caller decides whether there is one.

use serde::Deserialize;

use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolOutput};
use tools::tool::{Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    reason: String,
}

/// The tool that suggests escalation to a stronger model.
pub(crate) struct EscalateTool;

impl Tool for EscalateTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("help.escalate", Effect::Looks)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(std::future::ready(run(call)))
    }
}

/// Returns the reason to the caller.
fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { reason } = call.decode()?;
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(ToolError::invalid("`reason` is empty; say in a sentence what is too hard"));
    }
    let output = ToolOutput::success(format!("a stronger model should continue: {reason}"));
    Ok(ToolOutput { escalate: Some(reason.to_owned()), ..output })
}
