//! The specification of a new session: its task, agent, checks and limits.

use std::sync::Arc;

use studio_git::repo::Base;
use studio_git::start_point::CapturedWork;

use crate::session::record::{PlanRef, RunLimits, RunMode, SessionOrigin};

/// The specification of a new session.
#[derive(Clone, Debug, Default)]
pub struct SessionSpec {
    /// The prompt for the agent.
    pub task: String,
    /// The words of its id, if they are not those of the task.
    pub name: Option<String>,
    /// The agent.
    pub agent: Option<String>,
    /// The persona of the agent.
    pub persona: Option<String>,
    /// The model of g3, if not the configured one.
    pub model: Option<String>,
    /// The tool profile of g3, if not the configured one.
    pub profile: Option<String>,
    /// The branch, tag or commit to start from.
    pub base: Option<String>,
    /// Additional checks besides the configured ones.
    pub checks: Vec<String>,
    /// Names of the tasks that must be accepted first.
    pub after: Vec<String>,
    /// Fields from its task list.
    pub plan_ref: PlanRef,
    /// The limits.
    pub limits: RunLimits,
    /// How it is run.
    pub run_mode: RunMode,
    /// Its place among several attempts at the same task.
    pub attempt: Option<AttemptSpec>,
    /// Where it starts, if not at a plain commit.
    pub start: Option<SessionStart>,
}

/// One of several attempts at the same task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptSpec {
    /// The number of the task among the tasks of the command.
    pub task: usize,
    /// The number of the attempt, starting at 1.
    pub number: u32,
}

/// The start of a session that is not a plain commit.
#[derive(Clone, Debug)]
pub struct SessionStart {
    /// The base: its work is compared with this, and lands on its branch.
    pub base: Base,
    /// The commit of its branch at the start.
    pub head: String,
    /// Uncommitted work.
    pub work: Option<Arc<CapturedWork>>,
    /// The session that it forks.
    pub origin: Option<SessionOrigin>,
}

impl SessionSpec {
    /// Creates a specification of a task with default settings.
    pub fn of(task: String) -> SessionSpec {
        SessionSpec { task, ..SessionSpec::default() }
    }

    /// Returns the text whose words become the session's id.
    pub(crate) fn words_of_id(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.task)
    }
}
