//! The tasks of a plan: the prompt, the dependencies and the affected files of each.

mod graph;
mod markdown;
pub mod template;
mod toml;

pub use graph::{paths_overlap, topological_order, validate};
pub use markdown::from_markdown;
pub use toml::{from_toml, to_toml};

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// The name in the file; `t` and the position in the list (from 1) by default.
    pub id: String,
    /// The prompt for the agent.
    pub text: String,
    /// Tasks that must land before it starts.
    pub after: Vec<String>,
    /// Commands that must pass, one `sh -c` line each.
    pub checks: Vec<String>,
    /// The files that it will change, as glob patterns from the root of the repository.
    pub paths: Vec<String>,
    /// The ids of the requirements that it implements.
    pub requirements: Vec<String>,
    /// The agent; the default agent when absent.
    pub agent: Option<String>,
    /// The persona of the agent.
    pub persona: Option<String>,
    /// The branch, tag or commit to start from; the default when absent.
    pub base: Option<String>,
    /// The place where it runs; the default when absent.
    pub on: Option<String>,
    /// Whether it is marked as done: there is nothing to do, and dependent tasks may start.
    pub done: bool,
    /// The line of the file where it starts, from 1.
    pub line: usize,
}

/// An error in a task file and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFileError {
    /// The line, from 1.
    pub line: usize,
    /// One sentence without a full stop.
    pub what: String,
}

impl TaskFileError {
    fn new(line: usize, what: impl Into<String>) -> TaskFileError {
        TaskFileError { line, what: what.into() }
    }
}

/// Assigns default names to the tasks and checks the whole list.
fn finish(mut tasks: Vec<Task>) -> Result<Vec<Task>, Vec<TaskFileError>> {
    for (index, task) in tasks.iter_mut().enumerate() {
        if task.id.is_empty() {
            task.id = format!("t{}", index + 1);
        }
    }
    let faults = validate(&tasks);
    if faults.is_empty() { Ok(tasks) } else { Err(faults) }
}
