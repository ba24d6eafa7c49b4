//! Ways to start an agent in a worktree and to talk with it.

pub mod acp;
pub mod command;
pub mod exit_reason;
pub mod host;
pub mod log;
pub mod message_buffer;
pub mod permission;
pub mod registry;
pub mod requirements;
pub mod update;
pub mod wire;

use std::path::PathBuf;

use base::config::studio::AgentRow;
use base::failure::{Failure, Result};
use base::id::Id;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::exec::runner::SandboxedRunner;

/// A way to start an agent: over ACP, or any command.
pub(crate) trait Launcher {
    /// Starts it. What it tells comes out of [`RunningAgent::news`].
    fn launch(&self, params: LaunchParams) -> BoxFuture<'static, Result<RunningAgent>>;
}

/// Where an agent is to work.
#[derive(Clone)]
pub(crate) struct LaunchParams {
    /// The session.
    pub id: Id,
    /// How to speak with it, as the agents table has it.
    pub row: AgentRow,
    /// The session's worktree.
    pub worktree: PathBuf,
    /// The conversation to go on with.
    pub conversation_id: Option<String>,
    /// Where raw output goes.
    pub log: PathBuf,
    /// Bytes of raw output that are kept.
    pub log_bytes: u64,
    /// Starts programs there.
    pub room: SandboxedRunner,
    /// The number of the session's last permission request: further ones count on from it.
    pub asked: u32,
}

/// A running agent. Dropped, it ends; [`SandboxedRunner::emptied`] waits for that.
pub(crate) struct RunningAgent {
    /// The name of its conversation, when it can be loaded again.
    pub conversation_id: Option<String>,
    /// Whether it knows the conversation so far.
    pub loaded: bool,
    /// What it is told to do.
    pub orders: UnboundedSender<AgentCommand>,
    /// What it tells.
    pub news: UnboundedReceiver<AgentEvent>,
}

/// What an agent is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentCommand {
    /// Work on this.
    Prompt(String),
    /// The decision of a request.
    Answer {
        /// The number that its [`PermissionRequest`] has.
        n: u32,
        /// The decision.
        decision: Decision,
    },
    /// End the turn.
    Cancel,
    /// End the process.
    End,
}

/// What an agent tells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AgentEvent {
    /// An event in g3's wire form.
    Event(Value),
    /// It asks whether it may do this.
    Asked(PermissionRequest),
    /// Its turn is over; the text says what went wrong.
    TurnEnded(Option<String>),
    /// Its process ended.
    Gone(String),
}

/// The decision of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Whether it may.
    pub allow: bool,
    /// Whether that holds for further requests of its kind.
    pub always: bool,
    /// Why studio decided it without asking anybody.
    pub why: Option<String>,
}

/// A request for permission, as an agent makes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PermissionRequest {
    /// Its number, which no other request of the session has.
    pub n: u32,
    /// What the agent wants, all of it: also what it says beside the title.
    pub what: String,
    /// What further requests of the same kind have in common.
    pub rule: String,
    /// The files that it wants to write, as far as it says so; absolute.
    pub writes: Vec<PathBuf>,
}

/// Returns a failure to start an agent, with what to try.
pub(crate) fn cannot_start(
    command: &[String],
    why: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Failure {
    let program = command.first().map(String::as_str).unwrap_or("the agent");
    Failure::failed(format!("cannot start the agent `{program}`"))
        .because(why)
        .hint("see `[studio.agents]` in ~/.config/g3/config.toml")
}
