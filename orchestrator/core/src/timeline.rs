//! What happened in a session, in words: one text for each message, tool call, check, answer and
//! change of state, for timelines and logs. It has no terminal in it.

use std::collections::BTreeMap;

use base::event::{Event, EventKind, Usage};
use base::text::{count, head, size, tail};
use serde_json::Value;

use crate::coach_rounds;
use crate::session::journal::{
    CheckResult, JournalEntry, JournalLine, SessionOutcome, TURN_CANCELLED, same_lines_text,
    turn_end_text,
};
use crate::session::record::RunLimits;
use crate::session::state::rate_limit_reason;

/// Maximum number of bytes of a tool call's arguments, and of its error.
const MAX_CALL_BYTES: usize = 300;
/// Maximum number of bytes of a failed check's output.
const MAX_CHECK_BYTES: usize = 1500;
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
        let described = match &line.entry {
            JournalEntry::Event { event } => return self.add_event(&line.time, event),
            JournalEntry::Turn { n: 1, text, .. } => vec![(TimelineKind::User, text.clone())],
            JournalEntry::Worktree | JournalEntry::Agent { .. } | JournalEntry::Turn { .. } => {
                return;
            }
            entry => describe(entry),
        };
        for (kind, mut text) in described {
            if let Some(cost) = self.cost().filter(|_| kind == TimelineKind::Turn) {
                text.push_str(&format!(", {cost} so far"));
            }
            self.push(&line.time, kind, text);
        }
        if let JournalEntry::Exit { .. } = &line.entry {
            self.open_calls.clear();
        }
    }

    fn add_event(&mut self, time: &str, event: &Value) {
        let Ok(event) = serde_json::from_value::<Event>(event.clone()) else { return };
        match event.what {
            EventKind::ToolStart { id, name, args } => {
                let index =
                    self.push(time, TimelineKind::Call { ok: None }, call_text(&name, &args));
                self.open_calls.insert(id, index);
            }
            EventKind::ToolEnd { id, name, ok, text, ms, .. } => {
                let open = self.open_calls.remove(&id);
                let index =
                    open.unwrap_or_else(|| self.push(time, TimelineKind::Call { ok: None }, name));
                let suffix = match ok {
                    true => format!(" ({})", duration(ms)),
                    false => format!(" failed: {}", one_line(&text)),
                };
                if let Some(entry) = self.entries.get_mut(index) {
                    entry.kind = TimelineKind::Call { ok: Some(ok) };
                    entry.text.push_str(&suffix);
                }
            }
            EventKind::Usage { usage } => {
                self.usage = Some(self.usage.unwrap_or_default().plus(usage));
            }
            other => {
                if let Some((kind, text)) = describe_event(&other) {
                    self.push(time, kind, text);
                }
            }
        }
    }

    /// Adds an entry and returns its index.
    fn push(&mut self, time: &str, kind: TimelineKind, text: String) -> usize {
        self.entries.push(TimelineEntry { time: time.to_owned(), kind, text });
        self.entries.len() - 1
    }

    fn cost(&self) -> Option<String> {
        self.usage.as_ref().and_then(Usage::cost_text)
    }
}

/// Describes an entry of a journal other than an event: a text for each result of checks, one or
/// none for the others.
pub fn describe(entry: &JournalEntry) -> Vec<(TimelineKind, String)> {
    use TimelineKind as Kind;
    let described = match entry {
        JournalEntry::Event { .. } => return Vec::new(),
        JournalEntry::Checked { results } => {
            let described =
                |result: &CheckResult| (Kind::Check { ok: result.ok }, check_text(result));
            return results.iter().map(described).collect();
        }
        JournalEntry::Queued { prompt: Some(text) } | JournalEntry::Sent { text } => {
            (Kind::User, text.clone())
        }
        JournalEntry::Queued { prompt: None } => (Kind::State, "queued".to_owned()),
        JournalEntry::Spawned { .. } => (Kind::State, "starting".to_owned()),
        JournalEntry::Worktree => (Kind::State, "the worktree is ready".to_owned()),
        JournalEntry::Agent { .. } => (Kind::State, "the agent runs".to_owned()),
        JournalEntry::Turn { n, .. } => (Kind::State, format!("turn {n}")),
        JournalEntry::Asked { n, what, .. } => (Kind::Request, format!("{n}: {what}")),
        JournalEntry::Answered { n, allow, always, by, why } => {
            let word = if *allow { "allowed" } else { "denied" };
            let scope = if *always { "always " } else { "" };
            let reason = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            (Kind::Answer { allow: *allow }, format!("{n}: {scope}{word} by {by}{reason}"))
        }
        JournalEntry::Settings { limits, attended } => (Kind::State, settings(limits, *attended)),
        JournalEntry::TurnEnd { n, why } => {
            let kind = match why.as_deref() {
                None | Some(TURN_CANCELLED) => Kind::Turn,
                Some(_) => Kind::Error,
            };
            (kind, turn_end_text(*n, why.as_deref()))
        }
        JournalEntry::Work(work) => (
            Kind::Work,
            format!(
                "{}, {}, +{} -{}",
                count(work.commits, "commit"),
                count(work.files_changed, "changed file"),
                work.insertions,
                work.deletions
            ),
        ),
        JournalEntry::Setup { line } => (Kind::State, format!("setup: {line}")),
        JournalEntry::Checking => (Kind::State, "checks started".to_owned()),
        JournalEntry::Checks { commands } if commands.is_empty() => {
            (Kind::User, "no checks".to_owned())
        }
        JournalEntry::Checks { commands } => {
            let all: Vec<String> = commands.iter().map(|line| format!("`{line}`")).collect();
            (Kind::User, format!("set the checks to {}", all.join(", ")))
        }
        JournalEntry::StopRequested { why: None } => (Kind::User, "stop".to_owned()),
        JournalEntry::StopRequested { why: Some(why) } => {
            (Kind::Note, format!("stop requested: {why}"))
        }
        JournalEntry::Limit { what } => (Kind::Note, format!("limit reached: {what}")),
        JournalEntry::SameLines { id, files } => (Kind::Note, same_lines_text(id, files)),
        JournalEntry::Note { text } => (Kind::Note, text.clone()),
        JournalEntry::Parked { until, why } => {
            (Kind::Note, format!("{}: {why}", rate_limit_reason(until)))
        }
        JournalEntry::Stalled { why } => (Kind::Note, format!("stalled: {why}")),
        JournalEntry::StallEnded => (Kind::Note, "the agent makes progress again".to_owned()),
        JournalEntry::Unparked => (Kind::Note, "the rate limit has ended".to_owned()),
        JournalEntry::Exit { outcome, .. } => (Kind::State, outcome_text(outcome)),
    };
    vec![described]
}

/// Describes an event of an agent; `None` for those without a text of their own, such as the end
/// of a tool call.
pub fn describe_event(event: &EventKind) -> Option<(TimelineKind, String)> {
    use TimelineKind as Kind;
    match event {
        EventKind::Text { text } => {
            Some((Kind::Agent, text.trim().to_owned())).filter(|(_, text)| !text.is_empty())
        }
        EventKind::ToolStart { name, args, .. } => {
            Some((Kind::Call { ok: None }, call_text(name, args)))
        }
        EventKind::Retry { why, after_ms, .. } => {
            Some((Kind::Note, format!("retrying in {}: {why}", duration(*after_ms))))
        }
        EventKind::Notice { text, .. } => Some((Kind::Note, text.clone())),
        EventKind::Error { text, .. } => Some((Kind::Error, text.clone())),
        EventKind::Plan { plan } => Some((Kind::State, coach_rounds::describe(plan)?)),
        EventKind::Compacted { .. } => Some((Kind::Note, "the context was compacted".to_owned())),
        EventKind::Start { .. }
        | EventKind::Turn { .. }
        | EventKind::Reasoning { .. }
        | EventKind::ToolOutput { .. }
        | EventKind::ToolEnd { .. }
        | EventKind::Usage { .. }
        | EventKind::Context { .. }
        | EventKind::Todo { .. }
        | EventKind::Thinned { .. }
        | EventKind::Ask { .. }
        | EventKind::End { .. } => None,
    }
}

/// Describes the settings that the user changed.
fn settings(limits: &RunLimits, attended: Option<bool>) -> String {
    let parts = [
        limits.usd.map(|usd| format!("a budget of ${usd}")),
        limits.tokens.map(|n| count(n, "token")),
        limits.turns.map(|n| count(u64::from(n), "turn")),
        limits.seconds.map(|n| count(n, "second")),
        limits.memory_bytes.map(|bytes| format!("{} of memory", size(bytes))),
        limits.processes.map(|n| format!("{n} processes and threads")),
        limits.disk_bytes.map(|bytes| format!("{} on disk", size(bytes))),
        attended.filter(|attended| *attended).map(|_| "permission requests stay open".to_owned()),
    ];
    format!("from now on: {}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

fn outcome_text(outcome: &SessionOutcome) -> String {
    match outcome {
        SessionOutcome::Ready => "ready".to_owned(),
        SessionOutcome::Failed { why } => format!("failed: {why}"),
        SessionOutcome::Empty => "empty".to_owned(),
        SessionOutcome::Stopped => "stopped".to_owned(),
    }
}

/// Describes the result of a check, with the end of its output if it failed.
pub fn check_text(result: &CheckResult) -> String {
    if result.ok {
        return format!("check `{}` passed in {}", result.command, duration(result.ms));
    }
    let base_note = result.fails_on.as_ref().map(|it| format!("; it also fails on `{it}`"));
    let head = result.failure() + &base_note.unwrap_or_default();
    match tail(result.tail.trim_end(), MAX_CHECK_BYTES) {
        "" => head,
        output => format!("{head}\n{output}"),
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
            line(JournalEntry::Settings {
                limits: RunLimits { turns: Some(9), ..RunLimits::default() },
                attended: None,
            }),
            line(JournalEntry::Checks { commands: vec!["make".to_owned()] }),
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
                (TimelineKind::State, "from now on: 9 turns"),
                (TimelineKind::User, "set the checks to `make`"),
                (TimelineKind::Answer { allow: false }, "2: denied by studio: no terminal"),
            ]
        );
    }
}
