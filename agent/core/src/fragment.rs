//! A user turn that was moved out of the conversation into a file and can be restored.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use provider::message::{ContentPart, HarnessNote, Image, Message, MessageRole};

/// Maximum number of bytes of the user's text shown in the placeholder.
const MAX_SHOWN: usize = 2_000;

/// The content of a file in `fragments/`, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fragment {
    /// Twelve hexadecimal digits, derived from the content.
    pub fragment_id: String,
    /// RFC 3339.
    pub created_at: String,
    /// The complete messages.
    pub messages: Vec<Message>,
    /// The number of messages.
    pub message_count: usize,
    /// The number of messages from the user's side, including tool results.
    pub user_message_count: usize,
    /// The number of messages from the model.
    pub assistant_message_count: usize,
    /// Number of calls per tool.
    pub tool_call_summary: BTreeMap<String, usize>,
    /// Estimated number of tokens.
    pub estimated_tokens: u64,
    /// The id of the previous fragment.
    pub preceding_fragment_id: Option<String>,
    /// The user's request.
    pub first_user_message: String,
}

impl Fragment {
    /// Creates a fragment from messages. `before` is the id of the previous fragment.
    pub(crate) fn new(
        messages: &[Message],
        tokens: u64,
        created_at: String,
        before: Option<&str>,
    ) -> Fragment {
        let count_role = |role| messages.iter().filter(|message| message.role == role).count();
        let mut calls = BTreeMap::new();
        for call in messages.iter().flat_map(Message::calls) {
            *calls.entry(call.name.clone()).or_insert(0) += 1;
        }
        let mut digest = Sha256::new();
        digest.update(before.unwrap_or_default());
        digest.update(serde_json::to_vec(messages).unwrap_or_default());
        let digest = digest.finalize();
        Fragment {
            fragment_id: base::text::hex(&digest[..6]),
            created_at,
            messages: messages.to_vec(),
            message_count: messages.len(),
            user_message_count: count_role(MessageRole::User),
            assistant_message_count: count_role(MessageRole::Assistant),
            tool_call_summary: calls,
            estimated_tokens: tokens,
            preceding_fragment_id: before.map(str::to_owned),
            first_user_message: messages.first().map(Message::full_text).unwrap_or_default(),
        }
    }

    /// Returns the placeholder for the model: a user message and the model's own last message.
    pub(crate) fn stub(&self) -> [Message; 2] {
        let request = base::text::head(&self.first_user_message, MAX_SHOWN);
        let calls = self.calls();
        let text = format!(
            "{request}\n\n[{} messages that followed, with {calls}, were set aside as fragment {id}; \
             the tool rehydrate brings them back word for word: {{\"fragment_id\": \"{id}\"}}]",
            self.message_count.saturating_sub(1),
            id = self.fragment_id
        );
        let replies =
            self.messages.iter().rev().filter(|message| message.role == MessageRole::Assistant);
        let last = replies.map(Message::full_text).find(|words| !words.trim().is_empty());
        let last = last.unwrap_or_else(|| "(nothing was said)".to_owned());
        [Message::text(MessageRole::User, text), Message::text(MessageRole::Assistant, last)]
    }

    /// Describes the calls: `5 tool calls (3 read_file, 2 shell)`.
    pub fn calls(&self) -> String {
        let count: usize = self.tool_call_summary.values().sum();
        let each: Vec<String> =
            self.tool_call_summary.iter().map(|(name, n)| format!("{n} {name}")).collect();
        match count {
            0 => "no tool calls".to_owned(),
            1 => format!("1 tool call ({})", each.join(", ")),
            _ => format!("{count} tool calls ({})", each.join(", ")),
        }
    }

    /// Returns all messages, calls and results as text.
    pub(crate) fn transcript(&self) -> String {
        let mut text = String::new();
        for message in &self.messages {
            for part in &message.parts {
                // Writing to a string cannot fail.
                let _ = match (part, message.role) {
                    (
                        ContentPart::Text { text: content }
                        | ContentPart::Note(HarnessNote { text: content, .. }),
                        MessageRole::User,
                    ) => writeln!(text, "user: {content}"),
                    (
                        ContentPart::Text { text: content }
                        | ContentPart::Note(HarnessNote { text: content, .. }),
                        MessageRole::Assistant,
                    ) => writeln!(text, "you: {content}"),
                    (ContentPart::Reasoning { .. }, _) => Ok(()),
                    (ContentPart::Call(call), _) => {
                        writeln!(text, "call {}: {}", call.name, call.args)
                    }
                    (ContentPart::Result(result), _) => {
                        let failed = if result.ok { "" } else { " (failed)" };
                        writeln!(text, "result of {}{failed}: {}", result.name, result.text)
                    }
                    (ContentPart::Image(_), _) => writeln!(text, "[a picture]"),
                };
            }
        }
        text
    }

    /// Returns all images.
    pub(crate) fn images(&self) -> Vec<Image> {
        let mut images = Vec::new();
        for part in self.messages.iter().flat_map(|message| &message.parts) {
            match part {
                ContentPart::Image(image) => images.push(image.clone()),
                ContentPart::Result(result) => images.extend(result.images.iter().cloned()),
                ContentPart::Text { .. }
                | ContentPart::Note(_)
                | ContentPart::Reasoning { .. }
                | ContentPart::Call(_) => {}
            }
        }
        images
    }

    /// Reads a fragment from a session's directory.
    pub fn read(session_dir: &Path, id: &str) -> io::Result<Fragment> {
        let is_valid = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_valid {
            let reason = format!("invalid fragment id `{id}`");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let bytes = base::files::read(&fragments_dir(session_dir).join(file_name(id)))?;
        serde_json::from_slice(&bytes).map_err(io::Error::other)
    }
}

/// Returns the directory of a session's fragments.
fn fragments_dir(session_dir: &Path) -> PathBuf {
    session_dir.join("fragments")
}

/// Returns the name of a fragment's file.
pub(crate) fn file_name(id: &str) -> String {
    format!("fragment_{id}.json")
}

/// Returns the readable fragments of a session, oldest first.
pub fn list(session_dir: &Path) -> Vec<Fragment> {
    let files = std::fs::read_dir(fragments_dir(session_dir)).into_iter().flatten().flatten();
    let mut all: Vec<Fragment> = files
        .filter_map(|file| serde_json::from_slice(&base::files::read(&file.path()).ok()?).ok())
        .collect();
    all.sort_by(|a, b| (&a.created_at, &a.fragment_id).cmp(&(&b.created_at, &b.fragment_id)));
    all
}
