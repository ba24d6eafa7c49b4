//! What is said between g3 and the model host: JSON, one object a line, over a stream socket.
//!
//! A client sends [`Asked`], each with an id of its own choice; the host answers with [`Told`]
//! lines that carry the same id. A chat is answered by any number of `text`, `call` and
//! `progress` lines and ends with one `done` or `error`; everything else gets exactly one line.
//! Vectors are asked for only where `hello` names an embedder: hosts of an earlier version end the
//! connection over a request that they do not know.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{Failure, FailureKind};

/// Host and client must agree on it.
pub const VERSION: u32 = 1;
/// What is said of an answer that does not belong to its request.
pub const UNEXPECTED: &str = "the model host answered with another kind of message";
/// Longer lines are refused: they would be no conversation.
pub(crate) const LINE_LIMIT: usize = 64 << 20;
/// Texts of one `embed`: the answer is one line.
pub const TEXTS_LIMIT: usize = 256;
/// Bytes of a text of an `embed` that count; the rest need not be sent.
pub const TEXT_LIMIT: usize = 16 << 10;

/// One line from a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostRequestLine {
    /// Chosen by the client, unique on its connection.
    pub id: u64,
    /// What it wants.
    #[serde(flatten)]
    pub what: HostRequest,
}

/// What a client wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum HostRequest {
    /// Who are you? Answered before the model is loaded.
    Hello {
        /// The client's [`VERSION`].
        version: u32,
    },
    /// The next reply of a conversation.
    Chat(HostChat),
    /// A vector of each text, answered by one `vectors`.
    Embed {
        /// At most [`TEXTS_LIMIT`], none of them empty.
        texts: Vec<String>,
    },
    /// End a chat early, whose KV stays, or an embed.
    Cancel {
        /// The id of the chat or embed.
        chat: u64,
    },
    /// What is going on?
    Status,
    /// What a later version asks; answered by an error.
    #[serde(other)]
    Unknown,
}

/// A question to the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostChat {
    /// Which conversation of this connection; its KV is reused as far as the text agrees.
    pub conversation: String,
    /// The system prompt.
    pub system: String,
    /// The conversation so far, oldest first.
    pub messages: Vec<HostMessage>,
    /// The tools offered.
    pub tools: Vec<HostTool>,
    /// How calls are constrained.
    #[serde(default)]
    pub mode: ToolCallMode,
    /// Tokens of output at most.
    pub max_tokens: u32,
    /// 0 takes the likeliest token.
    #[serde(default)]
    pub temperature: f32,
    /// For temperatures above 0.
    #[serde(default)]
    pub seed: u64,
    /// Whether an envelope must hold a call of a tool this time, and no `answer`.
    #[serde(default)]
    pub act: bool,
}

/// How tool calls are constrained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallMode {
    /// By size: `envelope` below 4B parameters, `lazy` from there on, `free` without tools.
    #[default]
    Auto,
    /// Every reply is one JSON object: a thought, then a call, or the call `answer{text}`.
    Envelope,
    /// Free text; constrained from the moment a call begins.
    Lazy,
    /// Not constrained; calls are not looked for.
    Free,
}

/// A message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum HostMessage {
    /// What the user said.
    User {
        /// The words.
        text: String,
    },
    /// What the model said and called.
    Assistant {
        /// The words.
        text: String,
        /// The calls.
        calls: Vec<HostToolCall>,
    },
    /// What came of one call.
    Result {
        /// The tool.
        name: String,
        /// What the model reads.
        text: String,
    },
}

/// A call that the model made earlier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostToolCall {
    /// The tool.
    pub name: String,
    /// The arguments.
    pub args: Value,
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostTool {
    /// The name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// A JSON Schema object.
    pub parameters: Value,
}

/// One line from the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostResponseLine {
    /// The id of the request that this answers.
    pub id: u64,
    /// What the host says.
    #[serde(flatten)]
    pub what: HostResponse,
}

/// What the host says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "snake_case")]
pub enum HostResponse {
    /// Who it is.
    Hello(Hello),
    /// A piece of the model's words.
    Text {
        /// As written.
        text: String,
    },
    /// A whole call.
    Call {
        /// The tool.
        name: String,
        /// The arguments as far as they were written.
        args: Value,
        /// Whether the output limit ended a string in it: such a call must not be run.
        truncated_at_cap: bool,
    },
    /// A sign of life while nothing can be shown yet.
    Progress {
        /// Prompt tokens read so far.
        prefilled: u64,
        /// Prompt tokens in all.
        prompt: u64,
        /// Tokens written so far.
        written: u64,
    },
    /// The reply is complete.
    Done {
        /// Why it ended.
        stop: HostStopReason,
        /// What it cost.
        usage: ReplyUsage,
    },
    /// There will be no (more of the) reply.
    Error(HostFault),
    /// What is going on.
    Status(HostStatus),
    /// The vectors of an `embed`.
    Vectors(Vectors),
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostStopReason {
    /// The model had said all.
    Done,
    /// It made a call.
    Calls,
    /// `max_tokens` was reached.
    Length,
    /// The client cancelled.
    Cancelled,
}

/// Tokens and times of one reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyUsage {
    /// Tokens of the whole prompt.
    pub prompt: u64,
    /// Of these, how many stood in the KV cache already.
    pub reused: u64,
    /// Of these, how many were read now.
    pub prefilled: u64,
    /// Tokens written.
    pub written: u64,
    /// Milliseconds until the first token was written.
    pub prefill_ms: u64,
    /// Milliseconds from there to the last.
    pub write_ms: u64,
    /// Tokens for which the whole vocabulary had to be filtered.
    pub filtered: u64,
}

/// Who the host is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The host's [`VERSION`].
    pub version: u32,
    /// The model's own name, from its file.
    pub model: String,
    /// Parameters.
    pub parameters: u64,
    /// Tokens of one conversation, input and output together.
    pub context: u64,
    /// The host's process id.
    pub pid: u32,
    /// Who makes its vectors; `None`: a host of an earlier version, which makes none.
    #[serde(default)]
    pub embedder: Option<EmbedderId>,
}

/// Whose vectors they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbedderId {
    /// The model, its file and the way from its states to a vector: vectors under different names
    /// cannot be compared.
    pub name: String,
    /// The length of a vector.
    pub dimension: u32,
}

/// A vector of length 1 for each text, in the order of the texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vectors {
    /// Whose they are.
    pub embedder: EmbedderId,
    /// The vectors.
    pub vectors: Vec<Vec<f32>>,
}

/// What is going on in a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Whether the model is loaded.
    pub loaded: bool,
    /// Open connections.
    pub connections: u64,
    /// Chats that are being answered or wait.
    pub chats: u64,
    /// Conversations whose KV is in memory.
    pub in_memory: u64,
    /// Conversations whose KV was spilled to disk.
    pub on_disk: u64,
    /// Requests for vectors that wait.
    #[serde(default)]
    pub embeds: u64,
    /// Threads that compute; 0 while the model is being loaded.
    #[serde(default)]
    pub threads: u32,
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFault {
    /// What a caller does something different about.
    pub kind: HostFaultKind,
    /// One sentence.
    pub what: String,
    /// The cause, as far as it is known.
    pub why: Option<String>,
    /// What to try.
    pub next: Vec<String>,
}

/// What a caller does something different about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostFaultKind {
    /// The conversation does not fit the context.
    TooLong,
    /// The request makes no sense, or file, memory or version do not fit: the user must act.
    Rejected,
    /// Something broke; asking again may help.
    Broken,
}

impl HostFault {
    /// Returns a fault in one sentence.
    pub fn new(kind: HostFaultKind, what: impl Into<String>) -> HostFault {
        HostFault { kind, what: what.into(), why: None, next: Vec::new() }
    }

    /// Returns the same as a failure of a command.
    pub fn into_failure(self) -> Failure {
        let kind = match self.kind {
            HostFaultKind::Rejected => FailureKind::Usage,
            HostFaultKind::TooLong | HostFaultKind::Broken => FailureKind::Failed,
        };
        Failure { kind, what: self.what, why: self.why.map(Into::into), hints: self.next }
    }
}

impl From<Failure> for HostFault {
    fn from(failure: Failure) -> HostFault {
        let Failure { what, why, hints: next, .. } = failure;
        HostFault { kind: HostFaultKind::Rejected, what, why: why.map(|why| why.to_string()), next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_flat_object() {
        let asked = HostRequestLine { id: 3, what: HostRequest::Cancel { chat: 2 } };
        let line = serde_json::to_string(&asked).unwrap();
        assert_eq!(line, r#"{"id":3,"ask":"cancel","chat":2}"#);
        assert_eq!(serde_json::from_str::<HostRequestLine>(&line).unwrap(), asked);
        let told = HostResponseLine { id: 3, what: HostResponse::Text { text: "hi\n".into() } };
        let line = serde_json::to_string(&told).unwrap();
        assert_eq!(line, r#"{"id":3,"tell":"text","text":"hi\n"}"#);
        assert_eq!(serde_json::from_str::<HostResponseLine>(&line).unwrap(), told);
    }

    #[test]
    fn versions_that_know_more_or_less_understand_each_other() {
        let later = r#"{"id":7,"ask":"paint","size":3}"#;
        assert_eq!(
            serde_json::from_str::<HostRequestLine>(later).unwrap(),
            HostRequestLine { id: 7, what: HostRequest::Unknown }
        );
        let earlier = r#"{"version":1,"model":"m","parameters":2,"context":3,"pid":4}"#;
        assert_eq!(serde_json::from_str::<Hello>(earlier).unwrap().embedder, None);
        let embed = HostRequestLine { id: 1, what: HostRequest::Embed { texts: vec!["a".into()] } };
        let line = serde_json::to_string(&embed).unwrap();
        assert_eq!(line, r#"{"id":1,"ask":"embed","texts":["a"]}"#);
        let embedder = EmbedderId { name: "m".into(), dimension: 2 };
        let vectors = Vectors { embedder, vectors: vec![vec![0.1, -0.99498755]] };
        let told = HostResponseLine { id: 1, what: HostResponse::Vectors(vectors) };
        let line = serde_json::to_string(&told).unwrap();
        assert_eq!(serde_json::from_str::<HostResponseLine>(&line).unwrap(), told);
    }
}
