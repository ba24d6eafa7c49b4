//! Exports a session as a document: all messages, calls and results.

use std::fmt::Write;

use serde_json::{Value, json};

use super::snapshot::SessionSnapshot;
use crate::context::{ConversationEntry, turns};
use provider::message::{ContentPart, HarnessNote, Message};

/// Exports as Markdown, for people. Rewound turns are omitted.
pub fn markdown(seen: &SessionSnapshot, entries: Vec<ConversationEntry>) -> String {
    let mut text = format!("# Session {}\n", seen.id);
    let _ = writeln!(text, "\n{} on {}, started {}", seen.model, seen.provider, seen.created_at);
    for entry in turns::effective(entries).entries {
        match entry {
            ConversationEntry::Request { message } => section(&mut text, "User", &message),
            ConversationEntry::Steered { message, .. } => {
                section(&mut text, "User, during the turn", &message)
            }
            ConversationEntry::Prompt { message } => section(&mut text, "g3", &message),
            ConversationEntry::Reply { message, .. } => section(&mut text, "Assistant", &message),
            ConversationEntry::Result { result } => {
                let failed = if result.ok { "" } else { ", failed" };
                let _ = write!(text, "\nResult of `{}`{failed}:\n", result.name);
                fenced(&mut text, "", &result.text);
            }
            ConversationEntry::Compacted { .. } => {
                text.push_str("\n*(a summary took the place of the above)*\n")
            }
            ConversationEntry::Cleared => text.push_str("\n*(the conversation was dropped)*\n"),
            ConversationEntry::Opened { .. }
            | ConversationEntry::Thinned { .. }
            | ConversationEntry::Dehydrated { .. }
            | ConversationEntry::Rehydrated { .. }
            | ConversationEntry::Rewound { .. }
            | ConversationEntry::Noted { .. }
            | ConversationEntry::Ended { .. } => {}
        }
    }
    text
}

/// Exports as one JSON object: the session's snapshot, and `messages` in g3's own format.
pub fn object(seen: &SessionSnapshot, entries: Vec<ConversationEntry>) -> Value {
    let mut messages: Vec<Value> = Vec::new();
    for entry in turns::effective(entries).entries {
        let message = match entry {
            ConversationEntry::Request { message }
            | ConversationEntry::Steered { message, .. }
            | ConversationEntry::Prompt { message }
            | ConversationEntry::Reply { message, .. } => json!(message),
            ConversationEntry::Result { result } => json!({"role": "tool", "result": result}),
            ConversationEntry::Opened { .. }
            | ConversationEntry::Thinned { .. }
            | ConversationEntry::Compacted { .. }
            | ConversationEntry::Dehydrated { .. }
            | ConversationEntry::Rehydrated { .. }
            | ConversationEntry::Rewound { .. }
            | ConversationEntry::Noted { .. }
            | ConversationEntry::Cleared
            | ConversationEntry::Ended { .. } => continue,
        };
        messages.push(message);
    }
    json!({"schema": 1, "session": seen, "messages": messages})
}

fn section(text: &mut String, who: &str, message: &Message) {
    let _ = write!(text, "\n## {who}\n");
    for part in &message.parts {
        match part {
            ContentPart::Text { text: words }
            | ContentPart::Note(HarnessNote { text: words, .. }) => {
                let _ = write!(text, "\n{}\n", words.trim_end());
            }
            ContentPart::Call(call) => {
                let _ = write!(text, "\nCalls `{}`:\n", call.name);
                let args = call.malformed.clone();
                let pretty = || serde_json::to_string_pretty(&call.args).unwrap_or_default();
                fenced(text, "json", &args.unwrap_or_else(pretty));
            }
            ContentPart::Result(result) => fenced(text, "", &result.text),
            ContentPart::Image(image) => {
                let _ = write!(text, "\n*(a picture, {})*\n", image.media_type);
            }
            ContentPart::Reasoning { .. } => {}
        }
    }
}

/// Appends a code block whose fence is longer than any run of backticks in it.
pub fn fenced(text: &mut String, language: &str, content: &str) {
    let longest = content.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = write!(text, "\n{fence}{language}\n{}\n{fence}\n", content.trim_end_matches('\n'));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_longer_than_any_backticks_inside() {
        let mut text = String::new();
        fenced(&mut text, "md", "```\ncode\n```\n");
        assert_eq!(text, "\n````md\n```\ncode\n```\n````\n");
    }
}
