//! Messages of a conversation. Plain data without IO, provider names or presentation.

use base::event::Usage;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The role of a message's author.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum MessageRole {
    User,
    Assistant,
}

/// A message. The system prompt is not a message: it is part of the [`crate::ChatRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The author's role.
    pub role: MessageRole,
    /// The content, in order.
    pub parts: Vec<ContentPart>,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ContentPart {
    /// Text of the user or of the model.
    Text {
        /// The text as written.
        text: String,
    },
    /// Text that g3 adds to the user's message.
    Note(HarnessNote),
    /// Reasoning of the model. It is sent back unchanged to the provider that produced it.
    Reasoning {
        /// Readable reasoning; empty if there is only a sealed block.
        text: String,
        /// The provider's own block, sent back byte for byte (signature, encrypted content).
        sealed: Option<Value>,
    },
    /// A tool call that the model made.
    Call(ToolCall),
    /// The result of a call.
    Result(ToolResult),
    /// An image.
    Image(Image),
}

/// Text that g3 adds to the user's message. The model reads it like the user's text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HarnessNote {
    /// The text for the model.
    pub text: String,
    /// The purpose of the note.
    #[serde(default)]
    pub purpose: NotePurpose,
}

/// The purpose of a note.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotePurpose {
    /// Information for the model: an attached file, the permission mode, a hook's output.
    #[default]
    Context,
    /// Tells a small model that its task is not done.
    Reminder,
}

/// A tool call that the model made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Connects the result to the call. Assigned by the provider or by us, unique in a
    /// conversation.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments; see `malformed`.
    pub args: Value,
    /// Set to the arguments as sent if they were not a JSON object. Such a call is not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
}

/// The result of a call, as the model reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// Whether the tool succeeded.
    pub ok: bool,
    /// The text for the model.
    pub text: String,
    /// Images attached to the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Whether the call was rejected before it ran; the text says why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_run: bool,
}

/// An image, base64-encoded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub media_type: String,
    /// The base64-encoded bytes.
    pub data: String,
}

/// The reply to one model request, and its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Text, reasoning and calls in the order in which they arrived.
    pub message: Message,
    /// Tokens and cost.
    pub usage: Usage,
    /// Why the model stopped.
    pub stop: StopReason,
}

/// Usage of model requests outside the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideUsage {
    /// The model's name as sent; the session's own model if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Number of requests.
    #[serde(default = "one")]
    pub calls: u32,
    /// Tokens and cost.
    pub usage: Usage,
}

fn one() -> u32 {
    1
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model finished.
    Done,
    /// The model waits for the results of its calls.
    Calls,
    /// The output limit truncated the reply. Its last call may be incomplete.
    Length,
    /// The provider refused to continue.
    Refused,
}

impl Message {
    /// Creates a message with one text.
    pub fn text(role: MessageRole, text: impl Into<String>) -> Message {
        Message { role, parts: vec![ContentPart::Text { text: text.into() }] }
    }

    /// Creates a message with a note of g3 for the model.
    pub fn note(purpose: NotePurpose, text: impl Into<String>) -> Message {
        let note = HarnessNote { text: text.into(), purpose };
        Message { role: MessageRole::User, parts: vec![ContentPart::Note(note)] }
    }

    /// Whether this message tells a small model that its task is not done.
    pub fn is_reminder(&self) -> bool {
        let is_reminder_part = |part: &ContentPart| matches!(part, ContentPart::Note(note) if note.purpose == NotePurpose::Reminder);
        self.parts.iter().any(is_reminder_part)
    }

    /// Returns the calls in this message.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            ContentPart::Call(call) => Some(call),
            ContentPart::Text { .. }
            | ContentPart::Note(_)
            | ContentPart::Reasoning { .. }
            | ContentPart::Result(_)
            | ContentPart::Image(_) => None,
        })
    }

    /// Returns the user's text, without the notes that g3 added.
    pub fn user_text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            ContentPart::Text { text } => Some(text.as_str()),
            ContentPart::Note(_)
            | ContentPart::Call(_)
            | ContentPart::Reasoning { .. }
            | ContentPart::Result(_)
            | ContentPart::Image(_) => None,
        });
        let text: String = texts.collect();
        if text.is_empty() { self.full_text() } else { text }
    }

    /// Returns the text of this message, including notes, joined.
    pub fn full_text(&self) -> String {
        self.parts.iter().filter_map(ContentPart::as_text).collect()
    }
}

impl ContentPart {
    /// Creates a note with additional information for the model.
    pub fn context(text: impl Into<String>) -> ContentPart {
        ContentPart::Note(HarnessNote { text: text.into(), purpose: NotePurpose::Context })
    }

    /// Returns the text of a text or note.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => Some(text),
            ContentPart::Call(_)
            | ContentPart::Reasoning { .. }
            | ContentPart::Result(_)
            | ContentPart::Image(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn notes_are_not_user_text_but_bracketed_user_text_is() {
        let mut message = Message::text(MessageRole::User, "[x]\n\n");
        message.parts.insert(0, ContentPart::context("[Plan mode]\n\n"));
        message.parts.push(ContentPart::context("\n\n[a hook says: y]"));
        assert_eq!(message.user_text(), "[x]\n\n");
        assert_eq!(message.full_text(), "[Plan mode]\n\n[x]\n\n\n\n[a hook says: y]");
    }

    #[test]
    fn parts_written_by_older_versions_are_read() {
        let result = json!({"kind": "result", "call_id": "1", "name": "shell", "ok": false,
            "text": "not run: no"});
        let ContentPart::Result(result) = serde_json::from_value(result).unwrap() else { panic!() };
        assert!(!result.not_run);
        let written = serde_json::to_value(ContentPart::Result(result)).unwrap();
        assert_eq!(written.get("not_run"), None);
        let note: ContentPart =
            serde_json::from_value(json!({"kind": "note", "text": "n"})).unwrap();
        assert_eq!(note, ContentPart::context("n"));
    }
}
