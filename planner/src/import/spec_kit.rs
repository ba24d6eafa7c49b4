//! spec-kit: `specs/NNN-name/` with `spec.md` (user stories, `FR-001`, `SC-001`) and `tasks.md`
//! (`- [ ] T001 [P] [US1] text`).

use super::markdown::{checkbox, heading, item, lines, plain, title};
use super::{ImportError, ImportedPlan, SourceFile, numbered, references};
use crate::task::Task;

/// What `spec.md` requires: the label by which tasks refer to it, and the text.
struct SpecItem {
    label: String,
    text: String,
}

/// A task, before its dependencies are known.
struct ListedTask {
    task: Task,
    is_parallel: bool,
    phase: usize,
    story: Option<String>,
}

pub(super) fn read(files: &[SourceFile]) -> Result<ImportedPlan, Vec<ImportError>> {
    let file = |name: &str| files.iter().find(|file| file.name == name);
    let spec = file("spec.md").map_or("", |file| file.text.as_str());
    let tasks = file("tasks.md").map_or("", |file| file.text.as_str());
    let items = spec_items(spec);
    let requirements = numbered(items.iter().map(|item| format!("{}: {}", item.label, item.text)));
    let mut listed = listed_tasks(tasks)?;
    let names = [("spec.md", "the specification"), ("plan.md", "the plan")];
    let context = references(files, &names);
    for entry in &mut listed {
        entry.task.text.push_str(&context);
        let Some(story) = &entry.story else { continue };
        let served = items.iter().zip(&requirements).filter(|(item, _)| item.label == *story);
        entry.task.requirements = served.map(|(_, requirement)| requirement.id.clone()).collect();
    }
    Ok(ImportedPlan {
        title: title(spec).or_else(|| title(tasks)).unwrap_or_default(),
        requirements,
        tasks: with_dependencies(listed),
        notes: Vec::new(),
    })
}

/// Returns the user stories with their scenarios, and the functional requirements and success
/// criteria.
fn spec_items(text: &str) -> Vec<SpecItem> {
    let mut items: Vec<SpecItem> = Vec::new();
    let mut in_story = false;
    for line in lines(text) {
        if let Some((level, text)) = heading(line.text) {
            if level <= 3 {
                in_story = false;
            }
            if let Some(story) = text.strip_prefix("User Story ") {
                let digits = story.find(|c: char| !c.is_ascii_digit()).unwrap_or(story.len());
                let label = format!("US{}", &story[..digits]);
                let text = story[digits..].trim_start_matches([' ', '-', ':', '–']);
                items.push(SpecItem { label, text: plain(text) });
                in_story = true;
            }
            continue;
        }
        if let Some((label, text)) = item(line.text).and_then(labelled) {
            items.push(SpecItem { label, text });
            in_story = false;
        } else if let Some(last) = items.last_mut().filter(|_| {
            let is_continued = line.indent >= 2 && !line.text.is_empty();
            is_continued || in_story && is_scenario(line.text)
        }) {
            last.text.push(' ');
            last.text.push_str(&plain(item(line.text).unwrap_or(line.text)));
        }
    }
    items
}

/// Returns whether a line of a user story is one of its acceptance scenarios.
fn is_scenario(text: &str) -> bool {
    item(text).is_some_and(|item| item.to_ascii_lowercase().contains("given"))
}

/// Parses `**FR-001**: text`.
fn labelled(item: &str) -> Option<(String, String)> {
    let (label, text) = item.strip_prefix("**")?.split_once("**")?;
    let (kind, number) = label.trim_end_matches(':').split_once('-')?;
    let is_label = matches!(kind, "FR" | "NFR" | "SC")
        && number.starts_with(|c: char| c.is_ascii_digit())
        && number.chars().all(|c| c.is_ascii_alphanumeric());
    is_label.then(|| {
        (label.trim_end_matches(':').to_owned(), plain(text.trim_start_matches([':', ' '])))
    })
}

fn listed_tasks(text: &str) -> Result<Vec<ListedTask>, Vec<ImportError>> {
    let (mut listed, mut errors) = (Vec::new(), Vec::new());
    let mut phase = 0;
    for line in lines(text) {
        if heading(line.text).is_some() {
            phase += 1;
            continue;
        }
        let Some(checkbox) = checkbox(line.text) else { continue };
        let Some((id, mut rest)) = task_id(checkbox.text) else { continue };
        let mut error = |what: String| errors.push(ImportError::new("tasks.md", line.number, what));
        let done = match checkbox.mark {
            ' ' => false,
            'x' | 'X' => true,
            mark => {
                error(format!("invalid checkbox `[{mark}]` of task {id}: use `[ ]` or `[x]`"));
                continue;
            }
        };
        let (mut is_parallel, mut story) = (false, None);
        while let Some((mark, after)) = rest.strip_prefix('[').and_then(|it| it.split_once(']')) {
            match mark {
                "P" => is_parallel = true,
                mark if mark.starts_with("US") => story = Some(mark.to_owned()),
                _ => break,
            }
            rest = after.trim_start();
        }
        if rest.is_empty() {
            error(format!("task {id} has no text"));
            continue;
        }
        let (id, text) = (id.to_owned(), rest.to_owned());
        let task = Task { id, text, done, line: line.number, ..Task::default() };
        listed.push(ListedTask { task, is_parallel, phase, story });
    }
    if errors.is_empty() { Ok(listed) } else { Err(errors) }
}

/// Parses `T001 text`, also with `**T001**`.
fn task_id(text: &str) -> Option<(&str, &str)> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let id = word.trim_matches('*').trim_end_matches(':');
    let digits = id.strip_prefix('T')?;
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit())
        && digits.chars().all(|c| c.is_ascii_alphanumeric());
    is_number.then(|| (id, rest.trim_start()))
}

/// Lets each task follow the one before it; tasks with `[P]` that follow each other in a phase run
/// at the same time.
fn with_dependencies(listed: Vec<ListedTask>) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    let (mut previous, mut group): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut group_phase = None;
    for ListedTask { mut task, is_parallel, phase, .. } in listed {
        let joins = is_parallel && group_phase == Some(phase);
        if !joins {
            if !group.is_empty() {
                previous = std::mem::take(&mut group);
            }
            group_phase = is_parallel.then_some(phase);
        }
        task.after.clone_from(&previous);
        group.push(task.id.clone());
        tasks.push(task);
    }
    tasks
}
