//! The protocol between g3 and the model host: one JSON object per line, over a stream socket.
//!
//! A client sends [`HostRequestLine`]s, each with an id of its choice; the host answers with
//! [`HostResponseLine`]s that have the same id. A chat is answered by any number of `text`, `call`
//! and `progress` lines and one final `done` or `error`; all other requests get exactly one line.
//! Embeddings are requested only if `hello` names an embedder: hosts of an earlier version close
//! the connection on an unknown request.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::failure::{Failure, FailureKind};

/// The protocol version; host and client must have the same.
pub const VERSION: u32 = 1;
/// The error for a response that does not match its request.
pub const UNEXPECTED: &str = "the model host answered with another kind of message";
/// The maximum length of a line in bytes; longer lines are rejected.
pub(crate) const LINE_LIMIT: usize = 64 << 20;
/// The maximum number of texts in one `embed`: the response is one line.
pub const TEXTS_LIMIT: usize = 256;
/// Bytes of a text in `embed` that are used; the rest need not be sent.
pub const TEXT_LIMIT: usize = 16 << 10;

/// A request from a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostRequestLine {
    /// The id, chosen by the client, unique on its connection.
    pub id: u64,
    /// The request.
    #[serde(flatten)]
    pub what: HostRequest,
}

/// A request from a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum HostRequest {
    /// Asks for the host's identity. Answered before the model is loaded.
    Hello {
        /// The client's [`VERSION`].
        version: u32,
    },
    /// Requests the next reply of a conversation.
    Chat(HostChat),
    /// Requests an embedding of each text, answered by one `vectors`.
    Embed {
        /// The texts: at most [`TEXTS_LIMIT`], none empty.
        texts: Vec<String>,
    },
    /// Cancels a chat, whose KV cache is kept, or an embed.
    Cancel {
        /// The id of the chat or embed.
        chat: u64,
    },
    /// Asks for the host's status.
    Status,
    /// A request of a later version; answered by an error.
    #[serde(other)]
    Unknown,
}

/// A chat request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostChat {
    /// The conversation on this connection; its KV cache is reused for the common prefix.
    pub conversation: String,
    /// The system prompt.
    pub system: String,
    /// The conversation so far, oldest first.
    pub messages: Vec<HostMessage>,
    /// The tools offered.
    pub tools: Vec<HostTool>,
    /// How tool calls are constrained.
    #[serde(default)]
    pub mode: ToolCallMode,
    /// Maximum number of output tokens.
    pub max_tokens: u32,
    /// The sampling temperature; 0 is greedy.
    #[serde(default)]
    pub temperature: f32,
    /// The seed, for temperatures above 0.
    #[serde(default)]
    pub seed: u64,
    /// Whether this envelope must contain a tool call other than `answer`.
    #[serde(default)]
    pub act: bool,
}

/// How tool calls are constrained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallMode {
    /// By size: `envelope` below 4B parameters, `lazy` above, `free` without tools.
    #[default]
    Auto,
    /// Every reply is one JSON object: a thought, then a call, or the call `answer{text}`.
    Envelope,
    /// Free text; constrained from the start of a call.
    Lazy,
    /// Unconstrained; calls are not parsed.
    Free,
}

/// A message of the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum HostMessage {
    /// A user message.
    User {
        /// The text.
        text: String,
    },
    /// A message of the model, with its calls.
    Assistant {
        /// The text.
        text: String,
        /// The calls.
        calls: Vec<HostToolCall>,
    },
    /// The result of a call.
    Result {
        /// The tool.
        name: String,
        /// The text for the model.
        text: String,
    },
}

/// An earlier call of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostToolCall {
    /// The tool.
    pub name: String,
    /// The arguments.
    pub args: Value,
}

/// A tool definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostTool {
    /// The name.
    pub name: String,
    /// The description.
    pub description: String,
    /// The parameters, as a JSON Schema object.
    pub parameters: Value,
}

/// A response from the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostResponseLine {
    /// The id of the request.
    pub id: u64,
    /// The response.
    #[serde(flatten)]
    pub what: HostResponse,
}

/// A response from the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "snake_case")]
pub enum HostResponse {
    /// The host's identity.
    Hello(Hello),
    /// A chunk of the reply.
    Text {
        /// The text.
        text: String,
    },
    /// A complete call.
    Call {
        /// The tool.
        name: String,
        /// The arguments, as far as they were generated.
        args: Value,
        /// Whether the output limit truncated a string in it: such a call must not be run.
        truncated_at_cap: bool,
    },
    /// A sign of progress while there is no output yet.
    Progress {
        /// Prompt tokens processed so far.
        prefilled: u64,
        /// Prompt tokens in total.
        prompt: u64,
        /// Tokens generated so far.
        written: u64,
    },
    /// The reply is complete.
    Done {
        /// The stop reason.
        stop: HostStopReason,
        /// The tokens and times.
        usage: ReplyUsage,
    },
    /// The request failed; there is no (further) output.
    Error(HostFault),
    /// The host's status.
    Status(HostStatus),
    /// The embeddings for an `embed`.
    Vectors(Vectors),
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostStopReason {
    /// The model finished.
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
    /// Prompt tokens that were reused from the KV cache.
    pub reused: u64,
    /// Prompt tokens that were processed now.
    pub prefilled: u64,
    /// Tokens generated.
    pub written: u64,
    /// Milliseconds until the first generated token.
    pub prefill_ms: u64,
    /// Milliseconds from the first generated token to the last.
    pub write_ms: u64,
    /// Tokens for which the whole vocabulary had to be filtered.
    pub filtered: u64,
}

/// The identity of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The host's [`VERSION`].
    pub version: u32,
    /// The model's name, from its file.
    pub model: String,
    /// The number of parameters.
    pub parameters: u64,
    /// The context of one conversation, in tokens of input and output together.
    pub context: u64,
    /// The host's process id.
    pub pid: u32,
    /// Its embedder; `None` for a host of an earlier version, which has none.
    #[serde(default)]
    pub embedder: Option<EmbedderId>,
}

/// The identity of an embedder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbedderId {
    /// The model, its file and the pooling: vectors with different names cannot be compared.
    pub name: String,
    /// The number of dimensions.
    pub dimension: u32,
}

/// A unit vector for each text, in the order of the texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vectors {
    /// The embedder.
    pub embedder: EmbedderId,
    /// The vectors.
    #[serde(deserialize_with = "finite")]
    pub vectors: Vec<Vec<f32>>,
}

/// Reads vectors; fails if a number is too large for their type.
fn finite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<f32>>, D::Error> {
    let vectors: Vec<Vec<f32>> = Vec::deserialize(deserializer)?;
    match vectors.iter().flatten().all(|number| number.is_finite()) {
        true => Ok(vectors),
        false => Err(serde::de::Error::custom("a number of a vector is out of range")),
    }
}

/// The status of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Whether the model is loaded.
    pub loaded: bool,
    /// Open connections.
    pub connections: u64,
    /// Chats that are running or waiting.
    pub chats: u64,
    /// Conversations whose KV cache is in memory.
    pub in_memory: u64,
    /// Conversations whose KV cache was spilled to disk.
    pub on_disk: u64,
    /// Waiting embed requests.
    #[serde(default)]
    pub embeds: u64,
    /// The number of compute threads; 0 while the model is loading.
    #[serde(default)]
    pub threads: u32,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFault {
    /// The category, for callers that handle them differently.
    pub kind: HostFaultKind,
    /// The failure, in one sentence.
    pub what: String,
    /// The cause, if known.
    pub why: Option<String>,
    /// Hints for the user.
    pub next: Vec<String>,
}

/// The category of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostFaultKind {
    /// The conversation does not fit the context.
    TooLong,
    /// The request is invalid, or file, memory or version do not fit: the user must act.
    Rejected,
    /// An internal error or a lost connection; a retry may help.
    Broken,
}

impl HostFault {
    /// Creates a fault from one sentence.
    pub fn new(kind: HostFaultKind, what: impl Into<String>) -> HostFault {
        HostFault { kind, what: what.into(), why: None, next: Vec::new() }
    }

    /// Converts it to a failure of a command.
    pub fn into_failure(self) -> Failure {
        let kind = match self.kind {
            HostFaultKind::Rejected => FailureKind::Usage,
            HostFaultKind::TooLong | HostFaultKind::Broken => FailureKind::Failed,
        };
        Failure { kind, what: self.what, cause: self.why.map(Into::into), hints: self.next }
    }
}

impl From<Failure> for HostFault {
    fn from(failure: Failure) -> HostFault {
        let Failure { what, cause, hints: next, .. } = failure;
        HostFault {
            kind: HostFaultKind::Rejected,
            what,
            why: cause.map(|cause| cause.to_string()),
            next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_line_is_one_flat_object() {
        let request = HostRequestLine { id: 3, what: HostRequest::Cancel { chat: 2 } };
        let line = serde_json::to_string(&request).unwrap();
        assert_eq!(line, r#"{"id":3,"ask":"cancel","chat":2}"#);
        assert_eq!(serde_json::from_str::<HostRequestLine>(&line).unwrap(), request);
        let response = HostResponseLine { id: 3, what: HostResponse::Text { text: "hi\n".into() } };
        let line = serde_json::to_string(&response).unwrap();
        assert_eq!(line, r#"{"id":3,"tell":"text","text":"hi\n"}"#);
        assert_eq!(serde_json::from_str::<HostResponseLine>(&line).unwrap(), response);
    }

    #[test]
    fn numbers_keep_their_value_or_are_refused() {
        let number = "3.8888888888888885e+96";
        assert_eq!(serde_json::from_str::<Value>(number).unwrap().to_string(), number);
        let line = |number: &str| {
            let embedder = r#"{"name":"m","dimension":1}"#;
            format!(r#"{{"id":1,"tell":"vectors","embedder":{embedder},"vectors":[[{number}]]}}"#)
        };
        let read = |number| serde_json::from_str::<HostResponseLine>(&line(number));
        assert!(read("1e38").is_ok(), "{:?}", read("1e38"));
        let error = read("1e39").unwrap_err();
        assert!(error.to_string().contains("out of range"), "{error}");
    }

    #[test]
    fn older_and_newer_versions_interoperate() {
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
        let response = HostResponseLine { id: 1, what: HostResponse::Vectors(vectors) };
        let line = serde_json::to_string(&response).unwrap();
        assert_eq!(serde_json::from_str::<HostResponseLine>(&line).unwrap(), response);
    }
}
