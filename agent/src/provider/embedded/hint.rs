//! The next step that a small model is told after each result. Without one it does the same thing
//! again, or stops before the task is done. Each hint follows from what came before it only, so
//! that the conversation's prefix, and with it the KV, stays as it was.

use crate::message::{Message, Part, Role, ToolResult};

/// Where the files of a task begin in its message; what is before is the task's own words.
const FILES: [&str; 2] = ["\n\nFiles in the directory", "\n\nThe directory is empty"];

/// What to do after this result of `messages[at]`.
pub fn next_step(messages: &[Message], at: usize, result: &ToolResult) -> String {
    let exit = result.text.rsplit_once("[exit code ").map(|(_, code)| code);
    if exit.is_some_and(|code| !code.starts_with("0]")) {
        return "The command failed. Find the cause, correct the file, then run it again.".into();
    }
    if !result.ok {
        return "That failed. Find out why and do it differently.".into();
    }
    match untouched(&messages[..at]) {
        Some(file) if file.contains("test") => {
            format!("Now run {file} with shell, to see whether it passes. Do not change it.")
        }
        Some(file) => format!(
            "The task also names {file}. If {file} must be written, changed or run, do that now. \
             Otherwise call answer."
        ),
        None => "If everything that the task asks for is done, call answer. Otherwise do what is \
                 missing."
            .into(),
    }
}

/// The first file that the task names and no call has touched.
fn untouched(messages: &[Message]) -> Option<String> {
    let task = messages.iter().find(|message| message.role == Role::User)?.words();
    let own = FILES.iter().filter_map(|mark| task.find(mark)).min().unwrap_or(task.len());
    let calls: Vec<String> = messages
        .iter()
        .flat_map(|message| &message.parts)
        .filter_map(|part| match part {
            Part::Call(call) => Some(call.args.to_string()),
            Part::Text { .. } | Part::Reasoning { .. } | Part::Result(_) | Part::Image(_) => None,
        })
        .collect();
    let named = task[..own].split_whitespace().filter_map(file_name);
    let mut open = named.filter(|name| !calls.iter().any(|call| call.contains(*name)));
    open.next().map(str::to_owned)
}

/// A word that is a file's name: `a.py`, `docs/b.md`, also in quotes or before a comma.
pub fn file_name(word: &str) -> Option<&str> {
    let name = word.trim_matches(|c: char| !c.is_alphanumeric());
    let (stem, ending) = name.rsplit_once('.')?;
    let fits = |c: char| c.is_alphanumeric() || "._-/".contains(c);
    let is_ending = (1..=5).contains(&ending.len())
        && ending.starts_with(|c: char| c.is_ascii_alphabetic())
        && ending.chars().all(|c| c.is_ascii_alphanumeric());
    (stem.len() > 1 && is_ending && stem.chars().all(fits)).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::ToolCall;

    fn called(file: &str) -> Message {
        let args = json!({ "file_path": file });
        let (id, name) = ("c".to_owned(), "write_file".to_owned());
        let call = ToolCall { id, name, args, malformed: None };
        Message { role: Role::Assistant, parts: vec![Part::Call(call)] }
    }

    fn result(ok: bool, text: &str) -> ToolResult {
        let (call_id, name) = ("c".into(), "write_file".into());
        ToolResult { call_id, name, ok, text: text.into(), images: Vec::new() }
    }

    #[test]
    fn a_file_that_the_task_names_is_asked_for_until_it_was_touched() {
        let task = "Rename Box in `shapes.py` and app.py.\n\nFiles in the directory:\nother.py\n";
        let mut messages = vec![Message::text(Role::User, task), called("shapes.py")];
        let hint = next_step(&messages, 2, &result(true, "ok"));
        assert!(hint.starts_with("The task also names app.py."), "{hint}");
        let test = Message::text(Role::User, "test_a.py fails, mend a.py");
        let hint_of_test = next_step(&[test, called("x/a.py")], 2, &result(true, "ok"));
        assert!(hint_of_test.starts_with("Now run test_a.py"), "{hint_of_test}");
        messages.push(called("./app.py"));
        let hint = next_step(&messages, 3, &result(true, "ok"));
        assert!(hint.starts_with("If everything"), "{hint}");
        assert!(next_step(&messages, 3, &result(false, "no")).starts_with("That failed"));
        assert!(next_step(&messages, 3, &result(true, "[exit code 1]")).contains("run it again"));
    }

    #[test]
    fn versions_and_abbreviations_name_no_file() {
        let names = |text: &'static str| text.split_whitespace().find_map(file_name);
        assert_eq!(names("from 1.4 to 2.1. See e.g. this, i.e. nothing."), None);
        assert_eq!(names("put it into (docs/a.md),"), Some("docs/a.md"));
    }
}
