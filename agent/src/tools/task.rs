//! A part of the work for another agent, which has a conversation and a todo list of its own.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::call::{Invocation, ToolError};
use super::{ErrorKind, ToolOutput};

#[derive(Deserialize)]
struct Args {
    prompt: String,
    agent: Option<String>,
    #[serde(default)]
    read_only: bool,
}

/// What another agent is to do.
pub struct Order {
    /// All that it is told.
    pub prompt: String,
    /// The persona that works; the same role as ours when none is named.
    pub agent: Option<String>,
    /// Whether it may only look at files.
    pub reads_only: bool,
    /// Hears what it does.
    pub hear: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Agents that work within a session. They share its gate and its limits.
pub trait Subagents: Send + Sync {
    /// Lets one work to its end, and gives its report.
    fn work(&self, order: Order) -> BoxFuture<'_, ToolOutput>;
}

/// How many of a process work at once.
static AT_ONCE: Semaphore = Semaphore::const_new(4);

/// Keys of what it touches: those that may write work one after the other.
pub fn touches(call: &Invocation<'_>) -> Vec<String> {
    let reads_only = call.decode::<Args>().is_ok_and(|args| args.read_only);
    if reads_only { Vec::new() } else { vec!["task".to_owned()] }
}

/// Lets another agent work, and waits for its report.
pub async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { prompt, agent, read_only: reads_only } = call.decode()?;
    if prompt.trim().is_empty() {
        let text = "task: `prompt` must say what is to be done, with all that must be known for it";
        return Err(ToolError::invalid(text));
    }
    let Some(subagents) = &call.at.others.subagents else {
        let text = "task: no other agent can be started from here; do it yourself";
        return Err(ToolError::new(ErrorKind::Denied, text));
    };
    let turn = call.at.cancel.run_until_cancelled(AT_ONCE.acquire()).await;
    let Some(_turn) = turn else {
        return Err(ToolError::new(ErrorKind::Cancelled, "cancelled by the user"));
    };
    let agent = agent.filter(|name| !name.trim().is_empty());
    let hear = call.at.hear.clone();
    Ok(subagents.work(Order { prompt, agent, reads_only, hear }).await)
}
