//! Suggests that a stronger model goes on; whoever runs the call decides whether there is one.

use serde::Deserialize;

use super::ToolOutput;
use super::call::{Invocation, ToolError};

#[derive(Deserialize)]
struct Args {
    reason: String,
}

/// Hands the reason up.
pub fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { reason } = call.decode()?;
    let reason = reason.trim();
    if reason.is_empty() {
        return Err(ToolError::invalid("`reason` is empty; say in a sentence what is too hard"));
    }
    let outcome = ToolOutput::done(format!("a stronger model should go on: {reason}"));
    Ok(ToolOutput { escalate: Some(reason.to_owned()), ..outcome })
}
