//! A reply of the scripted model: its content, and the faults of the connection.

use std::time::Duration;

use serde_json::Value;

use super::gate::ReplyGate;

/// A reply.
#[derive(Clone, Debug, Default)]
pub struct ScriptedReply {
    /// The content, in order.
    pub parts: Vec<ReplyPart>,
    /// The reported tokens.
    pub tokens: ReplyTokens,
    /// The stop reason in the wire format, instead of the one that follows from the parts.
    pub stop: Option<String>,
    /// A response that is not a reply in the wire format.
    pub instead: Option<Instead>,
    /// Additional headers.
    pub headers: Vec<(String, String)>,
    /// How the bytes are sent.
    pub delivery: Delivery,
}

/// A part of a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyPart {
    /// Text; consecutive parts share a block, each is one delta.
    Text(String),
    /// Thinking text.
    Thought(String),
    /// Redacted thinking of the anthropic wire format; other wire formats omit it.
    Sealed(String),
    /// A call, with its arguments as text, which need not be JSON.
    Call {
        /// The id; derived from the request's number when empty.
        id: String,
        /// The tool.
        name: String,
        /// The arguments.
        args: String,
    },
    /// An error event inside the stream, which ends it.
    Error {
        /// The error's type.
        kind: String,
        /// Its message.
        message: String,
    },
}

/// The token counts that a reply reports.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTokens {
    /// Input tokens that were not cached.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens read from the cache.
    pub cache_read: u64,
    /// Tokens written to the cache.
    pub cache_write: u64,
}

impl Default for ReplyTokens {
    fn default() -> ReplyTokens {
        ReplyTokens { input: 10, output: 5, cache_read: 0, cache_write: 0 }
    }
}

/// A response that is not a reply in the wire format.
#[derive(Clone, Debug)]
pub enum Instead {
    /// A status with a body of the given type; without a body, the wire format's error object.
    Status(u16, Option<(String, Vec<u8>)>),
    /// These bytes as the body of a stream with status 200.
    Raw(Vec<u8>),
    /// A connection reset before any header.
    Reset,
    /// No response.
    Stall,
}

/// How the bytes of the body are sent.
#[derive(Clone, Debug, Default)]
pub struct Delivery {
    /// Chunks of this many bytes instead of one chunk per part.
    pub chunk: Option<usize>,
    /// A fault after this many bytes of the body.
    pub end: Option<(usize, ReplyEnd)>,
    /// Holds each chunk until it is released.
    pub gate: Option<ReplyGate>,
    /// A delay before the first byte, for benchmarks.
    pub delay: Option<Duration>,
    /// Whether to compress the body.
    pub gzip: bool,
    /// Whether to answer a streamed request with one JSON object.
    pub whole: bool,
}

/// How a body ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEnd {
    /// The connection is closed normally, but the body is incomplete.
    Cut,
    /// The connection is reset.
    Reset,
    /// No more bytes are sent.
    Stall,
}

impl ScriptedReply {
    /// Creates an empty reply to build on.
    pub fn new() -> ScriptedReply {
        ScriptedReply::default()
    }

    /// Creates a reply with text.
    pub fn says(text: impl Into<String>) -> ScriptedReply {
        ScriptedReply::new().then_says(text)
    }

    /// Creates a reply with one call.
    pub fn call(name: impl Into<String>, args: Value) -> ScriptedReply {
        ScriptedReply::new().calls(name, args)
    }

    /// Creates a reply with a status other than 200 and the wire format's error object.
    pub fn status(status: u16) -> ScriptedReply {
        ScriptedReply { instead: Some(Instead::Status(status, None)), ..ScriptedReply::default() }
    }

    /// Creates a page of HTML, as from a proxy.
    pub fn html(status: u16) -> ScriptedReply {
        let page = format!(
            "<!DOCTYPE html><html><head><title>{status} Bad Gateway</title></head><body>{}</body></html>",
            "<div>The upstream server did not answer.</div>".repeat(500)
        );
        ScriptedReply::status(status).body("text/html", page)
    }

    /// Creates a stream with status 200 and these bytes as its body.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> ScriptedReply {
        ScriptedReply { instead: Some(Instead::Raw(bytes.into())), ..ScriptedReply::default() }
    }

    /// Creates a stream that ends without content.
    pub fn nothing() -> ScriptedReply {
        ScriptedReply::raw("")
    }

    /// Creates a connection reset before any header.
    pub fn reset() -> ScriptedReply {
        ScriptedReply { instead: Some(Instead::Reset), ..ScriptedReply::default() }
    }

    /// Creates a reply that never sends anything.
    pub fn stall() -> ScriptedReply {
        ScriptedReply { instead: Some(Instead::Stall), ..ScriptedReply::default() }
    }

    /// Creates a redirect (307) to another URL.
    pub fn redirect(to: &str) -> ScriptedReply {
        ScriptedReply::status(307).header("location", to)
    }

    /// Creates the response after the end of the script: a 500 that must not be retried.
    pub fn exhausted(why: &str) -> ScriptedReply {
        let body = serde_json::json!({"type": "error",
            "error": {"type": "script_exhausted", "message": format!("scripted model: {why}")}});
        ScriptedReply::status(500)
            .body("application/json", body.to_string())
            .header("x-should-retry", "false")
    }

    /// Adds text.
    #[must_use]
    pub fn then_says(self, text: impl Into<String>) -> ScriptedReply {
        self.with(ReplyPart::Text(text.into()))
    }

    /// Adds thinking text.
    #[must_use]
    pub fn thinks(self, text: impl Into<String>) -> ScriptedReply {
        self.with(ReplyPart::Thought(text.into()))
    }

    /// Adds redacted thinking (`redacted_thinking`).
    #[must_use]
    pub fn thinks_sealed(self, data: impl Into<String>) -> ScriptedReply {
        self.with(ReplyPart::Sealed(data.into()))
    }

    /// Adds a call.
    #[must_use]
    pub fn calls(self, name: impl Into<String>, args: Value) -> ScriptedReply {
        self.calls_raw(name, args.to_string())
    }

    /// Adds a call with these arguments as text, which need not be JSON.
    #[must_use]
    pub fn calls_raw(self, name: impl Into<String>, args: impl Into<String>) -> ScriptedReply {
        self.with(ReplyPart::Call { id: String::new(), name: name.into(), args: args.into() })
    }

    /// Adds an error event inside the stream, which ends it.
    #[must_use]
    pub fn error_event(self, kind: &str, message: &str) -> ScriptedReply {
        self.with(ReplyPart::Error { kind: kind.to_owned(), message: message.to_owned() })
    }

    /// Adds text that contains a byte which is not UTF-8.
    #[must_use]
    pub fn invalid_utf8(self) -> ScriptedReply {
        self.then_says(super::wire::INVALID.to_string())
    }

    /// Adds text of this many bytes in one line.
    #[must_use]
    pub fn long_line(self, bytes: usize) -> ScriptedReply {
        self.then_says("x".repeat(bytes))
    }

    /// Sets the tokens that the reply reports.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64) -> ScriptedReply {
        self.tokens = ReplyTokens { input, output, ..self.tokens };
        self
    }

    /// Sets the cached tokens that the reply reports.
    #[must_use]
    pub fn cached(mut self, read: u64, write: u64) -> ScriptedReply {
        self.tokens = ReplyTokens { cache_read: read, cache_write: write, ..self.tokens };
        self
    }

    /// Sets the stop reason, in the wire format.
    #[must_use]
    pub fn stops(mut self, reason: &str) -> ScriptedReply {
        self.stop = Some(reason.to_owned());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> ScriptedReply {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds `retry-after` in seconds.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> ScriptedReply {
        self.header("retry-after", &seconds.to_string())
    }

    /// Sets the body of a status.
    #[must_use]
    pub fn body(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> ScriptedReply {
        if let Some(Instead::Status(_, content)) = &mut self.instead {
            *content = Some((content_type.to_owned(), body.into()));
        }
        self
    }

    /// Closes the connection after this many bytes of the body.
    #[must_use]
    pub fn cut_after(self, bytes: usize) -> ScriptedReply {
        self.ends(bytes, ReplyEnd::Cut)
    }

    /// Resets the connection after this many bytes of the body.
    #[must_use]
    pub fn reset_after(self, bytes: usize) -> ScriptedReply {
        self.ends(bytes, ReplyEnd::Reset)
    }

    /// Sends nothing after this many bytes of the body.
    #[must_use]
    pub fn stall_after(self, bytes: usize) -> ScriptedReply {
        self.ends(bytes, ReplyEnd::Stall)
    }

    /// Sends the body in chunks of this many bytes.
    #[must_use]
    pub fn in_chunks_of(mut self, bytes: usize) -> ScriptedReply {
        self.delivery.chunk = Some(bytes.max(1));
        self
    }

    /// Holds each chunk, and the end, until the gate opens for it.
    #[must_use]
    pub fn gate(mut self, gate: &ReplyGate) -> ScriptedReply {
        self.delivery.gate = Some(gate.clone());
        self
    }

    /// Delays the first byte, as a model would; for benchmarks.
    #[must_use]
    pub fn delay(mut self, time: Duration) -> ScriptedReply {
        self.delivery.delay = Some(time);
        self
    }

    /// Compresses the body.
    #[must_use]
    pub fn gzip(mut self) -> ScriptedReply {
        self.delivery.gzip = true;
        self
    }

    /// Answers with one JSON object, even if a stream was requested.
    #[must_use]
    pub fn whole(mut self) -> ScriptedReply {
        self.delivery.whole = true;
        self
    }

    fn ends(mut self, bytes: usize, end: ReplyEnd) -> ScriptedReply {
        self.delivery.end = Some((bytes, end));
        self
    }

    fn with(mut self, said: ReplyPart) -> ScriptedReply {
        self.parts.push(said);
        self
    }
}
