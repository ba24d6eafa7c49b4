//! Formats the lines of a journal for display.

use base::event::{Event, EventKind};
use base::text::{count, size};
use serde_json::Value;

use crate::report::table::first_lines;
use studio_core::coach_rounds;
use studio_core::session::journal::{
    CheckResult, JournalEntry, JournalLine, SessionOutcome, same_lines_text, turn_end_text,
};
use studio_core::session::record::RunLimits;
use studio_core::session::state::rate_limit_reason;

/// Formats the lines of a journal in order.
#[derive(Debug, Default)]
pub(crate) struct JournalReader {
    /// The current speaker, if player and coach take turns.
    speaker: Option<&'static str>,
    /// Whether the start of the agent was shown: an agent may report its conversation later.
    agent_runs: bool,
}

impl JournalReader {
    /// Returns one line for display; `None` if it is not shown.
    pub(crate) fn text(&mut self, line: &JournalLine) -> Option<String> {
        if let JournalEntry::Turn { .. } = line.entry {
            self.speaker = None;
        }
        if let JournalEntry::Spawned { .. } = line.entry {
            self.agent_runs = false;
        }
        let text = match &line.entry {
            JournalEntry::Agent { .. } if std::mem::replace(&mut self.agent_runs, true) => {
                return None;
            }
            JournalEntry::Event { event } => self.event(event)?,
            other => entry_text(other)?,
        };
        Some(timed(&line.time, &text))
    }

    fn event(&mut self, event: &serde_json::Value) -> Option<String> {
        let kind = serde_json::from_value::<Event>(event.clone()).ok()?.what;
        if let EventKind::Plan { plan } = &kind {
            self.speaker = coach_rounds::speaker(plan).or(self.speaker);
            return coach_rounds::describe(plan);
        }
        let text = event_text(kind)?;
        Some(self.speaker.map_or_else(|| text.clone(), |speaker| format!("{speaker}: {text}")))
    }
}

/// Formats a text with its time.
pub(crate) fn timed(time: &str, text: &str) -> String {
    let clock = time.get(11..19).unwrap_or(time);
    base::text::printable(&format!("{clock}  {}", text.replace('\n', "\n          ")))
}

/// Formats the further text of a message.
pub(crate) fn continued(text: &str) -> String {
    base::text::printable(&format!("          {}", text.replace('\n', "\n          ")))
}

/// Formats a line of a program's output during its turn.
pub(crate) fn output(line: &str) -> String {
    format!("          | {}", base::text::printable_output(line))
}

/// Returns the message of the agent that a line contains.
pub(crate) fn message_text(line: &JournalLine) -> Option<&str> {
    match &line.entry {
        JournalEntry::Event { event } if event["type"] == "text" => {
            event["text"].as_str().map(str::trim)
        }
        _ => None,
    }
}

fn entry_text(entry: &JournalEntry) -> Option<String> {
    Some(match entry {
        JournalEntry::Queued { prompt: None } => "queued".to_owned(),
        JournalEntry::Queued { prompt: Some(text) } | JournalEntry::Sent { text } => {
            format!("you: {}", first_lines(text, 5))
        }
        JournalEntry::Spawned { .. } => "starting".to_owned(),
        JournalEntry::Worktree => "the worktree is ready".to_owned(),
        JournalEntry::Agent { .. } => "the agent runs".to_owned(),
        JournalEntry::Turn { n, .. } => format!("turn {n}"),
        JournalEntry::Event { .. } => return None,
        JournalEntry::Asked { n, what, .. } => format!("asks {n}: {what}"),
        JournalEntry::Answered { n, allow, always, by, why } => {
            let word = if *allow { "allowed" } else { "denied" };
            let scope = if *always { "always " } else { "" };
            let suffix = why.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            format!("answer {n}: {scope}{word} by {by}{suffix}")
        }
        JournalEntry::Settings { limits, attended } => settings(limits, *attended),
        JournalEntry::TurnEnd { n, why } => turn_end_text(*n, why.as_deref()),
        JournalEntry::Work(work) => format!(
            "work: {}, {}, +{} -{}",
            count(work.commits, "commit"),
            count(work.files_changed, "changed file"),
            work.insertions,
            work.deletions
        ),
        JournalEntry::Checking => "checks started".to_owned(),
        JournalEntry::Checked { results } if results.is_empty() => return None,
        JournalEntry::Checked { results } => {
            results.iter().map(check).collect::<Vec<_>>().join("\n")
        }
        JournalEntry::Checks { commands } if commands.is_empty() => "you: no checks".to_owned(),
        JournalEntry::Checks { commands } => {
            let all: Vec<String> = commands.iter().map(|line| format!("`{line}`")).collect();
            format!("you: set the checks to {}", all.join(", "))
        }
        JournalEntry::StopRequested { why: None } => "stop requested".to_owned(),
        JournalEntry::StopRequested { why: Some(why) } => format!("stop requested: {why}"),
        JournalEntry::Limit { what } => format!("limit reached: {what}"),
        JournalEntry::SameLines { id, files } => same_lines_text(id, files),
        JournalEntry::Note { text } => format!("note: {text}"),
        JournalEntry::Parked { until, why } => {
            format!("{}: {why}", rate_limit_reason(until))
        }
        JournalEntry::Stalled { why } => format!("stalled: {why}"),
        JournalEntry::StallEnded => "the agent makes progress again".to_owned(),
        JournalEntry::Unparked => "the rate limit has ended".to_owned(),
        JournalEntry::Exit { outcome: SessionOutcome::Failed { why }, .. } => {
            format!("failed: {why}")
        }
        JournalEntry::Exit { outcome: SessionOutcome::Ready, .. } => "ready".to_owned(),
        JournalEntry::Exit { outcome: SessionOutcome::Empty, .. } => "empty".to_owned(),
        JournalEntry::Exit { outcome: SessionOutcome::Stopped, .. } => "stopped".to_owned(),
    })
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

/// Describes the result of a check, with the end of its output if it failed.
pub(crate) fn check(result: &CheckResult) -> String {
    if result.ok {
        return format!("check `{}` passed in {} ms", result.command, result.ms);
    }
    let tail = base::text::tail(result.tail.trim_end(), 1500);
    let tail = base::text::printable_output(tail);
    let base_note = result.fails_on.as_ref().map(|it| format!("; it also fails on `{it}`"));
    let head = result.failure() + &base_note.unwrap_or_default();
    if tail.is_empty() {
        head
    } else {
        format!(
            "{head}
{tail}"
        )
    }
}

fn event_text(kind: EventKind) -> Option<String> {
    match kind {
        EventKind::Text { text } => Some(text.trim().to_owned()),
        EventKind::ToolStart { name, args: Value::Null, .. } => Some(format!("> {name}")),
        EventKind::ToolStart { name, args, .. } => {
            Some(format!("> {name} {}", base::text::head(&args.to_string(), 200)))
        }
        EventKind::ToolEnd { name, ok: false, text, .. } => {
            Some(format!("  {name} failed: {}", first_lines(&text, 3)))
        }
        EventKind::Error { text, .. } => Some(format!("error: {text}")),
        EventKind::Notice { text, .. } => Some(format!("notice: {text}")),
        EventKind::Retry { why, after_ms, .. } => {
            Some(format!("retrying in {}: {why}", seconds(after_ms)))
        }
        EventKind::Start { .. }
        | EventKind::Turn { .. }
        | EventKind::Reasoning { .. }
        | EventKind::ToolOutput { .. }
        | EventKind::ToolEnd { .. }
        | EventKind::Usage { .. }
        | EventKind::Context { .. }
        | EventKind::Todo { .. }
        | EventKind::Plan { .. }
        | EventKind::Thinned { .. }
        | EventKind::Compacted { .. }
        | EventKind::Ask { .. }
        | EventKind::End { .. } => None,
    }
}

/// Formats a duration: `250 ms`, `3.5 s`.
fn seconds(ms: u64) -> String {
    match ms {
        0..=999 => format!("{ms} ms"),
        _ => format!("{:.1} s", ms as f64 / 1e3),
    }
}
