//! `--tasks FILE`: TOML with `[[task]]`, or a Markdown list with one task per item.

use std::collections::BTreeMap;
use std::path::Path;

use base::failure::{Failure, Result};
use planner::task::{self, Task, TaskFileError, template};

use studio_core::session::record::{PlanRef, RunMode};
use studio_core::session::spec::SessionSpec;

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// Parses `NAME=VALUE`, the value of a parameter.
pub(crate) fn parameter(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if template::is_name(name) => Ok((name.to_owned(), value.to_owned())),
        Some((name, _)) => Err(format!("invalid name `{name}`: use letters, digits, `-` and `_`")),
        None => Err("must be NAME=VALUE".to_owned()),
    }
}

/// Reads the tasks of a file, each after its dependencies; `{{name}}` is replaced by the value of
/// that parameter.
pub(crate) fn read(path: &Path, parameters: &[(String, String)]) -> Result<Vec<SessionSpec>> {
    let unreadable =
        |reason: String| Failure::usage(format!("cannot read {}", path.display())).because(reason);
    let bytes =
        base::files::read_bounded(path, MAX_BYTES).map_err(|e| unreadable(e.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8".to_owned()))?;
    let mut values = BTreeMap::new();
    for (name, value) in parameters {
        if values.insert(name.clone(), value.clone()).is_some() {
            return Err(Failure::usage(format!("--set {name} is given twice")));
        }
    }
    let text = template::fill(&text, &values).map_err(|errors| invalid_list(path, &errors))?;
    let parsed = match path.extension().is_some_and(|extension| extension == "toml") {
        true => task::from_toml(&text),
        false => task::from_markdown(&text),
    };
    let tasks = parsed.map_err(|errors| invalid_list(path, &errors))?;
    let specs: Vec<SessionSpec> = task::topological_order(&tasks)
        .into_iter()
        .filter(|index| !tasks[*index].done)
        .map(|index| session_spec(&tasks[index]))
        .collect();
    if specs.is_empty() {
        return Err(Failure::usage(format!("no open task in {}", path.display()))
            .hint("write one list item per task: `- what to do`"));
    }
    Ok(specs)
}

/// Returns the failure for an invalid list, with the line of each error.
pub(crate) fn invalid_list(path: &Path, errors: &[TaskFileError]) -> Failure {
    let lines: Vec<String> =
        errors.iter().map(|it| format!("{}:{}: {}", path.display(), it.line, it.what)).collect();
    Failure::usage(format!("invalid task list {}; nothing was started", path.display()))
        .because(lines.join("\n"))
        .hint("TOML: [[task]] with text = \"what to do\"; Markdown: `- what to do`")
}

/// Returns the specification of a task's session. Dependencies that are marked as done are dropped.
fn session_spec(task: &Task) -> SessionSpec {
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
        run_mode: RunMode { place: task.on.clone(), ..RunMode::default() },
        ..SessionSpec::of(task.text.clone())
    }
}
