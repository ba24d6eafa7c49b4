//! Fuzz target: task files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::task::{Task, TaskFileError, from_markdown, from_toml, to_toml};

/// A task file is read or each error has a line of it; tasks that are written and read again are
/// the same.
pub fn task_files(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    check(&text, from_toml(&text));
    check(&text, from_markdown(&text));
}

fn check(text: &str, read: Result<Vec<Task>, Vec<TaskFileError>>) {
    let without_lines = |tasks: &[Task]| -> Vec<Task> {
        tasks.iter().map(|task| Task { line: 0, ..task.clone() }).collect()
    };
    match read {
        Ok(tasks) => {
            assert!(tasks.len() <= text.len());
            let again = from_toml(&to_toml(&tasks)).unwrap();
            assert_eq!(without_lines(&again), without_lines(&tasks));
        }
        Err(errors) => {
            let lines = 1..=text.matches('\n').count() + 1;
            assert!(!errors.is_empty() && errors.iter().all(|it| lines.contains(&it.line)));
        }
    }
}

#[cfg(test)]
mod short_runs {
    #[test]
    fn any_task_file_is_read_or_refused_with_a_line() {
        short_fuzz::run("task_files", super::task_files);
    }
}
