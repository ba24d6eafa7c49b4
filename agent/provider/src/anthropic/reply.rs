//! Decodes a reply in the Messages format, event by event.

use base::event::Usage;
use serde_json::{Value, json};

use crate::error::ProviderError;
use crate::hosted::{ReplyDecoder, ReplyProgress, parse_object};
use crate::message::{ContentPart, Message, MessageRole, Reply, StopReason, ToolCall};
use crate::provider::{Delta, OnDelta};
use crate::tool_args::{self, CallIds};
use crate::{http_error, sse};

/// A reply being decoded.
#[derive(Debug)]
pub(crate) struct MessagesDecoder {
    ids: CallIds,
    blocks: Vec<Open>,
    usage: Usage,
    stop: Option<StopReason>,
    paused: bool,
    over: bool,
}

/// A content block of the reply. A server that starts over may reuse an index; the newest block
/// wins.
#[derive(Debug)]
struct Open {
    index: u64,
    block: Block,
}

#[derive(Debug)]
enum Block {
    Text(String),
    Thought { block: Value, text: String, signature: String },
    Sealed(Value),
    Call { id: String, name: String, start: Value, json: String },
    Unknown,
}

impl ReplyDecoder for MessagesDecoder {
    fn event(
        &mut self,
        event: &sse::SseEvent,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<ReplyProgress, ProviderError> {
        let Some(data) = parse_object(event)? else {
            return Ok(self.progress());
        };
        match data["type"].as_str().unwrap_or(&event.name) {
            "message_start" => self.count(&data["message"]["usage"]),
            "content_block_start" => self.start(&data, on_delta),
            "content_block_delta" => self.delta(&data, on_delta),
            "message_delta" => {
                self.count(&data["usage"]);
                self.end(&data["delta"]);
            }
            "message_stop" => self.over = true,
            "error" => return Err(http_error::in_stream(&data)),
            // `ping`, and events that newer versions of the format add.
            _ => on_delta(Delta::Ping),
        }
        Ok(self.progress())
    }

    fn decode_whole(
        &mut self,
        body: &Value,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<ReplyProgress, ProviderError> {
        self.count(&body["usage"]);
        for (index, block) in body["content"].as_array().into_iter().flatten().enumerate() {
            self.start(&json!({"index": index, "content_block": block}), on_delta);
        }
        self.end(body);
        self.over = self.stop.is_some();
        Ok(self.progress())
    }

    fn reply(self: Box<Self>) -> Option<Reply> {
        let stop = self.stop?;
        let count = self.blocks.len();
        let mut ids = self.ids;
        let parts = self.blocks.into_iter().enumerate().filter_map(|(index, open)| {
            // The output limit may cut a call before its first delta.
            part(open.block, &mut ids, stop == StopReason::Length && index + 1 == count)
        });
        let message = Message { role: MessageRole::Assistant, parts: parts.collect() };
        let stop = match stop {
            StopReason::Done | StopReason::Calls if message.calls().next().is_some() => {
                StopReason::Calls
            }
            // The service paused the turn (`pause_turn`); the model has more to say.
            StopReason::Done | StopReason::Calls if self.paused => StopReason::Length,
            StopReason::Done | StopReason::Calls => StopReason::Done,
            StopReason::Length | StopReason::Refused => stop,
        };
        Some(Reply { message, usage: self.usage, stop })
    }
}

impl MessagesDecoder {
    /// Creates a decoder that assigns ids to calls without one.
    pub(crate) fn new(ids: CallIds) -> MessagesDecoder {
        let (blocks, usage) = (Vec::new(), Usage::default());
        MessagesDecoder { ids, blocks, usage, stop: None, paused: false, over: false }
    }

    fn progress(&self) -> ReplyProgress {
        match (self.over, self.stop) {
            (true, _) => ReplyProgress::Over,
            (false, Some(_)) => ReplyProgress::Complete,
            (false, None) => ReplyProgress::Open,
        }
    }

    /// Updates the usage. Counts are totals so far. Some servers send 0 at the start, others at the
    /// end, so the maximum of each count is used.
    fn count(&mut self, usage: &Value) {
        let set = |total: &mut u64, key: &str| {
            *total = usage[key].as_u64().unwrap_or_default().max(*total);
        };
        set(&mut self.usage.input, "input_tokens");
        set(&mut self.usage.output, "output_tokens");
        set(&mut self.usage.cache_read, "cache_read_input_tokens");
        set(&mut self.usage.cache_write, "cache_creation_input_tokens");
    }

    fn end(&mut self, delta: &Value) {
        let Some(reason) = delta["stop_reason"].as_str() else { return };
        self.paused = reason == "pause_turn";
        self.stop = Some(match reason {
            "tool_use" => StopReason::Calls,
            "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
            "refusal" => StopReason::Refused,
            // `end_turn`, `stop_sequence` and future values.
            _ => StopReason::Done,
        });
    }

    fn start(&mut self, data: &Value, on_delta: &mut OnDelta<'_>) {
        let block = data["content_block"].clone();
        let field = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
        let block = match block["type"].as_str() {
            Some("text") => {
                let text = field("text");
                if !text.is_empty() {
                    on_delta(Delta::Text(&text));
                }
                Block::Text(text)
            }
            Some("thinking") => {
                if !field("thinking").is_empty() {
                    on_delta(Delta::Reasoning(&field("thinking")));
                }
                thought(&block)
            }
            Some("redacted_thinking") => Block::Sealed(block),
            Some("tool_use") => Block::Call {
                id: field("id"),
                name: field("name"),
                start: block["input"].clone(),
                json: String::new(),
            },
            Some(_) | None => Block::Unknown,
        };
        self.begin(data["index"].as_u64().unwrap_or_default(), block);
    }

    fn begin(&mut self, index: u64, block: Block) {
        self.blocks.push(Open { index, block });
    }

    fn delta(&mut self, data: &Value, on_delta: &mut OnDelta<'_>) {
        let (index, delta) = (data["index"].as_u64().unwrap_or_default(), &data["delta"]);
        // Text and thinking deltas without a preceding block start are accepted too.
        let has_started = self.blocks.iter().rev().any(|open| open.index == index);
        match delta["type"].as_str().filter(|_| !has_started) {
            Some("text_delta") => self.begin(index, Block::Text(String::new())),
            Some("thinking_delta") => self.begin(index, thought(&json!({"type": "thinking"}))),
            Some(_) | None => {}
        }
        let Some(open) = self.blocks.iter_mut().rev().find(|open| open.index == index) else {
            return;
        };
        let field = |key: &str| delta[key].as_str().unwrap_or_default();
        match &mut open.block {
            Block::Text(text) => {
                let new_text = field("text");
                if !new_text.is_empty() {
                    text.push_str(new_text);
                    on_delta(Delta::Text(new_text));
                }
            }
            Block::Thought { text, signature, .. } => {
                let new_text = field("thinking");
                signature.push_str(field("signature"));
                if !new_text.is_empty() {
                    text.push_str(new_text);
                    on_delta(Delta::Reasoning(new_text));
                }
            }
            Block::Call { json, .. } => {
                json.push_str(field("partial_json"));
                on_delta(Delta::Ping);
            }
            Block::Sealed(_) | Block::Unknown => {}
        }
    }
}

fn thought(block: &Value) -> Block {
    let field = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
    let (text, signature) = (field("thinking"), field("signature"));
    Block::Thought { block: block.clone(), text, signature }
}

fn part(block: Block, ids: &mut CallIds, is_truncated: bool) -> Option<ContentPart> {
    match block {
        Block::Text(text) if text.is_empty() => None,
        Block::Text(text) => Some(ContentPart::Text { text }),
        Block::Thought { mut block, text, signature } => {
            block["thinking"] = json!(text);
            block["signature"] = json!(signature);
            Some(ContentPart::Reasoning { text, sealed: Some(block) })
        }
        Block::Sealed(block) => {
            Some(ContentPart::Reasoning { text: String::new(), sealed: Some(block) })
        }
        Block::Call { id, name, start, json } => {
            Some(ContentPart::Call(call(ids.unique(&id), name, start, &json, is_truncated)))
        }
        Block::Unknown => None,
    }
}

fn call(id: String, name: String, start: Value, json: &str, is_truncated: bool) -> ToolCall {
    if !json.is_empty() {
        return tool_args::call(id, name, json);
    }
    match start {
        Value::Object(ref args) if !args.is_empty() => {
            ToolCall { id, name, args: start, malformed: None }
        }
        _ if is_truncated => tool_args::malformed(id, name, ""),
        _ => tool_args::call(id, name, ""),
    }
}
