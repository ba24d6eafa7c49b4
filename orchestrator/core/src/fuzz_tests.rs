//! Fuzz targets: journals, the output of agents, specifications of sandboxes, ids and text for
//! terminals.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use base::config::studio::AgentOutput;
use base::id::Id;
use serde_json::Value;

use crate::launch::AgentEvent;
use crate::launch::json_lines::{AgentConversation, JsonLinesReader};
use crate::sandbox::SandboxSpec;
use crate::session::journal::JournalLine;
use crate::session::summary::JournalSummary;
use crate::timeline::Timeline;

/// Lines of a journal are read or skipped, can be written and read again, and are summarized
/// whatever their order and numbers are.
pub fn journal(data: &[u8]) {
    let read = data.split(|byte| *byte == b'\n').map(serde_json::from_slice::<JournalLine>);
    let lines: Vec<JournalLine> = read.filter_map(Result::ok).collect();
    for line in &lines {
        let text = serde_json::to_string(line).unwrap();
        assert!(!text.contains('\n'));
        serde_json::from_str::<JournalLine>(&text).unwrap();
    }
    let summary = JournalSummary::of(&lines);
    assert!(summary.usage.is_none_or(|usage| usage.cost_usd.is_none_or(|cost| cost >= 0.0)));
    let mut timeline = Timeline::default();
    timeline.add_lines(&lines);
    assert!(timeline.entries().len() <= data.len());
}

const OUTPUTS: [AgentOutput; 6] = [
    AgentOutput::ClaudeJson,
    AgentOutput::QwenJson,
    AgentOutput::CodexJson,
    AgentOutput::CursorJson,
    AgentOutput::GeminiJson,
    AgentOutput::OpencodeJson,
];

/// The output of an agent gives events of limited size, however it is split; usages are not
/// negative, and the id of a conversation is safe as an argument.
pub fn agent_output(data: &[u8]) {
    let (selector, data) = data.split_first().unwrap_or((&0, &[]));
    let output = OUTPUTS[usize::from(*selector) % OUTPUTS.len()];
    let whole = convert(output, &[data]);
    let size = 1 + usize::from(*selector) / OUTPUTS.len();
    let chunks: Vec<&[u8]> = data.chunks(size).collect();
    let pieces = convert(output, &chunks);
    assert_eq!(describe(&pieces), describe(&whole));
    for event in whole {
        match event {
            AgentEvent::ConversationStarted(id) => {
                assert!(!id.starts_with('-') && !id.contains(['/', '\n', ' ', '\0']), "{id:?}");
            }
            AgentEvent::Event(event) => {
                assert!(event.to_string().len() <= 8 * data.len() + 4096);
                let cost = event["cost_usd"].as_f64();
                assert!(event["type"] != "usage" || cost.is_none_or(|cost| cost >= 0.0), "{event}");
            }
            AgentEvent::ConversationLost
            | AgentEvent::PermissionRequested(_)
            | AgentEvent::LimitReached(_)
            | AgentEvent::TurnEnded(_)
            | AgentEvent::Exited(_) => panic!("lines give no such event"),
        }
    }
}

fn convert(output: AgentOutput, chunks: &[&[u8]]) -> Vec<AgentEvent> {
    let mut reader = JsonLinesReader::new(output, AgentConversation::default()).unwrap();
    let mut events: Vec<AgentEvent> = chunks.iter().flat_map(|chunk| reader.push(chunk)).collect();
    events.extend(reader.finish().0);
    events
}

/// Returns the events without their times; messages that follow each other are joined.
fn describe(events: &[AgentEvent]) -> Vec<(String, String)> {
    let mut described: Vec<(String, String)> = Vec::new();
    for event in events {
        let AgentEvent::Event(event) = event else {
            described.push((String::new(), format!("{event:?}")));
            continue;
        };
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        let text = event["text"].as_str().unwrap_or_default();
        match described.last_mut().filter(|(last, _)| kind == "text" && *last == kind) {
            Some((_, joined)) => joined.push_str(text),
            None if kind == "text" => described.push((kind, text.to_owned())),
            None => {
                let mut event = event.clone();
                for key in ["time", "seq", "ms"] {
                    event.as_object_mut().and_then(|event| event.remove(key));
                }
                described.push((kind, event.to_string()));
            }
        }
    }
    described
}

/// The specification of a sandbox is read or refused, and means the same when it is written again.
pub fn sandbox_spec(data: &[u8]) {
    if let Ok(spec) = serde_json::from_slice::<SandboxSpec>(data) {
        let text = serde_json::to_string(&spec).unwrap();
        let again: SandboxSpec = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
}

/// An id made of any task, and every id that is accepted, is one safe part of a path, a ref and a
/// command line. Names of branches are refs that git accepts and reads as no option.
pub fn ids(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let made = Id::new(&text, [1, 2, 3, 4]);
    assert_eq!(Id::parse(made.as_str()).unwrap(), made);
    for id in [Some(made), Id::parse(&text).ok()].into_iter().flatten() {
        let is_safe = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(id.as_str().chars().all(is_safe) && !id.as_str().starts_with('-'), "{id}");
        assert!((1..=64).contains(&id.as_str().len()), "{id}");
        assert!(id.as_str().ends_with(base::id::tail(id.as_str())));
    }
    if let Ok(branch) = studio_git::names::BranchName::parse(&text) {
        assert!(git2::Reference::is_valid_name(&branch.full()), "{branch:?}");
        assert!(branch.full().starts_with("refs/heads/"));
        assert!(!branch.as_str().contains(|c: char| c.is_ascii_whitespace() || c.is_control()));
        assert!(!branch.as_str().starts_with('-') && !branch.as_str().contains(".."));
    }
    if let Ok(template) = studio_git::names::WorktreeTemplate::parse(&text) {
        assert!(!template.is_relative() || !text.contains('\0'));
    }
}

/// Text for a terminal and for JSON shows every hidden character and drops none.
pub fn printable(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let is_hidden = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    for shown in [base::text::printable(&text), base::text::printable_output(&text)] {
        assert!(!shown.contains(is_hidden), "{shown:?}");
        assert!(shown.len() <= 10 * text.len());
    }
    let visible = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).count();
    assert!(visible(&base::text::printable(&text)) >= visible(&text));
    let json = base::text::json_escaped(&Value::from(text.as_ref()).to_string());
    assert!(!json.contains(is_hidden), "{json:?}");
    assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    let bytes = base::text::printable_bytes(data);
    assert!(!bytes.contains(is_hidden), "{bytes:?}");
}

#[cfg(test)]
mod short_runs {
    #[test]
    fn any_journal_is_read_and_summarized() {
        short_fuzz::run("journal", super::journal);
    }

    #[test]
    fn any_output_of_an_agent_gives_bounded_events() {
        short_fuzz::run("agent_output", super::agent_output);
    }

    #[test]
    fn any_specification_of_a_sandbox_is_read_or_refused() {
        short_fuzz::run("sandbox_spec", super::sandbox_spec);
    }

    #[test]
    fn every_id_is_one_safe_part_of_a_path() {
        short_fuzz::run("ids", super::ids);
    }

    #[test]
    fn hidden_characters_are_always_shown() {
        short_fuzz::run("printable", super::printable);
    }
}
