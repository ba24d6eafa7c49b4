//! OpenSpec: `openspec/changes/NAME/` with delta specs (`## ADDED Requirements`, `### Requirement:`,
//! `#### Scenario:`) and `tasks.md` (`- [ ] 1.1 text`).

use super::markdown::{checkbox, heading, item, lines, plain, title};
use super::{ImportError, ImportedPlan, SourceFile, in_sequence, numbered, references};
use crate::task::Task;

/// The headings of delta specs.
const DELTAS: [&str; 4] = ["ADDED", "MODIFIED", "REMOVED", "RENAMED"];

pub(super) fn read(files: &[SourceFile]) -> Result<ImportedPlan, Vec<ImportError>> {
    let file = |name: &str| files.iter().find(|file| file.name == name);
    let (mut texts, mut errors) = (Vec::new(), Vec::new());
    let mut specs: Vec<&SourceFile> = files
        .iter()
        .filter(|file| file.name.starts_with("specs/") && file.name.ends_with("/spec.md"))
        .collect();
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    for spec in specs {
        match delta_requirements(spec) {
            Ok(found) => texts.extend(found),
            Err(found) => errors.extend(found),
        }
    }
    let tasks = file("tasks.md").map_or("", |file| file.text.as_str());
    let proposal = file("proposal.md").map_or("", |file| file.text.as_str());
    let names = [("proposal.md", "the proposal"), ("design.md", "the design")];
    let mut tasks = match listed_tasks(tasks, &references(files, &names)) {
        Ok(tasks) => tasks,
        Err(found) => {
            errors.extend(found);
            Vec::new()
        }
    };
    if !errors.is_empty() {
        return Err(errors);
    }
    in_sequence(&mut tasks);
    let title = title(proposal).unwrap_or_default();
    Ok(ImportedPlan { title, requirements: numbered(texts), tasks, notes: Vec::new() })
}

/// Returns the requirements of a delta spec, each with its scenarios.
fn delta_requirements(file: &SourceFile) -> Result<Vec<String>, Vec<ImportError>> {
    let capability = file.name.trim_start_matches("specs/").trim_end_matches("/spec.md");
    let (mut texts, mut errors): (Vec<String>, Vec<ImportError>) = (Vec::new(), Vec::new());
    let mut delta = None;
    let mut open = false;
    for line in lines(&file.text) {
        if let Some((level, text)) = heading(line.text) {
            if let Some(name) = text.strip_prefix("Requirement:") {
                match delta {
                    Some(delta) => {
                        texts.push(format!("{delta} in {capability}: {}.", plain(name)));
                        open = true;
                    }
                    None => errors.push(ImportError::new(
                        &file.name,
                        line.number,
                        "a requirement outside of `## ADDED Requirements`, `## MODIFIED \
                         Requirements`, `## REMOVED Requirements` and `## RENAMED Requirements`",
                    )),
                }
            } else if let Some(name) = text.strip_prefix("Scenario:").filter(|_| open) {
                append(&mut texts, &format!("Scenario {}:", plain(name)));
            } else if level <= 2 {
                let word = text.split_whitespace().next().unwrap_or_default();
                delta = DELTAS.into_iter().find(|it| word.eq_ignore_ascii_case(it));
                open = false;
            }
            continue;
        }
        let text = plain(item(line.text).unwrap_or(line.text));
        if text.is_empty() {
            continue;
        }
        if open {
            append(&mut texts, &text);
        } else if delta == Some("RENAMED") {
            match text.split_once(':') {
                Some(("FROM", _)) => texts.push(format!("RENAMED in {capability}: {text}")),
                Some(("TO", _)) => append(&mut texts, &text),
                _ => {}
            }
        }
    }
    if errors.is_empty() { Ok(texts) } else { Err(errors) }
}

fn append(texts: &mut [String], text: &str) {
    if let Some(last) = texts.last_mut() {
        last.push(' ');
        last.push_str(text);
    }
}

fn listed_tasks(text: &str, context: &str) -> Result<Vec<Task>, Vec<ImportError>> {
    let (mut tasks, mut errors): (Vec<Task>, Vec<ImportError>) = (Vec::new(), Vec::new());
    let mut section = String::new();
    for line in lines(text) {
        if let Some((_, text)) = heading(line.text) {
            text.clone_into(&mut section);
            continue;
        }
        let Some(checkbox) = checkbox(line.text) else { continue };
        let mut error = |what: String| errors.push(ImportError::new("tasks.md", line.number, what));
        let done = match checkbox.mark {
            ' ' => false,
            'x' | 'X' => true,
            mark => {
                error(format!("invalid checkbox `[{mark}]`: use `[ ]` or `[x]`"));
                continue;
            }
        };
        let (word, rest) = checkbox.text.split_once(char::is_whitespace).unwrap_or_default();
        let number = word.trim_end_matches('.');
        let is_number =
            !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.');
        let (id, text) = match is_number {
            true => (number.to_owned(), rest.trim()),
            false => (format!("t{}", tasks.len() + 1), checkbox.text),
        };
        if text.is_empty() {
            error("a task without text".to_owned());
            continue;
        }
        let heading = match section.is_empty() {
            true => String::new(),
            false => format!("{section}: "),
        };
        let text = format!("{heading}{text}{context}");
        tasks.push(Task { id, text, done, line: line.number, ..Task::default() });
    }
    if errors.is_empty() { Ok(tasks) } else { Err(errors) }
}
