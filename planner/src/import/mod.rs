//! Plans of other tools as requirements and tasks: spec-kit, OpenSpec, Kiro and Task Master.

mod kiro;
mod markdown;
mod openspec;
mod spec_kit;
mod taskmaster;

use crate::requirement::Requirement;
use crate::task::{Task, topological_order, validate};

/// The format of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanFormat {
    /// `specs/NNN-name/` of spec-kit: `spec.md`, `plan.md`, `tasks.md`.
    SpecKit,
    /// `openspec/changes/NAME/` of OpenSpec: `proposal.md`, `tasks.md`, `specs/**/spec.md`.
    Openspec,
    /// `.kiro/specs/NAME/` of Kiro: `requirements.md`, `design.md`, `tasks.md`.
    Kiro,
    /// `tasks.json` of Task Master.
    Taskmaster,
}

/// A file of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path from the directory of the plan, with `/`.
    pub name: String,
    /// Its path from the root of the repository, for agents.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// A plan of another tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedPlan {
    /// Its title.
    pub title: String,
    /// The requirements, in their order.
    pub requirements: Vec<Requirement>,
    /// The tasks, in their order.
    pub tasks: Vec<Task>,
    /// What was left out, one sentence each.
    pub notes: Vec<String>,
}

/// An error in a file of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// One sentence without a full stop.
    pub what: String,
}

impl ImportError {
    fn new(file: &str, line: usize, what: impl Into<String>) -> ImportError {
        ImportError { file: file.to_owned(), line, what: what.into() }
    }
}

/// The id of the task that covers the requirements which no other task names.
const REMAINING: &str = "remaining-requirements";

/// Returns the format of the plan in a directory with these files.
pub fn detect(names: &[&str]) -> Option<PlanFormat> {
    let has = |name: &str| names.contains(&name);
    if has("tasks.json") {
        return Some(PlanFormat::Taskmaster);
    }
    if has("proposal.md") {
        return Some(PlanFormat::Openspec);
    }
    match has("tasks.md") {
        true if has("requirements.md") => Some(PlanFormat::Kiro),
        true if has("spec.md") => Some(PlanFormat::SpecKit),
        _ => None,
    }
}

/// Reads a plan; `tag` selects one of several lists of Task Master.
pub fn read(
    format: PlanFormat,
    files: &[SourceFile],
    tag: Option<&str>,
) -> Result<ImportedPlan, Vec<ImportError>> {
    let mut plan = match format {
        PlanFormat::SpecKit => spec_kit::read(files)?,
        PlanFormat::Openspec => openspec::read(files)?,
        PlanFormat::Kiro => kiro::read(files)?,
        PlanFormat::Taskmaster => taskmaster::read(files, tag)?,
    };
    let tasks_file = files.iter().find(|file| file.name.starts_with("tasks."));
    let tasks_file = tasks_file.map_or("tasks.md", |file| file.name.as_str());
    if plan.tasks.is_empty() {
        return Err(vec![ImportError::new(tasks_file, 1, "it has no task")]);
    }
    let errors: Vec<ImportError> = validate(&plan.tasks)
        .into_iter()
        .map(|error| ImportError::new(tasks_file, error.line, error.what))
        .collect();
    if !errors.is_empty() {
        return Err(errors);
    }
    plan.cover_requirements();
    Ok(plan)
}

/// Numbers requirements: `R1`, `R2`, …; the words of each text are separated by one space.
fn numbered(texts: impl IntoIterator<Item = String>) -> Vec<Requirement> {
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let texts = texts.into_iter().map(words).filter(|text| text.contains(char::is_alphanumeric));
    texts.zip(1..).map(|(text, n)| Requirement { id: format!("R{n}"), text }).collect()
}

/// Lets each task follow the one before it.
fn in_sequence(tasks: &mut [Task]) {
    for index in 1..tasks.len() {
        tasks[index].after = vec![tasks[index - 1].id.clone()];
    }
}

/// Returns where agents find the files of a plan.
fn references(files: &[SourceFile], names: &[(&str, &str)]) -> String {
    let found = names.iter().filter_map(|(name, what)| {
        let file = files.iter().find(|file| file.name == *name)?;
        Some(format!("{what} is in `{}`", file.path))
    });
    let found: Vec<String> = found.collect();
    match found.is_empty() {
        true => String::new(),
        false => format!("\n\nFor reference: {}.", found.join(", ")),
    }
}

impl ImportedPlan {
    /// Adds a last task for the requirements that no task names: it checks them, and completes what
    /// is missing.
    fn cover_requirements(&mut self) {
        let is_covered =
            |it: &&Requirement| self.tasks.iter().any(|task| task.requirements.contains(&it.id));
        let uncovered: Vec<String> =
            self.requirements.iter().filter(|it| !is_covered(it)).map(|it| it.id.clone()).collect();
        if uncovered.is_empty() {
            return;
        }
        let is_taken = |id: &str| self.tasks.iter().any(|task| task.id == id);
        let names = (1..).map(|n| match n {
            1 => REMAINING.to_owned(),
            n => format!("{REMAINING}-{n}"),
        });
        let id = names.into_iter().find(|id| !is_taken(id)).unwrap_or_default();
        // The tasks that no other one follows.
        let is_last = |task: &&Task| !self.tasks.iter().any(|other| other.after.contains(&task.id));
        let after = self.tasks.iter().filter(is_last).map(|task| task.id.clone()).collect();
        let line = self.tasks.last().map_or(1, |task| task.line);
        self.tasks.push(Task {
            id,
            text: "Check that each requirement is met, and complete what is missing.".to_owned(),
            requirements: uncovered,
            after,
            line,
            ..Task::default()
        });
    }

    /// Returns the requirements as a list.
    pub fn requirements_text(&self) -> String {
        self.requirements.iter().map(|it| format!("- {}: {}\n", it.id, it.text)).collect()
    }

    /// Returns the tasks, each after its dependencies.
    pub fn ordered_tasks(&self) -> Vec<Task> {
        topological_order(&self.tasks).into_iter().map(|index| self.tasks[index].clone()).collect()
    }
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
