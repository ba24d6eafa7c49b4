//! Exports a session as a document: all messages, calls and results.

use std::fmt::Write;

use serde_json::{Value, json};

use super::snapshot::SessionSnapshot;
use crate::context::{ConversationEntry, turns};
use provider::message::{ContentPart, HarnessNote, Message};

/// Exports as Markdown, for people. Rewound turns are omitted.
pub fn markdown(snapshot: &SessionSnapshot, entries: Vec<ConversationEntry>) -> String {
    let mut text = format!("# Session {}\n", snapshot.id);
    let _ = writeln!(
        text,
        "\n{} on {}, started {}",
        snapshot.model, snapshot.provider, snapshot.created_at
    );
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
                push_code_block(&mut text, "", &result.text);
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
pub fn object(snapshot: &SessionSnapshot, entries: Vec<ConversationEntry>) -> Value {
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
    json!({"schema": 1, "session": snapshot, "messages": messages})
}

fn section(text: &mut String, author: &str, message: &Message) {
    let _ = write!(text, "\n## {author}\n");
    for part in &message.parts {
        match part {
            ContentPart::Text { text: content }
            | ContentPart::Note(HarnessNote { text: content, .. }) => {
                let _ = write!(text, "\n{}\n", content.trim_end());
            }
            ContentPart::Call(call) => {
                let _ = write!(text, "\nCalls `{}`:\n", call.name);
                let args = call.malformed.clone();
                let pretty = || serde_json::to_string_pretty(&call.args).unwrap_or_default();
                push_code_block(text, "json", &args.unwrap_or_else(pretty));
            }
            ContentPart::Result(result) => push_code_block(text, "", &result.text),
            ContentPart::Image(image) => {
                let _ = write!(text, "\n*(a picture, {})*\n", image.media_type);
            }
            ContentPart::Reasoning { .. } => {}
        }
    }
}

/// Appends a code block whose fence is longer than any run of backticks in it.
pub fn push_code_block(text: &mut String, language: &str, content: &str) {
    let max_run = content.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(max_run.max(2) + 1);
    let _ = write!(text, "\n{fence}{language}\n{}\n{fence}\n", content.trim_end_matches('\n'));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_longer_than_any_backticks_inside() {
        let mut text = String::new();
        push_code_block(&mut text, "md", "```\ncode\n```\n");
        assert_eq!(text, "\n````md\n```\ncode\n```\n````\n");
    }
}
