//! `[[hooks]]`: user commands that run on session events.

use serde::{Deserialize, Serialize};

/// A command and the event that runs it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// The event that runs it.
    pub event: HookEvent,
    /// A glob over tool names, for tool events; all tools when absent.
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Seconds after which the command and its whole process group are killed.
    #[serde(default = "minute")]
    pub timeout_seconds: u64,
    /// Whether a failing hook denies the call.
    #[serde(default)]
    pub required: bool,
    /// Whether the command runs in the command sandbox.
    #[serde(default = "yes")]
    pub sandbox: bool,
}

/// A session event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// A session starts or is resumed.
    SessionStart,
    /// A session ends.
    SessionEnd,
    /// The user sent a prompt.
    UserPrompt,
    /// Before a tool runs.
    BeforeTool,
    /// After a tool ran.
    AfterTool,
    /// The agent reports that it is done.
    Stop,
}

fn yes() -> bool {
    true
}

fn minute() -> u64 {
    60
}

impl Hook {
    /// Returns whether the hook is valid: it has a program, a non-zero timeout, and `tools` only
    /// for tool events.
    pub(crate) fn is_valid(&self) -> bool {
        let about_tools = matches!(self.event, HookEvent::BeforeTool | HookEvent::AfterTool);
        self.command.first().is_some_and(|program| !program.trim().is_empty())
            && self.timeout_seconds > 0
            && (about_tools || self.tools.is_none())
            && (self.event == HookEvent::BeforeTool || !self.required)
    }
}
