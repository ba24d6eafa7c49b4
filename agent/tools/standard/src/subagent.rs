//! The tool that starts a subagent with its own conversation and todo list.

use serde::Deserialize;
use tokio::sync::Semaphore;

use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::services::SubagentRequest;
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    prompt: String,
    agent: Option<String>,
    #[serde(default)]
    read_only: bool,
}

/// Maximum number of concurrent subagents of this process.
static CONCURRENT: Semaphore = Semaphore::const_new(4);

/// Returns its keys: subagents that may write run one after the other.
fn touched_files(call: &Invocation<'_>) -> Vec<String> {
    let reads_only = call.decode::<Args>().is_ok_and(|args| args.read_only);
    if reads_only { Vec::new() } else { vec!["task".to_owned()] }
}

/// The tool that starts a subagent.
pub(crate) struct TaskTool;

impl Tool for TaskTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("agent.task", Effect::Looks)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope { keys: touched_files(call), ..CallScope::default() }
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Runs a subagent and waits for its report.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { prompt, agent, read_only: reads_only } = call.decode()?;
    if prompt.trim().is_empty() {
        let text = "task: `prompt` must say what is to be done, with all that must be known for it";
        return Err(ToolError::invalid(text));
    }
    let Some(subagents) = &call.context.services.subagents else {
        let text = "task: no other agent can be started from here; do it yourself";
        return Err(ToolError::new(ToolErrorKind::Denied, text));
    };
    let permit = call.context.cancel.run_until_cancelled(CONCURRENT.acquire()).await;
    let Some(_permit) = permit else {
        return Err(ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user"));
    };
    let agent = agent.filter(|name| !name.trim().is_empty());
    let on_output = call.context.on_output.clone();
    Ok(subagents.run(SubagentRequest { prompt, agent, reads_only, on_output }).await)
}
