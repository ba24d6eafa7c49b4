//! Commit messages: written by a model through `g3 complete`, validated, and replaced by a plain
//! one if the model fails.

use std::path::Path;
use std::time::Duration;

use base::process::{Command, OutputLimits};
use base::text::{head, printable, printable_output};

use planner::commit::{self, INSTRUCTIONS};

use crate::redact::redact;
use crate::session::record::SessionRecord;
use studio_git::merge::CommitMessage;

/// Timeout of the model.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum number of bytes of a diff that are sent; a larger one is summarized by file.
const MAX_DIFF_BYTES: usize = 24_000;

/// A message and its author.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenMessage {
    /// The message, trailers included.
    pub message: CommitMessage,
    /// The author: `model`, `plain` or `user`.
    pub author: &'static str,
    /// Why the model did not write it.
    pub note: Option<String>,
}

/// The work that a message describes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// The session.
    pub record: &'a SessionRecord,
    /// The diffstat, one line per file.
    pub stat: &'a str,
    /// The whole diff.
    pub patch: &'a str,
}

/// Asks a model for messages.
#[derive(Clone, Debug)]
pub(crate) struct MessageWriter {
    /// Program and arguments, `g3 complete`.
    pub command: Vec<String>,
    /// How long the model may take.
    pub timeout: Duration,
}

impl MessageWriter {
    /// Asks for a message; returns a plain one if the model fails.
    pub(crate) async fn write(&self, subject: &Subject<'_>, directory: &Path) -> WrittenMessage {
        let answer = self
            .ask_model(&prompt(subject), directory)
            .await
            .and_then(|answer| commit::read(&printable_output(&answer)));
        match answer {
            Ok(text) => from_model(subject.record, &text),
            Err(error) => WrittenMessage {
                message: with_trailers(
                    subject.record,
                    commit::from_task(&printable(&subject.record.task)),
                ),
                author: "plain",
                note: Some(format!("used a plain commit message: {error}")),
            },
        }
    }

    async fn ask_model(&self, prompt: &str, directory: &Path) -> Result<String, String> {
        let Some((program, args)) = self.command.split_first() else {
            return Err("no program is configured".to_owned());
        };
        let command = Command::new(program, directory)
            .args(args)
            .input(prompt.as_bytes())
            .kill_group_on_parent_death();
        let limits = OutputLimits { time: Some(self.timeout), bytes: 256 << 10 };
        let output = command.output_async(limits).await.map_err(|e| e.to_string())?;
        if output.timed_out {
            return Err(format!("timed out after {} s", self.timeout.as_secs()));
        }
        if !output.ok() {
            let stderr = output.error_text();
            let first_line =
                stderr.lines().next().unwrap_or("it failed").trim_start_matches("error: ");
            return Err(head(first_line, 300).to_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// The trailers that studio writes, which serve as evidence.
const TRAILERS: &[&str] = &["requirement:", "session:", "task:", "co-authored-by:"];

/// Removes lines that look like studio's trailers from a model's text: the model has read an
/// agent's work. The subject is unchanged.
fn without_trailers(text: &str) -> String {
    let is_ours = |line: &str| {
        let line = line.trim_start().to_ascii_lowercase();
        TRAILERS.iter().any(|trailer| line.starts_with(trailer))
    };
    let lines = text.split_inclusive('\n').enumerate();
    lines.filter(|(n, line)| *n == 0 || !is_ours(line)).map(|(_, line)| line).collect()
}

/// Returns a message that a model wrote.
pub(crate) fn from_model(record: &SessionRecord, text: &str) -> WrittenMessage {
    let message = with_trailers(record, without_trailers(text));
    WrittenMessage { message, author: "model", note: None }
}

/// Returns a message that the user typed.
pub(crate) fn from_user(record: &SessionRecord, text: &str) -> WrittenMessage {
    WrittenMessage { message: with_trailers(record, text.to_owned()), author: "user", note: None }
}

/// Returns the prompt, with secrets in task and diff redacted.
fn prompt(subject: &Subject<'_>) -> String {
    let diff = match subject.patch.len() <= MAX_DIFF_BYTES {
        true => subject.patch.to_owned(),
        false => format!(
            "(too large to show; its beginning)\n{}",
            head(subject.patch, MAX_DIFF_BYTES / 2)
        ),
    };
    format!(
        "Write the commit message for the change below.\n{INSTRUCTIONS}\n\n\
         The task was:\n{}\n\nThe changed files:\n{}\n\nThe difference:\n{}\n",
        redact(head(&subject.record.task, 4000)),
        redact(head(subject.stat, 8000)),
        redact(&diff),
    )
}

fn with_trailers(record: &SessionRecord, text: String) -> CommitMessage {
    let task = printable(record.task.trim().lines().next().unwrap_or_default());
    let agent = printable(&record.agent);
    let mut trailers = vec![
        ("Task".to_owned(), head(&task, 200).to_owned()),
        ("Session".to_owned(), record.id.to_string()),
    ];
    for id in &record.plan_ref.requirements {
        let id = printable(id).split_whitespace().collect::<Vec<_>>().join(" ");
        trailers.push(("Requirement".to_owned(), id));
    }
    trailers.push(("Co-authored-by".to_owned(), format!("{agent} <{agent}@studio.invalid>")));
    CommitMessage { text, trailers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_cannot_write_trailers_of_studio() {
        let text =
            "Session: keep it\n\nLong words that wrap into\nRequirement: R9\n  task: x\nEnd\n";
        assert_eq!(without_trailers(text), "Session: keep it\n\nLong words that wrap into\nEnd\n");
    }
}
