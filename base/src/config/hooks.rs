//! `[[hooks]]`: commands of the user that run when something happens in a session.

use serde::{Deserialize, Serialize};

/// One command and when it runs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Hook {
    /// When it runs.
    pub event: HookEvent,
    /// A glob over tool names, for the events about tools; all tools when absent.
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Seconds after which it is ended with all that it started.
    #[serde(default = "minute")]
    pub timeout_seconds: u64,
    /// Whether a call is denied when the hook cannot say anything about it.
    #[serde(default)]
    pub required: bool,
    /// Whether it runs in the box of commands.
    #[serde(default = "yes")]
    pub sandbox: bool,
}

/// What happens in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// A session begins or is taken up.
    SessionStart,
    /// It ends.
    SessionEnd,
    /// The user said something.
    UserPrompt,
    /// A tool is about to run.
    BeforeTool,
    /// A tool ran.
    AfterTool,
    /// The agent says that it is done.
    Stop,
}

fn yes() -> bool {
    true
}

fn minute() -> u64 {
    60
}

impl Hook {
    /// Returns whether it can be one: a program, some time, and tools only where tools are meant.
    pub(crate) fn makes_sense(&self) -> bool {
        let about_tools = matches!(self.event, HookEvent::BeforeTool | HookEvent::AfterTool);
        self.command.first().is_some_and(|program| !program.trim().is_empty())
            && self.timeout_seconds > 0
            && (about_tools || self.tools.is_none())
            && (self.event == HookEvent::BeforeTool || !self.required)
    }
}
