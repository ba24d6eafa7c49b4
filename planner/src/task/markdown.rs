//! Tasks as a Markdown list: one item each, with its keys as indented `key: value` lines.

use super::{Task, TaskFileError, finish};

/// Parses the outermost list items of a text. `[x]` marks an item as done. The indented lines `id:
/// …`, `after: a, b`, `check: LINE` (repeatable), `paths: a/**, b`, `requirements: R1, R2`, `agent:
/// …`, `persona: …` and `base: …` below an item are its keys; all other indented lines belong to
/// its text.
pub fn from_markdown(text: &str) -> Result<Vec<Task>, Vec<TaskFileError>> {
    let mut tasks: Vec<Task> = Vec::new();
    let (mut open, mut fenced) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~");
        let is_indented = line.starts_with("  ") || line.starts_with('\t');
        if is_fence && !is_indented {
            (fenced, open) = (!fenced, false);
        } else if fenced {
            // A list inside a code block is an example.
        } else if let Some(item) = item(line) {
            let (done, text) = parse_checkbox(item);
            tasks.push(Task { text: text.to_owned(), done, line: index + 1, ..Task::default() });
            open = true;
        } else if open && is_indented {
            if let Some(task) = tasks.last_mut() {
                apply_key(task, line.trim());
            }
        } else if !line.trim().is_empty() {
            open = false;
        }
    }
    tasks.iter_mut().for_each(|task| task.text = task.text.trim().to_owned());
    finish(tasks)
}

/// Adds an indented line to its task.
fn apply_key(task: &mut Task, line: &str) {
    let Some((key, value)) = line.split_once(':') else { return append_text(task, line) };
    let value = value.trim();
    let list = || value.split(',').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty());
    match key.trim() {
        "id" => value.clone_into(&mut task.id),
        "after" => task.after.extend(list()),
        "check" | "checks" => task.checks.push(strip_backticks(value)),
        "paths" => task.paths.extend(list().map(|path| strip_backticks(&path))),
        "requirements" => task.requirements.extend(list()),
        "agent" => task.agent = Some(value.to_owned()),
        "persona" => task.persona = Some(value.to_owned()),
        "base" => task.base = Some(value.to_owned()),
        _ => append_text(task, line),
    }
}

fn append_text(task: &mut Task, line: &str) {
    task.text.push('\n');
    task.text.push_str(line);
}

/// Returns a value without surrounding backticks.
fn strip_backticks(value: &str) -> String {
    value.trim_matches('`').to_owned()
}

/// Parses `- `, `* `, `+ `, `3. `, `3) ` at the margin: the rest of the line.
fn item(line: &str) -> Option<&str> {
    let numbered = || {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let rest = rest.strip_prefix(['.', ')']).filter(|_| rest.len() < line.len())?;
        rest.strip_prefix(' ')
    };
    let marked = ["- ", "* ", "+ "].iter().find_map(|mark| line.strip_prefix(mark));
    Some(marked.or_else(numbered)?.trim())
}

fn parse_checkbox(item: &str) -> (bool, &str) {
    let after_mark = |mark| item.strip_prefix(mark).map(str::trim_start);
    match after_mark("[x]").or_else(|| after_mark("[X]")) {
        Some(after_mark) => (true, after_mark),
        None => (false, after_mark("[ ]").unwrap_or(item)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_a_task_with_indented_keys() {
        let text = "# Tasks\n\n- [ ] fix login\n  and its test\n  id: login\n  check: `cargo test login`\n\
                    - [x] old\n\n3. write docs\n   after: login, t2\n   paths: docs/**, README.md\n\
                    \n   note: keep it short\n\nend\n  - not one\n```\n- nor this\n```\n* last\n";
        let tasks = from_markdown(text).unwrap();
        let all: Vec<_> =
            tasks.iter().map(|it| (it.id.as_str(), it.text.as_str(), it.line, it.done)).collect();
        assert_eq!(
            all,
            [
                ("login", "fix login\nand its test", 3, false),
                ("t2", "old", 7, true),
                ("t3", "write docs\nnote: keep it short", 9, false),
                ("t4", "last", 20, false),
            ]
        );
        assert_eq!(tasks[0].checks, ["cargo test login"]);
        assert_eq!(
            (tasks[2].after.join(" "), tasks[2].paths.join(" ")),
            ("login t2".into(), "docs/** README.md".into())
        );
    }

    #[test]
    fn errors_name_their_lines() {
        let text = "- a\n  after: b\n- b\n  id: b\n  after: t1\n-\n- c\n  after: nobody\n";
        let mistakes = from_markdown(text).unwrap_err();
        let reported: Vec<_> = mistakes.iter().map(|it| (it.line, it.what.as_str())).collect();
        assert_eq!(reported[0].0, 1, "{reported:?}");
        assert!(reported[0].1.contains("t1 → b → t1"), "{reported:?}");
        assert_eq!(reported[1].0, 7, "{reported:?}");
        assert!(reported[1].1.contains("`nobody`"), "{reported:?}");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "((- |[0-9]\\. |  |)(\\[x\\] )?(id: |after: |check: )?[a-c,` ]{0,5}\n){0,10}") {
            match from_markdown(&text) {
                Ok(tasks) => {
                    let ids: std::collections::BTreeSet<_> = tasks.iter().map(|it| &it.id).collect();
                    proptest::prop_assert_eq!(ids.len(), tasks.len());
                }
                Err(mistakes) => proptest::prop_assert!(!mistakes.is_empty()),
            }
        }
    }
}
