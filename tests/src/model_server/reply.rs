//! One reply of the scripted model: what it says, and how the connection misbehaves.

use std::time::Duration;

use serde_json::Value;

use super::gate::ReplyGate;

/// One reply.
#[derive(Clone, Debug, Default)]
pub struct ScriptedReply {
    /// What is said, in order.
    pub parts: Vec<ReplyPart>,
    /// Tokens.
    pub tokens: ReplyTokens,
    /// The stop reason as the wire has it, instead of the one that fits the parts.
    pub stop: Option<String>,
    /// Something else than a reply in the wire's format.
    pub instead: Option<Instead>,
    /// Headers in addition.
    pub headers: Vec<(String, String)>,
    /// How the bytes go out.
    pub delivery: Delivery,
}

/// A piece of a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplyPart {
    /// Words; consecutive ones share a block, each is one delta.
    Text(String),
    /// Thought.
    Thought(String),
    /// A sealed thought, as the anthropic wire has it; the other wire leaves it out.
    Sealed(String),
    /// A call with its arguments as text, which need not be JSON.
    Call {
        /// The id; made from the request's number when empty.
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

/// Token counts that a reply reports.
#[derive(Clone, Copy, Debug)]
pub struct ReplyTokens {
    /// Input that no cache held.
    pub input: u64,
    /// Output.
    pub output: u64,
    /// Read from the cache.
    pub cache_read: u64,
    /// Written to the cache.
    pub cache_write: u64,
}

impl Default for ReplyTokens {
    fn default() -> ReplyTokens {
        ReplyTokens { input: 10, output: 5, cache_read: 0, cache_write: 0 }
    }
}

/// Something else than a reply in the wire's format.
#[derive(Clone, Debug)]
pub enum Instead {
    /// A status with a body of the given type; without a body, the wire's error object.
    Status(u16, Option<(String, Vec<u8>)>),
    /// These bytes as the body of a stream with status 200.
    Raw(Vec<u8>),
    /// The connection is reset before any header.
    Reset,
    /// Nothing is ever sent.
    Stall,
}

/// How the bytes of the body go out.
#[derive(Clone, Debug, Default)]
pub struct Delivery {
    /// Chunks of so many bytes instead of one per piece.
    pub chunk: Option<usize>,
    /// What happens after so many bytes of the body.
    pub end: Option<(usize, ReplyEnd)>,
    /// Holds each chunk until it is opened.
    pub gate: Option<ReplyGate>,
    /// A pause before the first byte, for benchmarks.
    pub delay: Option<Duration>,
    /// Compresses the body.
    pub gzip: bool,
    /// Answers a streamed request with one JSON object.
    pub whole: bool,
}

/// How a body ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEnd {
    /// The connection is closed in good order, the body not being complete.
    Cut,
    /// The connection is reset.
    Reset,
    /// Nothing more is sent.
    Stall,
}

impl ScriptedReply {
    /// Returns an empty reply to build on.
    pub fn new() -> ScriptedReply {
        ScriptedReply::default()
    }

    /// Returns a reply of words.
    pub fn says(text: impl Into<String>) -> ScriptedReply {
        ScriptedReply::new().then_says(text)
    }

    /// Returns a reply of one call.
    pub fn call(name: impl Into<String>, args: Value) -> ScriptedReply {
        ScriptedReply::new().calls(name, args)
    }

    /// Returns a reply with another status than 200 and the wire's error object.
    pub fn status(status: u16) -> ScriptedReply {
        ScriptedReply { instead: Some(Instead::Status(status, None)), ..ScriptedReply::default() }
    }

    /// Returns a page of HTML, as a proxy in between would send it.
    pub fn html(status: u16) -> ScriptedReply {
        let page = format!(
            "<!DOCTYPE html><html><head><title>{status} Bad Gateway</title></head><body>{}</body></html>",
            "<div>The upstream server did not answer.</div>".repeat(500)
        );
        ScriptedReply::status(status).body("text/html", page)
    }

    /// These bytes as the body of a stream with status 200.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> ScriptedReply {
        ScriptedReply { instead: Some(Instead::Raw(bytes.into())), ..ScriptedReply::default() }
    }

    /// Returns a stream that ends before it says anything.
    pub fn nothing() -> ScriptedReply {
        ScriptedReply::raw("")
    }

    /// Returns the connection is reset before any header.
    pub fn reset() -> ScriptedReply {
        ScriptedReply { instead: Some(Instead::Reset), ..ScriptedReply::default() }
    }

    /// Nothing is ever sent.
    pub fn stall() -> ScriptedReply {
        ScriptedReply { instead: Some(Instead::Stall), ..ScriptedReply::default() }
    }

    /// Returns a redirect (307) to another address.
    pub fn redirect(to: &str) -> ScriptedReply {
        ScriptedReply::status(307).header("location", to)
    }

    /// Returns what is answered when the script is at its end: a 500 that asks not to be retried.
    pub fn exhausted(why: &str) -> ScriptedReply {
        let body = serde_json::json!({"type": "error",
            "error": {"type": "script_exhausted", "message": format!("scripted model: {why}")}});
        ScriptedReply::status(500)
            .body("application/json", body.to_string())
            .header("x-should-retry", "false")
    }

    /// Adds words.
    #[must_use]
    pub fn then_says(self, text: impl Into<String>) -> ScriptedReply {
        self.with(ReplyPart::Text(text.into()))
    }

    /// Adds thought.
    #[must_use]
    pub fn thinks(self, text: impl Into<String>) -> ScriptedReply {
        self.with(ReplyPart::Thought(text.into()))
    }

    /// Adds a sealed thought (`redacted_thinking`).
    #[must_use]
    pub fn thinks_sealed(self, data: impl Into<String>) -> ScriptedReply {
        self.with(ReplyPart::Sealed(data.into()))
    }

    /// Adds a call.
    #[must_use]
    pub fn calls(self, name: impl Into<String>, args: Value) -> ScriptedReply {
        self.calls_raw(name, args.to_string())
    }

    /// Adds a call whose arguments are this text, which need not be JSON.
    #[must_use]
    pub fn calls_raw(self, name: impl Into<String>, args: impl Into<String>) -> ScriptedReply {
        self.with(ReplyPart::Call { id: String::new(), name: name.into(), args: args.into() })
    }

    /// Adds an error event inside the stream, which ends it.
    #[must_use]
    pub fn error_event(self, kind: &str, message: &str) -> ScriptedReply {
        self.with(ReplyPart::Error { kind: kind.to_owned(), message: message.to_owned() })
    }

    /// Adds words that contain a byte which is no UTF-8.
    #[must_use]
    pub fn invalid_utf8(self) -> ScriptedReply {
        self.then_says(super::wire::INVALID.to_string())
    }

    /// Adds words of so many bytes in one line.
    #[must_use]
    pub fn long_line(self, bytes: usize) -> ScriptedReply {
        self.then_says("x".repeat(bytes))
    }

    /// Returns the tokens that the reply reports.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64) -> ScriptedReply {
        self.tokens = ReplyTokens { input, output, ..self.tokens };
        self
    }

    /// Returns the cached tokens that the reply reports.
    #[must_use]
    pub fn cached(mut self, read: u64, write: u64) -> ScriptedReply {
        self.tokens = ReplyTokens { cache_read: read, cache_write: write, ..self.tokens };
        self
    }

    /// Returns the stop reason, as the wire writes it.
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

    /// `retry-after` in seconds.
    #[must_use]
    pub fn retry_after(self, seconds: u64) -> ScriptedReply {
        self.header("retry-after", &seconds.to_string())
    }

    /// Returns the body of a status.
    #[must_use]
    pub fn body(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> ScriptedReply {
        if let Some(Instead::Status(_, content)) = &mut self.instead {
            *content = Some((content_type.to_owned(), body.into()));
        }
        self
    }

    /// Closes the connection after so many bytes of the body.
    #[must_use]
    pub fn cut_after(self, bytes: usize) -> ScriptedReply {
        self.ends(bytes, ReplyEnd::Cut)
    }

    /// Resets the connection after so many bytes of the body.
    #[must_use]
    pub fn reset_after(self, bytes: usize) -> ScriptedReply {
        self.ends(bytes, ReplyEnd::Reset)
    }

    /// Sends nothing more after so many bytes of the body.
    #[must_use]
    pub fn stall_after(self, bytes: usize) -> ScriptedReply {
        self.ends(bytes, ReplyEnd::Stall)
    }

    /// Sends the body in chunks of so many bytes.
    #[must_use]
    pub fn in_chunks_of(mut self, bytes: usize) -> ScriptedReply {
        self.delivery.chunk = Some(bytes.max(1));
        self
    }

    /// Holds each piece, and the end, until the gate opens for it.
    #[must_use]
    pub fn gate(mut self, gate: &ReplyGate) -> ScriptedReply {
        self.delivery.gate = Some(gate.clone());
        self
    }

    /// Waits before the first byte, as a model would; for benchmarks.
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

    /// Answers with one JSON object, also when a stream was asked for.
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
