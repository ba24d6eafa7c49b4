//! Formats the lines of a journal for display.

use base::event::{Event, EventKind};

use crate::report::table::first_lines;
use studio_core::coach_rounds;
use studio_core::session::journal::{JournalEntry, JournalLine};
use studio_core::timeline::{TimelineKind, describe, describe_event};

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
            other => {
                let described = describe(other).into_iter();
                described.map(|(kind, text)| shown(kind, &text)).collect::<Vec<_>>().join("\n")
            }
        };
        Some(timed(&line.time, &text)).filter(|_| !text.is_empty())
    }

    fn event(&mut self, event: &serde_json::Value) -> Option<String> {
        let kind = serde_json::from_value::<Event>(event.clone()).ok()?.what;
        if let EventKind::Plan { plan } = &kind {
            self.speaker = coach_rounds::speaker(plan).or(self.speaker);
            return coach_rounds::describe(plan);
        }
        let text = match &kind {
            EventKind::ToolEnd { name, ok: false, text, .. } => {
                format!("  {name} failed: {}", first_lines(text, 3))
            }
            other => describe_event(other).map(|(kind, text)| shown(kind, &text))?,
        };
        Some(self.speaker.map_or_else(|| text.clone(), |speaker| format!("{speaker}: {text}")))
    }
}

/// Formats a text as a part of the log.
fn shown(kind: TimelineKind, text: &str) -> String {
    let text = match kind {
        TimelineKind::User => &first_lines(text, 5),
        _ => text,
    };
    format!("{}{text}", prefix(kind))
}

/// Formats a text with its time.
pub(crate) fn timed(time: &str, text: &str) -> String {
    let clock = time.get(11..19).unwrap_or(time);
    base::text::printable_output(&format!("{clock}  {}", text.replace('\n', "\n          ")))
}

/// Formats the further text of a message.
pub(crate) fn continued(text: &str) -> String {
    base::text::printable_output(&format!("          {}", text.replace('\n', "\n          ")))
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

/// Returns what precedes a text of this kind: who says it, or what it is.
pub(crate) fn prefix(kind: TimelineKind) -> &'static str {
    match kind {
        TimelineKind::User => "you: ",
        TimelineKind::Call { .. } => "> ",
        TimelineKind::Request => "asks ",
        TimelineKind::Answer { .. } => "answer ",
        TimelineKind::Work => "work: ",
        TimelineKind::Note => "note: ",
        TimelineKind::Error => "error: ",
        TimelineKind::Agent
        | TimelineKind::Check { .. }
        | TimelineKind::State
        | TimelineKind::Turn => "",
    }
}
