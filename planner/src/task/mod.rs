//! Tasks of a plan: what each is asked to do, what must land before it, what it touches.

mod graph;
mod markdown;
mod toml;

pub use graph::{faults, order, paths_meet};
pub use markdown::from_markdown;
pub use toml::{from_toml, to_toml};

/// One task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its name in the file; `t` and its place in the list (from 1) unless given.
    pub id: String,
    /// What the agent is asked to do.
    pub text: String,
    /// Tasks that must have landed before it starts.
    pub after: Vec<String>,
    /// Commands that must pass, one `sh -c` line each.
    pub checks: Vec<String>,
    /// Files it will touch, as glob patterns from the root of the repository.
    pub paths: Vec<String>,
    /// Ids of the requirements that it serves.
    pub requirements: Vec<String>,
    /// The agent, if not the usual one.
    pub agent: Option<String>,
    /// The persona that the agent plays.
    pub persona: Option<String>,
    /// The branch, tag or commit to start from.
    pub base: Option<String>,
    /// It is ticked off: nothing is to be done, and what waits for it need not wait.
    pub done: bool,
    /// The line of the file at which it begins, from 1.
    pub line: usize,
}

/// What is wrong in a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFileError {
    /// From 1.
    pub line: usize,
    /// One sentence without a full stop.
    pub what: String,
}

impl TaskFileError {
    fn new(line: usize, what: impl Into<String>) -> TaskFileError {
        TaskFileError { line, what: what.into() }
    }
}

/// Names the tasks that have no name by their place, and gives what is wrong with all of them.
fn finished(mut tasks: Vec<Task>) -> Result<Vec<Task>, Vec<TaskFileError>> {
    for (at, task) in tasks.iter_mut().enumerate() {
        if task.id.is_empty() {
            task.id = format!("t{}", at + 1);
        }
    }
    let faults = faults(&tasks);
    if faults.is_empty() { Ok(tasks) } else { Err(faults) }
}
