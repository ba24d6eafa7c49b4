//! Launches agents in worktrees and communicates with them.

pub mod acp;
pub mod built_in_agents;
pub mod command;
pub mod exit_reason;
pub mod host;
pub mod json_lines;
pub mod live_message;
pub mod log;
pub mod message_buffer;
pub mod permission;
pub mod registry;
pub mod requirements;
pub mod session_settings;
pub mod update;
pub mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use base::config::studio::AgentRow;
use base::event::Usage;
use base::failure::{Failure, Result};
use base::id::Id;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::exec::runner::SandboxedRunner;
use crate::launch::live_message::LiveMessages;
use crate::sandbox::limits::ExceededLimit;

/// The pauses before a program that exited at its start is started again.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];

/// A way to start an agent: over ACP, or any command.
pub(crate) trait Launcher {
    /// Starts the agent. Its events are received from [`RunningAgent::events`].
    fn launch(&self, params: LaunchParams) -> BoxFuture<'static, Result<RunningAgent>>;
}

/// The parameters for starting an agent.
#[derive(Clone)]
pub(crate) struct LaunchParams {
    /// The session.
    pub id: Id,
    /// Its entry in the agents table.
    pub row: AgentRow,
    /// The session's worktree.
    pub worktree: PathBuf,
    /// The conversation to continue.
    pub conversation_id: Option<String>,
    /// The usage of that conversation so far.
    pub conversation_usage: Usage,
    /// The file for its raw output.
    pub log: PathBuf,
    /// Maximum number of bytes of raw output that are kept.
    pub log_bytes: u64,
    /// Starts its programs.
    pub runner: SandboxedRunner,
    /// Where its messages are published while it writes them.
    pub live: LiveMessages,
    /// The number of the session's last permission request; further ones continue from it.
    pub request_numbers: Arc<AtomicU32>,
}

/// A running agent. On drop it is ended; [`SandboxedRunner::wait_all`] waits for that.
pub(crate) struct RunningAgent {
    /// The id of its conversation, if it can be loaded again.
    pub conversation_id: Option<String>,
    /// Whether it has loaded the conversation so far.
    pub loaded: bool,
    /// The channel for commands.
    pub commands: UnboundedSender<AgentCommand>,
    /// The channel of events.
    pub events: UnboundedReceiver<AgentEvent>,
}

/// A command for an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentCommand {
    /// Start a turn with this prompt.
    Prompt(String),
    /// Answer a permission request.
    Answer {
        /// The number of the [`PermissionRequest`].
        n: u32,
        /// The decision.
        decision: Decision,
    },
    /// Cancel the turn.
    Cancel,
    /// End the process.
    End,
}

/// An event of an agent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AgentEvent {
    /// An event in g3's wire form.
    Event(Value),
    /// It works in the conversation with this id.
    ConversationStarted(String),
    /// It cannot continue its conversation, and waits for a prompt that explains the task.
    ConversationLost,
    /// A permission request.
    PermissionRequested(PermissionRequest),
    /// Its processes reached this limit of their sandbox, which ended them.
    LimitReached(ExceededLimit),
    /// Its turn ended; the text is the error, if any.
    TurnEnded(Option<String>),
    /// Its process ended, for this reason.
    Exited(String),
}

/// The decision on a permission request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Whether it is allowed.
    pub allow: bool,
    /// Whether the decision also applies to further requests of its kind.
    pub always: bool,
    /// Why studio decided it without asking the user.
    pub reason: Option<String>,
}

/// A permission request of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PermissionRequest {
    /// Its number, unique in the session.
    pub number: u32,
    /// The full description: the title and everything else that the agent sent.
    pub description: String,
    /// The kind: the same for all requests that `always` covers.
    pub rule: String,
    /// The files that it wants to write, as far as it declares them; absolute paths.
    pub writes: Vec<PathBuf>,
}

/// Returns the failure for an agent that did not start, with hints.
pub(crate) fn cannot_start(
    command: &[String],
    error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Failure {
    let program = command.first().map(String::as_str).unwrap_or("the agent");
    Failure::failed(format!("cannot start the agent `{program}`"))
        .because(error)
        .hint("see `[studio.agents]` in ~/.config/g3/config.toml")
}
