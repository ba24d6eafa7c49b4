//! Kiro: `.kiro/specs/NAME/` with `requirements.md` (acceptance criteria in EARS) and `tasks.md`
//! (`- [ ] 2.1 text`, `_Requirements: 1.1, 2.3_`).

use super::markdown::{checkbox, heading, item, lines, plain, title};
use super::{ImportError, ImportedPlan, SourceFile, in_sequence, numbered, references};
use crate::task::Task;

/// An acceptance criterion.
struct Criterion {
    /// `1.2`: the second criterion of the first requirement.
    number: String,
    text: String,
}

/// An item of `tasks.md`.
struct Item {
    task: Task,
    indent: usize,
    /// The criteria that it names.
    serves: Vec<String>,
    is_optional: bool,
}

pub(super) fn read(files: &[SourceFile]) -> Result<ImportedPlan, Vec<ImportError>> {
    let text = |name: &str| {
        files.iter().find(|file| file.name == name).map_or("", |file| file.text.as_str())
    };
    let criteria = criteria(text("requirements.md"));
    let requirements = numbered(criteria.iter().map(|it| format!("{}: {}", it.number, it.text)));
    let items = items(text("tasks.md"))?;
    let names = [("requirements.md", "the requirements document"), ("design.md", "the design")];
    let context = references(files, &names);
    let (mut tasks, mut notes, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for (index, entry) in items.iter().enumerate() {
        let has_children = items.get(index + 1).is_some_and(|next| next.indent > entry.indent);
        if has_children {
            continue;
        }
        if entry.is_optional && !entry.task.done {
            notes.push(format!("task {} is optional and was left out", entry.task.id));
            continue;
        }
        let mut task = entry.task.clone();
        if let Some(parent) = items[..index].iter().rfind(|it| it.indent < entry.indent) {
            task.text = format!("{}: {}", first_line(&parent.task.text), task.text);
        }
        task.text.push_str(&context);
        for number in &entry.serves {
            let section = format!("{number}.");
            let served = criteria.iter().zip(&requirements).filter(|(criterion, _)| {
                criterion.number == *number || criterion.number.starts_with(&section)
            });
            let served: Vec<String> = served.map(|(_, it)| it.id.clone()).collect();
            if served.is_empty() {
                let what = format!(
                    "task {} names requirement {number}, which is not in requirements.md",
                    task.id
                );
                errors.push(ImportError::new("tasks.md", task.line, what));
            }
            task.requirements.extend(served);
        }
        task.requirements.dedup();
        tasks.push(task);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    in_sequence(&mut tasks);
    let title = title(text("requirements.md")).unwrap_or_default();
    Ok(ImportedPlan { title, requirements, tasks, notes })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Returns the acceptance criteria, each with the title of its requirement.
fn criteria(text: &str) -> Vec<Criterion> {
    let mut criteria: Vec<Criterion> = Vec::new();
    let (mut requirement, mut in_criteria, mut count, mut open) = (String::new(), false, 0, false);
    for line in lines(text) {
        if let Some((_, text)) = heading(line.text) {
            if let Some(rest) = text.strip_prefix("Requirement ") {
                let end =
                    rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
                rest[..end].trim_end_matches('.').clone_into(&mut requirement);
                (in_criteria, count) = (false, 0);
            } else {
                in_criteria = text.eq_ignore_ascii_case("Acceptance Criteria");
            }
            open = false;
            continue;
        }
        if !in_criteria || requirement.is_empty() {
            continue;
        }
        match item(line.text) {
            Some(text) if line.indent < 2 => {
                count += 1;
                let number = format!("{requirement}.{count}");
                criteria.push(Criterion { number, text: plain(text) });
                open = true;
            }
            _ if line.text.is_empty() => open = false,
            continued => {
                if let Some(last) = criteria.last_mut().filter(|_| open) {
                    last.text.push(' ');
                    last.text.push_str(&plain(continued.unwrap_or(line.text)));
                }
            }
        }
    }
    criteria
}

/// Returns the items with checkboxes; the other lines below an item belong to it.
fn items(text: &str) -> Result<Vec<Item>, Vec<ImportError>> {
    let (mut items, mut errors): (Vec<Item>, Vec<ImportError>) = (Vec::new(), Vec::new());
    let mut open = false;
    for line in lines(text) {
        if heading(line.text).is_some() {
            open = false;
        } else if let Some(checkbox) = checkbox(line.text) {
            let done = match checkbox.mark {
                // Kiro marks a running task with `-`.
                ' ' | '-' => false,
                'x' | 'X' => true,
                mark => {
                    let what = format!("invalid checkbox `[{mark}]`: use `[ ]`, `[-]` or `[x]`");
                    errors.push(ImportError::new("tasks.md", line.number, what));
                    continue;
                }
            };
            let (word, rest) =
                checkbox.text.split_once(char::is_whitespace).unwrap_or((checkbox.text, ""));
            let number = word.trim_end_matches('.');
            let is_number = number.starts_with(|c: char| c.is_ascii_digit())
                && number.chars().all(|c| c.is_ascii_digit() || c == '.');
            let (id, text) = match is_number {
                true => (number.to_owned(), rest.trim()),
                false => (format!("t{}", items.len() + 1), checkbox.text),
            };
            let task =
                Task { id, text: text.to_owned(), done, line: line.number, ..Task::default() };
            let (indent, is_optional) = (line.indent, checkbox.is_optional);
            items.push(Item { task, indent, serves: Vec::new(), is_optional });
            open = true;
        } else if let Some(last) = items.last_mut().filter(|_| open && !line.text.is_empty()) {
            match requirement_numbers(line.text) {
                Some(numbers) => last.serves.extend(numbers),
                None => {
                    last.task.text.push('\n');
                    last.task.text.push_str(line.text);
                }
            }
        }
    }
    if errors.is_empty() { Ok(items) } else { Err(errors) }
}

/// Parses `_Requirements: 1.1, 2.3_`.
fn requirement_numbers(text: &str) -> Option<Vec<String>> {
    let text = item(text).unwrap_or(text).trim_matches(['_', '*']);
    let numbers =
        text.strip_prefix("Requirements:").or_else(|| text.strip_prefix("Requirement:"))?;
    let numbers = numbers.split([',', ' ']).map(|it| it.trim_matches(['_', '*', '.', ';']));
    let is_number = |text: &&str| text.starts_with(|c: char| c.is_ascii_digit());
    Some(numbers.filter(is_number).map(str::to_owned).collect())
}
