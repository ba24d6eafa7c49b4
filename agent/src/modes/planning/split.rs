//! Splits requirements: a model that can only read returns the tasks of a plan through a tool.

use std::collections::BTreeSet;

use planner::requirement::Requirement;
use planner::requirement_coverage::unknown_references;
use planner::task::{self, Task};
use serde::Deserialize;
use serde_json::{Value, json};

use super::model_io::{ModelTask, TextTool};
use super::prompts;
use provider::ToolDefinition;

/// A task as the model returns it.
#[derive(Deserialize)]
struct TaskRow {
    id: String,
    text: String,
    requirements: Vec<String>,
    #[serde(default)]
    after: Vec<String>,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    checks: Vec<String>,
}

/// Returns the tool and the task for splitting: tasks for the requirements that no existing task
/// covers. The tool returns TOML.
pub(crate) fn split(
    all: Vec<Requirement>,
    there: Vec<Task>,
    report: &str,
) -> (TextTool, ModelTask) {
    let message = prompts::split(&all, &open(&all, &there), &there, report);
    let spec = ToolDefinition {
        name: "tasks".to_owned(),
        description: "Gives the tasks and ends the work.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": { "tasks": { "type": "array", "items": row_schema() } },
            "required": ["tasks"]
        }),
    };
    let asked = ModelTask {
        identity: prompts::SPLITTER,
        title: "split into tasks",
        message,
        must_read: false,
    };
    (TextTool::by(spec, move |args| read(args, &all, &there)), asked)
}

/// Returns the JSON schema of a task.
pub(super) fn row_schema() -> Value {
    let list =
        |what: &str| json!({"type": "array", "items": {"type": "string"}, "description": what});
    json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "A short name: letters, digits and `-`."},
            "text": {"type": "string", "description": "What to do, complete enough for an agent that sees only this and the requirements."},
            "requirements": list("Ids of the requirements that it serves; at least one."),
            "after": list("Ids of the tasks that must have landed before it begins."),
            "paths": list("Files that it will touch, as glob patterns from the root."),
            "checks": list("Commands that must pass when it is done, one shell line each."),
        },
        "required": ["id", "text", "requirements"]
    })
}

/// Returns the requirements that no task covers.
fn open<'a>(all: &'a [Requirement], tasks: &[Task]) -> Vec<&'a Requirement> {
    let served: BTreeSet<&String> = tasks.iter().flat_map(|task| &task.requirements).collect();
    all.iter().filter(|it| !served.contains(&it.id)).collect()
}

fn read(args: &Value, all: &[Requirement], there: &[Task]) -> Result<String, String> {
    let (new, mut wrong) = read_tasks(args, all, there)?;
    let tasks: Vec<Task> = there.iter().chain(&new).cloned().collect();
    wrong.extend(open(all, &tasks).iter().map(|it| format!("no task covers {}", it.id)));
    match wrong.is_empty() {
        true => Ok(task::to_toml(&new)),
        false => Err(format!("{}. Send all new tasks again", wrong.join("; "))),
    }
}

/// Parses the new tasks of a call, and returns them with all their errors.
pub(super) fn read_tasks(
    args: &Value,
    all: &[Requirement],
    there: &[Task],
) -> Result<(Vec<Task>, Vec<String>), String> {
    let rows: Vec<TaskRow> =
        Deserialize::deserialize(&args["tasks"]).map_err(|error| format!("`tasks`: {error}"))?;
    let new: Vec<Task> = rows.into_iter().map(task).collect();
    let mut tasks = there.to_vec();
    tasks.extend(new.iter().cloned());
    let mut wrong: Vec<String> = task::validate(&tasks).into_iter().map(|it| it.what).collect();
    wrong.extend(
        unknown_references(all, &tasks)
            .iter()
            .map(|(task, id)| format!("task `{}` names unknown requirement {id}", task.id)),
    );
    let idle = new.iter().filter(|task| task.requirements.is_empty());
    wrong.extend(idle.map(|task| format!("task `{}` covers no requirement", task.id)));
    Ok((new, wrong))
}

fn task(row: TaskRow) -> Task {
    let TaskRow { id, text, requirements, after, paths, checks } = row;
    let text = text.trim().to_owned();
    Task { id, text, requirements, after, paths, checks, ..Task::default() }
}
