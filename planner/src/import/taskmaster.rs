//! Task Master: `.taskmaster/tasks/tasks.json` with a list of tasks for each tag.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::{ImportError, ImportedPlan, SourceFile, numbered};
use crate::task::Task;

const FILE: &str = "tasks.json";
/// The tag of a new list.
const DEFAULT_TAG: &str = "master";

#[derive(Deserialize)]
struct TagList {
    tasks: Vec<JsonTask>,
}

/// A task or a subtask.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonTask {
    id: JsonId,
    #[serde(default)]
    title: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    details: Option<String>,
    #[serde(default)]
    test_strategy: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    dependencies: Vec<JsonId>,
    #[serde(default)]
    subtasks: Vec<JsonTask>,
}

/// An id: a number, or a text such as `5.2`.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum JsonId {
    Number(u64),
    Text(String),
}

impl JsonId {
    fn text(&self) -> String {
        match self {
            JsonId::Number(number) => number.to_string(),
            JsonId::Text(text) => text.trim().to_owned(),
        }
    }
}

/// What the status of a task means here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Open,
    Done,
    LeftOut,
}

impl JsonTask {
    fn progress(&self) -> Progress {
        match self.status.as_deref().unwrap_or("pending") {
            "done" | "completed" => Progress::Done,
            "cancelled" | "deferred" => Progress::LeftOut,
            _ => Progress::Open,
        }
    }

    /// Returns what its agent has to do.
    fn text(&self) -> String {
        let tests = self.test_strategy.as_ref().filter(|it| !it.trim().is_empty());
        let tests = tests.map(|it| format!("Tests: {}", it.trim()));
        let parts =
            [Some(self.title.clone()), self.description.clone(), self.details.clone(), tests];
        let parts = parts.into_iter().flatten().map(|part| part.trim().to_owned());
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n")
    }

    /// Returns what it requires, in one paragraph.
    fn requirement(&self) -> String {
        let description = self.description.as_ref().filter(|it| !it.trim().is_empty());
        match description {
            Some(description) => format!("{}: {description}", self.title),
            None => self.title.clone(),
        }
    }
}

pub(super) fn read(
    files: &[SourceFile],
    tag: Option<&str>,
) -> Result<ImportedPlan, Vec<ImportError>> {
    let file = files.iter().find(|file| file.name == FILE);
    let text = file.map_or("", |file| file.text.as_str());
    let (title, tasks) = tag_list(text, tag).map_err(|error| vec![error])?;
    let mut tree = TaskTree::new(text, &tasks);
    let mut requirements = Vec::new();
    for task in tasks.iter().filter(|task| task.progress() != Progress::LeftOut) {
        requirements.push(task.requirement());
    }
    let requirements = numbered(requirements);
    let kept = tasks.iter().filter(|task| task.progress() != Progress::LeftOut);
    let ids: Vec<Option<String>> = {
        let mut requirement = requirements.iter();
        // A task without a readable title has no requirement.
        kept.map(|task| {
            let has_text = task.requirement().contains(char::is_alphanumeric);
            has_text.then(|| requirement.next().map(|it| it.id.clone())).flatten()
        })
        .collect()
    };
    let kept = tasks.iter().filter(|task| task.progress() != Progress::LeftOut);
    for (task, requirement) in kept.zip(ids) {
        tree.add(task, requirement);
    }
    for task in tasks.iter().filter(|task| task.progress() == Progress::LeftOut) {
        let status = task.status.as_deref().unwrap_or_default();
        tree.notes.push(format!("task {} is {status} and was left out", task.id.text()));
    }
    let TaskTree { tasks, notes, errors, .. } = tree;
    match errors.is_empty() {
        true => Ok(ImportedPlan { title, requirements, tasks, notes }),
        false => Err(errors),
    }
}

/// Returns the name and the tasks of a tag: the given one, the only one, or `master`. An older file
/// has one list without a tag.
fn tag_list(text: &str, tag: Option<&str>) -> Result<(String, Vec<JsonTask>), ImportError> {
    let invalid =
        |error: serde_json::Error| ImportError::new(FILE, error.line().max(1), error.to_string());
    let value: Value = serde_json::from_str(text).map_err(invalid)?;
    if value["tasks"].is_array() && tag.is_none() {
        let list: TagList = serde_json::from_str(text).map_err(invalid)?;
        return Ok((String::new(), list.tasks));
    }
    let lists: BTreeMap<String, Value> = match value {
        Value::Object(map) => {
            map.into_iter().filter(|(_, list)| list["tasks"].is_array()).collect()
        }
        _ => BTreeMap::new(),
    };
    let names: Vec<&str> = lists.keys().map(String::as_str).collect();
    let error = |what: String| ImportError::new(FILE, 1, what);
    let name = match (tag, names.as_slice()) {
        (_, []) => return Err(error("it has no list of tasks".to_owned())),
        (Some(tag), names) if names.contains(&tag) => tag,
        (Some(tag), names) => {
            return Err(error(format!("no such tag: `{tag}` (it has {})", names.join(", "))));
        }
        (None, [only]) => only,
        (None, names) if names.contains(&DEFAULT_TAG) => DEFAULT_TAG,
        (None, names) => {
            return Err(error(format!("it has several tags, name one: {}", names.join(", "))));
        }
    };
    let list = lists.get(name).cloned().unwrap_or_default();
    let list: TagList = serde_json::from_value(list)
        .map_err(|error| ImportError::new(FILE, line_of(text, name), error.to_string()))?;
    Ok((name.to_owned(), list.tasks))
}

/// Returns the line of the first occurrence of a JSON string.
fn line_of(text: &str, string: &str) -> usize {
    let quoted = Value::from(string).to_string();
    let before = text.find(&quoted).map_or("", |offset| &text[..offset]);
    before.matches('\n').count() + 1
}

/// The tasks without subtasks, and what depends on what.
struct TaskTree<'t> {
    text: &'t str,
    tasks: Vec<Task>,
    notes: Vec<String>,
    errors: Vec<ImportError>,
    /// The tasks without subtasks below each id.
    leaves: BTreeMap<String, Vec<String>>,
    known: BTreeSet<String>,
}

impl<'t> TaskTree<'t> {
    fn new(text: &'t str, tasks: &[JsonTask]) -> TaskTree<'t> {
        let (mut leaves, mut known) = (BTreeMap::new(), BTreeSet::new());
        for task in tasks {
            let id = task.id.text();
            known.insert(id.clone());
            known.extend(task.subtasks.iter().map(|subtask| subtask_id(&id, subtask)));
            if task.progress() == Progress::LeftOut {
                continue;
            }
            let subtasks = task.subtasks.iter().filter(|it| it.progress() != Progress::LeftOut);
            let subtasks: Vec<String> = subtasks.map(|it| subtask_id(&id, it)).collect();
            for subtask in &subtasks {
                leaves.insert(subtask.clone(), vec![subtask.clone()]);
            }
            let below = if subtasks.is_empty() { vec![id.clone()] } else { subtasks };
            leaves.insert(id, below);
        }
        TaskTree { text, tasks: Vec::new(), notes: Vec::new(), errors: Vec::new(), leaves, known }
    }

    /// Adds a task, or its subtasks.
    fn add(&mut self, task: &JsonTask, requirement: Option<String>) {
        let id = task.id.text();
        let line = line_of(self.text, &task.title);
        let dependencies: Vec<String> = task.dependencies.iter().map(JsonId::text).collect();
        let after = self.resolve(&id, line, dependencies);
        let is_done = task.progress() == Progress::Done;
        let subtasks: Vec<&JsonTask> =
            task.subtasks.iter().filter(|it| it.progress() != Progress::LeftOut).collect();
        let requirements: Vec<String> = requirement.into_iter().collect();
        if subtasks.is_empty() {
            let (text, done) = (task.text(), is_done);
            self.tasks.push(Task { id, text, after, requirements, done, line, ..Task::default() });
            return;
        }
        for subtask in subtasks {
            let line = line_of(self.text, &subtask.title);
            let own_id = subtask_id(&id, subtask);
            let own = subtask.dependencies.iter().map(|it| {
                let text = it.text();
                // A number means a subtask of the same task.
                if text.contains('.') { text } else { format!("{id}.{text}") }
            });
            let own = self.resolve(&own_id, line, own.collect());
            let mut all = after.clone();
            all.extend(own.into_iter().filter(|it| !after.contains(it)));
            self.tasks.push(Task {
                id: own_id,
                text: format!("{}: {}", task.title.trim(), subtask.text()),
                after: all,
                requirements: requirements.clone(),
                done: is_done || subtask.progress() == Progress::Done,
                line,
                ..Task::default()
            });
        }
    }

    /// Returns the tasks without subtasks that these ids mean; tasks that were left out are dropped.
    fn resolve(&mut self, id: &str, line: usize, dependencies: Vec<String>) -> Vec<String> {
        let mut resolved = Vec::new();
        for dependency in dependencies {
            match self.leaves.get(&dependency) {
                Some(leaves) => resolved.extend(leaves.iter().cloned()),
                None if self.known.contains(&dependency) => {}
                None => {
                    let what = format!("task {id} depends on `{dependency}`, which does not exist");
                    self.errors.push(ImportError::new(FILE, line, what));
                }
            }
        }
        resolved.dedup();
        resolved
    }
}

fn subtask_id(parent: &str, subtask: &JsonTask) -> String {
    let id = subtask.id.text();
    if id.contains('.') { id } else { format!("{parent}.{id}") }
}
