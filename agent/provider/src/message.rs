//! The nouns of a conversation. Plain data: no IO, no provider names, no colours.

use base::event::Usage;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Role {
    User,
    Assistant,
}

/// One message. System text is not a message: it is part of the [`crate::Request`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Part {
    /// Words.
    Text {
        /// As written.
        text: String,
    },
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
}

/// How the result of a call begins that was not carried out.
const HELD: [&str; 2] = ["not run: ", "not written: "];

impl ToolResult {
    /// Whether the call was not carried out, for a reason that the text says.
    pub fn was_held(&self) -> bool {
        !self.ok && HELD.iter().any(|begin| self.text.starts_with(begin))
    }
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
    pub stop: Stop,
}

/// What a model was asked beside the conversation, and what that cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bill {
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
pub enum Stop {
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
    pub fn text(role: Role, text: impl Into<String>) -> Message {
        Message { role, parts: vec![Part::Text { text: text.into() }] }
    }

    /// The calls in this message.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            Part::Text { .. } | Part::Reasoning { .. } | Part::Result(_) | Part::Image(_) => None,
        })
    }

    /// What the user said, without what g3 put before it or a hook behind it: notes in brackets,
    /// each a part of its own, with an empty line between it and the user's words.
    pub fn own_words(&self) -> String {
        let is_note = |text: &str| {
            (text.starts_with('[') && text.ends_with("]\n\n"))
                || (text.starts_with("\n\n[") && text.ends_with(']'))
        };
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()).filter(|text| !is_note(text)),
            Part::Call(_) | Part::Reasoning { .. } | Part::Result(_) | Part::Image(_) => None,
        });
        let own: String = texts.collect();
        if own.is_empty() { self.words() } else { own }
    }

    /// The words of this message, joined.
    pub fn words(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            Part::Call(_) | Part::Reasoning { .. } | Part::Result(_) | Part::Image(_) => None,
        });
        texts.collect()
    }
}
