//! Waits between 0.5 and 10 seconds.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::tool::{Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    seconds: f64,
}

/// The tool that waits.
pub(crate) struct WaitTool;

impl Tool for WaitTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("util.wait", Effect::Looks)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Waits, or returns early if the user cancels.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { seconds } = call.decode()?;
    let seconds = seconds.clamp(0.5, 10.0);
    let sleep = tokio::time::sleep(Duration::from_secs_f64(seconds));
    if call.context.cancel.run_until_cancelled(sleep).await.is_none() {
        return Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user"));
    }
    let metadata = json!({ "status": "success", "waited_seconds": seconds });
    Ok(ToolOutput::success(format!("waited {seconds} s")).with(metadata))
}
