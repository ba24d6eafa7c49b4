//! Commit messages: written by a model through `g3 complete`, checked, and replaced by a plain one
//! when the model fails.

use std::path::Path;
use std::time::Duration;

use base::process::{Job, Limits};
use base::text::{head, printable};

use crate::git::merge::Message;
use crate::redact::redacted;
use crate::session::record::Record;

/// How long a model may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// Bytes of a diff that are sent whole; a larger one is summed up by file.
const DIFF: usize = 24_000;
/// Characters of a subject, and columns of a body.
const COLUMNS: usize = 72;
/// Characters of an answer that can be a commit message.
const LONGEST: usize = 4000;

/// A message and who wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The message, trailers included.
    pub message: Message,
    /// `model`, `plain` or `user`.
    pub by: &'static str,
    /// Why no model wrote it.
    pub note: Option<String>,
}

/// What lands, as far as a message is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The session.
    pub record: &'a Record,
    /// One line per file.
    pub stat: &'a str,
    /// The whole difference.
    pub patch: &'a str,
}

/// How to ask a model.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Program and arguments, `g3 complete`.
    pub command: Vec<String>,
}

impl Writer {
    /// Asks for a message; a plain one takes its place when the model fails.
    pub fn write(&self, subject: &Subject<'_>, directory: &Path) -> Written {
        let asked = self.ask(&prompt(subject), directory).and_then(|answer| read(&answer));
        match asked {
            Ok(text) => Written { message: signed(subject.record, text), by: "model", note: None },
            Err(why) => Written {
                message: signed(subject.record, plain(&subject.record.task)),
                by: "plain",
                note: Some(format!("no model wrote the commit message: {why}")),
            },
        }
    }

    fn ask(&self, prompt: &str, directory: &Path) -> Result<String, String> {
        let Some((program, args)) = self.command.split_first() else {
            return Err("there is no program to ask".to_owned());
        };
        let job = Job::new(program, directory).args(args).input(prompt.as_bytes());
        let limits = Limits { time: Some(PATIENCE), bytes: 256 << 10 };
        let output = job.output(limits).map_err(|e| e.to_string())?;
        if output.timed_out {
            return Err(format!("it did not answer within {} s", PATIENCE.as_secs()));
        }
        if !output.ok() {
            let said = output.error_text();
            let first = said.lines().next().unwrap_or("it failed").trim_start_matches("error: ");
            return Err(head(first, 300).to_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A message that the user typed.
pub fn by_user(record: &Record, text: &str) -> Written {
    Written { message: signed(record, text.to_owned()), by: "user", note: None }
}

/// The question. Secrets in task and diff are left out.
fn prompt(subject: &Subject<'_>) -> String {
    let diff = match subject.patch.len() <= DIFF {
        true => subject.patch.to_owned(),
        false => format!("(too large to show; its beginning)\n{}", head(subject.patch, DIFF / 2)),
    };
    format!(
        "Write the commit message for the change below.\n\
         The first line is the subject: imperative, at most {COLUMNS} characters, no full stop.\n\
         Then an empty line, then a short body that says why, wrapped at {COLUMNS} columns.\n\
         Answer with the commit message and nothing else: no quotes, no code fences, no trailers.\n\n\
         The task was:\n{}\n\nThe changed files:\n{}\n\nThe difference:\n{}\n",
        redacted(head(&subject.record.task, 4000)),
        redacted(head(subject.stat, 8000)),
        redacted(&diff),
    )
}

/// Reads an answer as a commit message, or says why it is none.
fn read(answer: &str) -> Result<String, String> {
    if answer.chars().count() > LONGEST {
        return Err(format!("its answer has more than {LONGEST} characters"));
    }
    let answer = printable(answer);
    let answer = between(&answer, "{{COMMIT_SUMMARY}}", "{{/COMMIT_SUMMARY}}");
    let lines: Vec<&str> = answer
        .trim()
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.starts_with("```") && !is_trailer(line))
        .skip_while(|line| line.is_empty())
        .collect();
    let Some((first, rest)) = lines.split_first() else {
        return Err("its answer is empty".to_owned());
    };
    let first = first.trim().trim_matches(['"', '`', '*', '#', ' ']).trim_end_matches('.');
    let words = first.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic));
    if words.count() < 2 || first.starts_with(['{', '<', '[']) {
        return Err("its answer is no commit message".to_owned());
    }
    let (subject, more) = subject(first);
    let body = wrapped(&format!("{more}\n{}", rest.join("\n")));
    Ok(if body.is_empty() { subject } else { format!("{subject}\n\n{body}") })
}

fn between<'t>(text: &'t str, open: &str, close: &str) -> &'t str {
    let inner = text.split_once(open).map_or(text, |(_, after)| after);
    inner.split_once(close).map_or(inner, |(before, _)| before)
}

/// Trailers are studio's to write.
fn is_trailer(line: &str) -> bool {
    let names = ["co-authored-by:", "signed-off-by:", "task:", "session:", "requirement:"];
    let line = line.trim_start().to_lowercase();
    names.iter().any(|name| line.starts_with(name))
}

/// A line that fits a subject, and the whole line for the body when it was cut.
fn subject(line: &str) -> (String, String) {
    if line.chars().count() <= COLUMNS {
        return (line.to_owned(), String::new());
    }
    let mut kept = String::new();
    for word in line.split_whitespace() {
        if kept.chars().count() + word.chars().count() + 2 > COLUMNS {
            break;
        }
        if !kept.is_empty() {
            kept.push(' ');
        }
        kept.push_str(word);
    }
    if kept.is_empty() {
        kept = line.chars().take(COLUMNS - 1).collect();
    }
    (format!("{kept}…"), line.to_owned())
}

/// Paragraphs and list items, wrapped.
fn wrapped(text: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    for line in text.trim().lines() {
        let item = line.trim_start().starts_with(['-', '*']) || line.starts_with("  ");
        let joins = !item && !line.is_empty() && out.last().is_some_and(|last| !last.is_empty());
        let words = match joins {
            true => format!("{} {line}", out.pop().unwrap_or_default()),
            false => line.to_owned(),
        };
        out.extend(broken(&words));
    }
    out.join("\n")
}

fn broken(line: &str) -> Vec<String> {
    let indent = if line.trim_start().starts_with(['-', '*']) { "  " } else { "" };
    let mut lines = vec![String::new()];
    for word in line.split_whitespace() {
        let last = lines.last_mut().expect("there is always a line");
        if !last.trim().is_empty() && last.chars().count() + word.chars().count() + 1 > COLUMNS {
            lines.push(format!("{indent}{word}"));
        } else {
            if !last.trim().is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

/// A message from the task alone.
fn plain(task: &str) -> String {
    let task = printable(task);
    let mut lines = task.trim().lines();
    let first = lines.next().unwrap_or("Work of an agent").trim().trim_end_matches('.');
    let mut letters = first.chars();
    let first: String =
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    let (subject, more) = subject(&first);
    let rest: String = lines.take(40).collect::<Vec<_>>().join("\n");
    let body = wrapped(head(format!("{more}\n{rest}").trim(), LONGEST));
    if body.is_empty() { subject } else { format!("{subject}\n\n{body}") }
}

fn signed(record: &Record, text: String) -> Message {
    let task = printable(record.task.trim().lines().next().unwrap_or_default());
    let agent = printable(&record.agent);
    let mut trailers = vec![
        ("Task".to_owned(), head(&task, 200).to_owned()),
        ("Session".to_owned(), record.id.to_string()),
    ];
    for id in &record.part.requirements {
        let id = printable(id).split_whitespace().collect::<Vec<_>>().join(" ");
        trailers.push(("Requirement".to_owned(), id));
    }
    trailers.push(("Co-authored-by".to_owned(), format!("{agent} <{agent}@studio.invalid>")));
    Message { text, trailers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_becomes_subject_and_wrapped_body() {
        let body = "why ".repeat(40);
        let text =
            read(&format!("```\n\"Add a parser.\"\n\n{body}\nCo-authored-by: x\n```")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines[0], lines[1]), ("Add a parser", ""));
        assert!(lines.iter().all(|line| line.chars().count() <= 72), "{text}");
        assert!(!text.contains("Co-authored-by"));
        assert_eq!(
            read("{{COMMIT_SUMMARY}}Mend it now{{/COMMIT_SUMMARY}} ok").unwrap(),
            "Mend it now"
        );
    }

    #[test]
    fn a_long_subject_is_cut_and_said_in_the_body() {
        let long = format!("Add {}", "words and ".repeat(10));
        let text = read(&long).unwrap();
        assert!(text.lines().next().unwrap().chars().count() <= 72, "{text}");
        assert!(text.contains(long.trim_end().split(' ').next_back().unwrap()));
    }

    #[test]
    fn nonsense_is_no_message() {
        for bad in ["", " \n ", "ok", "{\"a\": 1}", "```\n```", "12345", &"word ".repeat(2000)] {
            assert!(read(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn a_plain_message_comes_from_the_task() {
        assert_eq!(plain("fix the login."), "Fix the login");
        assert!(plain(&"x".repeat(300)).lines().next().unwrap().chars().count() <= 72);
        assert_eq!(plain("a b\nmore text"), "A b\n\nmore text");
    }
}
