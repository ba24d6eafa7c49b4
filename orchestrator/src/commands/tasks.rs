//! `--tasks FILE`: TOML with `[[task]]`, or a Markdown list with one task per item.

use std::path::Path;

use base::failure::{Failure, Result};
use planner::task::{self, Task, TaskFileError};

use crate::commands::input;
use studio_core::session::record::PlanRef;
use studio_core::session::spec::SessionSpec;

/// Maximum size of the file, in bytes.
const MOST: u64 = 4 << 20;

/// Reads the tasks of a file, each after its dependencies.
pub(crate) fn read(path: &Path) -> Result<Vec<SessionSpec>> {
    let unreadable =
        |why: String| Failure::usage(format!("cannot read {}", path.display())).because(why);
    let bytes = input::read(path, MOST).map_err(|e| unreadable(e.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8".to_owned()))?;
    let read = match path.extension().is_some_and(|end| end == "toml") {
        true => task::from_toml(&text),
        false => task::from_markdown(&text),
    };
    let tasks = read.map_err(|mistakes| refused(path, &mistakes))?;
    let orders: Vec<SessionSpec> = task::order(&tasks)
        .into_iter()
        .filter(|at| !tasks[*at].done)
        .map(|at| order(&tasks[at]))
        .collect();
    if orders.is_empty() {
        return Err(Failure::usage(format!("no open task in {}", path.display()))
            .hint("write one list item per task: `- what to do`"));
    }
    Ok(orders)
}

/// Returns the failure for an invalid list, with the line of each error.
pub(crate) fn refused(path: &Path, mistakes: &[TaskFileError]) -> Failure {
    let lines: Vec<String> =
        mistakes.iter().map(|it| format!("{}:{}: {}", path.display(), it.line, it.what)).collect();
    Failure::usage(format!("invalid task list {}; nothing was started", path.display()))
        .because(lines.join("\n"))
        .hint("TOML: [[task]] with text = \"what to do\"; Markdown: `- what to do`")
}

/// Returns the specification of a task's session. Dependencies that are marked as done are dropped.
fn order(task: &Task) -> SessionSpec {
    SessionSpec {
        agent: task.agent.clone(),
        persona: task.persona.clone(),
        base: task.base.clone(),
        checks: task.checks.clone(),
        after: task.after.clone(),
        plan_ref: PlanRef {
            name: Some(task.id.clone()),
            paths: task.paths.clone(),
            requirements: task.requirements.clone(),
            ..PlanRef::default()
        },
        ..SessionSpec::of(task.text.clone())
    }
}
