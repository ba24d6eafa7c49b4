//! What a session is to be: its task, agent, checks and limits, before it is made.

use crate::session::record::{PlanRef, RunLimits, RunMode};

/// What is to be started.
#[derive(Clone, Debug, Default)]
pub struct SessionSpec {
    /// What the agent is asked to do.
    pub task: String,
    /// Its agent.
    pub agent: Option<String>,
    /// The persona that the agent plays.
    pub persona: Option<String>,
    /// The model that g3 asks instead of the configured one.
    pub model: Option<String>,
    /// The names that g3's tools have instead of the configured ones.
    pub profile: Option<String>,
    /// Branch, tag or commit to start from.
    pub base: Option<String>,
    /// Checks besides the configured ones.
    pub checks: Vec<String>,
    /// Names of the tasks that must be accepted first.
    pub after: Vec<String>,
    /// What its list says of it.
    pub part: PlanRef,
    /// When to stop.
    pub limits: RunLimits,
    /// How it is run.
    pub manner: RunMode,
}

impl SessionSpec {
    /// Returns a task with everything else as it is configured.
    pub fn of(task: String) -> SessionSpec {
        SessionSpec { task, ..SessionSpec::default() }
    }
}
