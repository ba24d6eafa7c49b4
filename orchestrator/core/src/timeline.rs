//! The timeline of a session: what happened, one entry for each message, tool call, check, answer
//! and change of state. It has no terminal in it.

use std::collections::BTreeMap;

use base::event::{Event, EventKind, Usage};
use base::text::{count, head};
use serde_json::Value;

use crate::coach_rounds;
use crate::session::journal::{
    CheckResult, JournalEntry, JournalLine, SessionOutcome, TURN_CANCELLED, same_lines_text,
    turn_end_text,
};
use crate::session::state::rate_limit_reason;

/// Maximum number of bytes of a tool call's arguments, and of its error.
const MAX_CALL_BYTES: usize = 300;
/// Arguments of tool calls that say most about the call, the most important first.
const MAIN_ARGUMENTS: [&str; 8] =
    ["command", "file_path", "path", "pattern", "query", "url", "title", "description"];

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineKind {
    /// A message of the user to the agent.
    User,
    /// A message of the agent.
    Agent,
    /// A tool call; `None` while it runs.
    Call {
        /// Whether it succeeded.
        ok: Option<bool>,
    },
    /// A permission request.
    Request,
    /// The answer to a permission request.
    Answer {
        /// Whether it is allowed.
        allow: bool,
    },
    /// The result of a check.
    Check {
        /// Whether it passed.
        ok: bool,
    },
    /// A change of state.
    State,
    /// The collected work.
    Work,
    /// The end of a turn, with the cost so far.
    Turn,
    /// A note or a warning.
    Note,
    /// An error.
    Error,
}

/// One entry. Its text comes from an agent: a caller that displays it must escape it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineEntry {
    /// The time, RFC 3339 in UTC.
    pub time: String,
    /// The kind.
    pub kind: TimelineKind,
    /// The text; messages have several lines.
    pub text: String,
}

/// The entries of a session, in order.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    entries: Vec<TimelineEntry>,
    /// The entries of tool calls that run, by the call's id.
    open_calls: BTreeMap<String, usize>,
    usage: Option<Usage>,
}

impl Timeline {
    /// Returns the entries, oldest first.
    pub fn entries(&self) -> &[TimelineEntry] {
        &self.entries
    }

    /// Adds lines of a journal, in order.
    pub fn add_lines<'l>(&mut self, lines: impl IntoIterator<Item = &'l JournalLine>) {
        for line in lines {
            self.add_line(line);
        }
    }

    fn add_line(&mut self, line: &JournalLine) {
        use TimelineKind as Kind;
        let mut push = |kind: Kind, text: String| {
            self.entries.push(TimelineEntry { time: line.time.clone(), kind, text });
        };
        match &line.entry {
            JournalEntry::Event { event } => self.add_event(&line.time, event),
            JournalEntry::Queued { prompt: Some(text) } | JournalEntry::Sent { text } => {
                push(Kind::User, text.clone());
            }
            JournalEntry::Queued { prompt: None } => push(Kind::State, "queued".to_owned()),
            JournalEntry::Spawned { .. } => push(Kind::State, "starting".to_owned()),
            JournalEntry::Turn { n, text, .. } if *n == 1 => push(Kind::User, text.clone()),
            JournalEntry::Asked { n, what, .. } => push(Kind::Request, format!("{n}: {what}")),
            JournalEntry::Answered { n, allow, always, by, why } => {
                let word = if *allow { "allowed" } else { "denied" };
                let scope = if *always { "always " } else { "" };
                let reason = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                push(Kind::Answer { allow: *allow }, format!("{n} {scope}{word} by {by}{reason}"));
            }
            JournalEntry::TurnEnd { n, why } => {
                let cost = self.usage.as_ref().and_then(Usage::cost_text);
                let cost = cost.map(|cost| format!(", {cost} so far")).unwrap_or_default();
                let text = turn_end_text(*n, why.as_deref());
                match why.as_deref() {
                    None | Some(TURN_CANCELLED) => push(Kind::Turn, format!("{text}{cost}")),
                    Some(_) => push(Kind::Error, text),
                }
            }
            JournalEntry::Work(work) => push(
                Kind::Work,
                format!(
                    "{}, {}, +{} -{}",
                    count(work.files_changed, "file"),
                    count(work.commits, "commit"),
                    work.insertions,
                    work.deletions
                ),
            ),
            JournalEntry::Checking => push(Kind::State, "checking".to_owned()),
            JournalEntry::Checked { results } => {
                for result in results {
                    push(Kind::Check { ok: result.ok }, check_text(result));
                }
            }
            JournalEntry::StopRequested { why: None } => push(Kind::User, "stop".to_owned()),
            JournalEntry::StopRequested { why: Some(why) } => {
                push(Kind::Note, format!("stop: {why}"))
            }
            JournalEntry::Limit { what } => push(Kind::Note, format!("limit reached: {what}")),
            JournalEntry::SameLines { id, files } => push(Kind::Note, same_lines_text(id, files)),
            JournalEntry::Note { text } => push(Kind::Note, text.clone()),
            JournalEntry::Parked { until, why } => {
                push(Kind::Note, format!("{}: {why}", rate_limit_reason(until)));
            }
            JournalEntry::Stalled { why } => push(Kind::Note, format!("stalled: {why}")),
            JournalEntry::StallEnded => push(Kind::Note, "progress again".to_owned()),
            JournalEntry::Unparked => push(Kind::Note, "the rate limit has ended".to_owned()),
            JournalEntry::Exit { outcome, .. } => {
                push(Kind::State, outcome_text(outcome));
                self.open_calls.clear();
            }
            JournalEntry::Worktree
            | JournalEntry::Agent { .. }
            | JournalEntry::Turn { .. }
            | JournalEntry::Settings { .. }
            | JournalEntry::Checks { .. } => {}
        }
    }

    fn add_event(&mut self, time: &str, event: &Value) {
        use TimelineKind as Kind;
        let Ok(event) = serde_json::from_value::<Event>(event.clone()) else { return };
        let entries = &mut self.entries;
        let mut push = |kind: Kind, text: String| {
            entries.push(TimelineEntry { time: time.to_owned(), kind, text });
            entries.len() - 1
        };
        match event.what {
            EventKind::Text { text } if !text.trim().is_empty() => {
                push(Kind::Agent, text.trim().to_owned());
            }
            EventKind::ToolStart { id, name, args } => {
                let index = push(Kind::Call { ok: None }, call_text(&name, &args));
                self.open_calls.insert(id, index);
            }
            EventKind::ToolEnd { id, name, ok, text, ms, .. } => {
                let open = self.open_calls.remove(&id);
                let index = open.unwrap_or_else(|| push(Kind::Call { ok: None }, name));
                let suffix = match ok {
                    true => format!(" ({})", duration(ms)),
                    false => format!(" failed: {}", one_line(&text)),
                };
                if let Some(entry) = self.entries.get_mut(index) {
                    entry.kind = Kind::Call { ok: Some(ok) };
                    entry.text.push_str(&suffix);
                }
            }
            EventKind::Usage { usage } => {
                self.usage = Some(self.usage.unwrap_or_default().plus(usage));
            }
            EventKind::Retry { why, after_ms, .. } => {
                push(Kind::Note, format!("retrying in {}: {why}", duration(after_ms)));
            }
            EventKind::Notice { text, .. } => {
                push(Kind::Note, text);
            }
            EventKind::Error { text, .. } => {
                push(Kind::Error, text);
            }
            EventKind::Plan { plan } => {
                if let Some(text) = coach_rounds::describe(&plan) {
                    push(Kind::State, text);
                }
            }
            EventKind::Compacted { .. } => {
                push(Kind::Note, "the context was compacted".to_owned());
            }
            EventKind::Start { .. }
            | EventKind::Turn { .. }
            | EventKind::Text { .. }
            | EventKind::Reasoning { .. }
            | EventKind::ToolOutput { .. }
            | EventKind::Context { .. }
            | EventKind::Todo { .. }
            | EventKind::Thinned { .. }
            | EventKind::Ask { .. }
            | EventKind::End { .. } => {}
        }
    }
}

fn outcome_text(outcome: &SessionOutcome) -> String {
    match outcome {
        SessionOutcome::Ready => "ready".to_owned(),
        SessionOutcome::Failed { why } => format!("failed: {why}"),
        SessionOutcome::Empty => "empty".to_owned(),
        SessionOutcome::Stopped => "stopped".to_owned(),
    }
}

fn check_text(result: &CheckResult) -> String {
    match result.ok {
        true => format!("`{}` passed ({})", result.command, duration(result.ms)),
        false => {
            let tail = result.tail.trim_end();
            let tail = if tail.is_empty() { String::new() } else { format!("\n{tail}") };
            format!("{}{tail}", result.failure())
        }
    }
}

/// Describes a tool call in one line: its name and its main argument.
fn call_text(name: &str, args: &Value) -> String {
    let main = MAIN_ARGUMENTS.iter().find_map(|key| args.get(key)?.as_str());
    let arguments = match (main.or(args.as_str()), args) {
        (Some(text), _) => text.to_owned(),
        (None, Value::Null) => String::new(),
        (None, args) => args.to_string(),
    };
    let arguments = one_line(&arguments);
    // Some agents send the argument in the name of the call, or a part of its path.
    let file_name = arguments.rsplit('/').next().filter(|_| arguments.starts_with('/'));
    if name.contains(&arguments) || file_name.is_some_and(|file| name.contains(file)) {
        return one_line(name);
    }
    format!("{name} {arguments}")
}

fn one_line(text: &str) -> String {
    let words = head(text, MAX_CALL_BYTES).split_whitespace().collect::<Vec<_>>().join(" ");
    if text.len() > MAX_CALL_BYTES { format!("{words}…") } else { words }
}

/// Formats a duration: `250 ms`, `3.5 s`.
fn duration(ms: u64) -> String {
    match ms {
        0..=999 => format!("{ms} ms"),
        _ => format!("{:.1} s", ms as f64 / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_in_the_name_of_a_call_is_not_repeated() {
        let text = |name: &str, args| call_text(name, &args);
        let shell = "Shell: git log (Show the log)";
        assert_eq!(text(shell, serde_json::json!({"command": "git log"})), shell);
        let read = "ReadFile: README.md";
        assert_eq!(text(read, serde_json::json!({"file_path": "/w/README.md"})), read);
        assert_eq!(text("Bash", serde_json::json!({"command": "make"})), "Bash make");
        assert_eq!(text("list", Value::Null), "list");
    }

    #[test]
    fn calls_are_one_line_and_turns_end_with_the_cost() {
        let line = |entry| JournalLine { time: "2026-01-02T10:00:00Z".to_owned(), entry };
        let event = |text: &str| {
            let stamp = r#""seq":1,"time":"2026-01-02T10:00:00Z","type":"#;
            let text = text.replacen('{', &format!("{{{stamp}"), 1);
            line(JournalEntry::Event { event: serde_json::from_str(&text).unwrap() })
        };
        let mut timeline = Timeline::default();
        timeline.add_lines(&[
            event(r#"{"tool_start","id":"1","name":"shell","args":{"cwd":"x","command":"make\n  test"}}"#),
            event(r#"{"tool_start","id":"2","name":"read","args":{"lines":3}}"#),
            event(r#"{"text","text":"  \n "}"#),
            event(r#"{"tool_end","id":"2","name":"read","ok":false,"text":"no such\nfile","ms":5}"#),
        ]);
        // A later part of the journal completes the entry.
        timeline.add_lines(&[
            event(r#"{"tool_end","id":"1","name":"shell","ok":true,"text":"","ms":2500}"#),
            event(
                r#"{"usage","input":9,"output":1,"cache_read":0,"cache_write":0,"cost_usd":0.5}"#,
            ),
            line(JournalEntry::TurnEnd { n: 1, why: None }),
            line(JournalEntry::Answered {
                n: 2,
                allow: false,
                always: false,
                by: "studio".to_owned(),
                why: Some("no terminal".to_owned()),
            }),
        ]);
        let shown: Vec<(TimelineKind, &str)> =
            timeline.entries().iter().map(|entry| (entry.kind, entry.text.as_str())).collect();
        assert_eq!(
            shown,
            [
                (TimelineKind::Call { ok: Some(true) }, "shell make test (2.5 s)"),
                (TimelineKind::Call { ok: Some(false) }, "read {\"lines\":3} failed: no such file"),
                (TimelineKind::Turn, "turn 1 ended, $0.5000 so far"),
                (TimelineKind::Answer { allow: false }, "2 denied by studio: no terminal"),
            ]
        );
    }
}
