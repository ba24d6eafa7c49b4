//! The nouns of a conversation. Plain data: no IO, no provider names, no colours.

use base::event::Usage;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum MessageRole {
    User,
    Assistant,
}

/// One message. System text is not a message: it is part of the [`crate::Request`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: MessageRole,
    /// What is said, in order.
    pub parts: Vec<ContentPart>,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ContentPart {
    /// Words of the user or of the model.
    Text {
        /// As written.
        text: String,
    },
    /// Words that g3 itself adds to what the user says.
    Note(HarnessNote),
    /// What a model thought; goes back to the provider that wrote it, unchanged.
    Reasoning {
        /// Readable thought; empty when it is only a sealed blob.
        text: String,
        /// The provider's own block, echoed byte for byte (signature, encrypted content).
        sealed: Option<Value>,
    },
    /// A tool call that the model made.
    Call(ToolCall),
    /// What came of a call.
    Result(ToolResult),
    /// A picture.
    Image(Image),
}

/// Words that g3 itself adds to what the user says: a model reads them like the user's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HarnessNote {
    /// What the model reads.
    pub text: String,
    /// What it is for.
    #[serde(default)]
    pub purpose: NotePurpose,
}

/// What a note is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotePurpose {
    /// What the model must know: an attached file, the permission mode, a hook's output.
    #[default]
    Context,
    /// Tells a small model that its task is not done.
    Reminder,
}

/// A tool call that the model made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Ties the result to the call; made by the provider or by us, unique in a conversation.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The arguments; see `malformed`.
    pub args: Value,
    /// Set when the arguments were not a JSON object: the text as sent. Such a call is not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
}

/// What came of a call, as the model reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call this answers.
    pub call_id: String,
    /// The tool's name.
    pub name: String,
    /// Whether the tool did what was asked.
    pub ok: bool,
    /// What the model reads.
    pub text: String,
    /// Pictures that come with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Whether the call was refused before it did anything; the text says why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_run: bool,
}

/// A picture as base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub media_type: String,
    /// The bytes, base64.
    pub data: String,
}

/// What one question to the model gave us, and what it cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// Text, reasoning and calls in the order in which they came.
    pub message: Message,
    /// Tokens and money.
    pub usage: Usage,
    /// Why the model stopped.
    pub stop: StopReason,
}

/// What a model was asked beside the conversation, and what that cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideUsage {
    /// As sent; the session's own model when it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Questions.
    #[serde(default = "one")]
    pub calls: u32,
    /// Tokens and money.
    pub usage: Usage,
}

fn one() -> u32 {
    1
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had said all.
    Done,
    /// It waits for the results of its calls.
    Calls,
    /// The output limit cut it off: its last call may be half.
    Length,
    /// The provider refused to go on.
    Refused,
}

impl Message {
    /// A message of one text.
    pub fn text(role: MessageRole, text: impl Into<String>) -> Message {
        Message { role, parts: vec![ContentPart::Text { text: text.into() }] }
    }

    /// A message of g3 itself to the model.
    pub fn note(purpose: NotePurpose, text: impl Into<String>) -> Message {
        let note = HarnessNote { text: text.into(), purpose };
        Message { role: MessageRole::User, parts: vec![ContentPart::Note(note)] }
    }

    /// Whether this message tells a small model that its task is not done.
    pub fn is_reminder(&self) -> bool {
        let reminds = |part: &ContentPart| matches!(part, ContentPart::Note(note) if note.purpose == NotePurpose::Reminder);
        self.parts.iter().any(reminds)
    }

    /// The calls in this message.
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

    /// What the user said, without the notes that g3 added.
    pub fn own_words(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            ContentPart::Text { text } => Some(text.as_str()),
            ContentPart::Note(_)
            | ContentPart::Call(_)
            | ContentPart::Reasoning { .. }
            | ContentPart::Result(_)
            | ContentPart::Image(_) => None,
        });
        let own: String = texts.collect();
        if own.is_empty() { self.words() } else { own }
    }

    /// The words of this message, joined, notes among them.
    pub fn words(&self) -> String {
        self.parts.iter().filter_map(ContentPart::words).collect()
    }
}

impl ContentPart {
    /// A note that tells the model something beside the user's words.
    pub fn context(text: impl Into<String>) -> ContentPart {
        ContentPart::Note(HarnessNote { text: text.into(), purpose: NotePurpose::Context })
    }

    /// The words of a text or of a note.
    pub(crate) fn words(&self) -> Option<&str> {
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
    fn notes_of_g3_are_not_the_users_words_and_brackets_of_the_user_are() {
        let mut message = Message::text(MessageRole::User, "[x]\n\n");
        message.parts.insert(0, ContentPart::context("[Plan mode]\n\n"));
        message.parts.push(ContentPart::context("\n\n[a hook says: y]"));
        assert_eq!(message.own_words(), "[x]\n\n");
        assert_eq!(message.words(), "[Plan mode]\n\n[x]\n\n\n\n[a hook says: y]");
    }

    #[test]
    fn parts_that_older_sessions_wrote_are_read() {
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
