//! Decodes a reply in the chat completions format, chunk by chunk, and tolerates the deviations of
//! the many servers that use it.

use base::event::Usage;
use serde_json::{Map, Value, json};

use crate::error::ProviderError;
use crate::hosted::{ReplyDecoder, ReplyProgress, parse_object};
use crate::message::{ContentPart, Message, MessageRole, Reply, StopReason};
use crate::provider::{Delta, OnDelta};
use crate::tool_args::{self, CallIds};
use crate::{http_error, sse};

/// The fields in which servers send reasoning.
const REASONING_FIELDS: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];
/// Finish reasons of a reply that the model did not end itself: OpenRouter, DeepSeek, Z.ai, SGLang.
const FAILED_FINISH_REASONS: [&str; 4] =
    ["error", "insufficient_system_resource", "network_error", "abort"];

/// A reply being decoded.
#[derive(Debug)]
pub(crate) struct ChatDecoder {
    ids: CallIds,
    pieces: Vec<DeltaPart>,
    /// The highest call index so far.
    last_index: Option<u64>,
    details: Vec<Value>,
    usage: Usage,
    finish: Option<String>,
    over: bool,
}

#[derive(Debug)]
enum DeltaPart {
    Text(String),
    Thought {
        field: String,
        text: String,
    },
    /// Reasoning as a content block, with its signature.
    Block {
        text: String,
        block: Value,
    },
    Call(Slot),
}

/// A call being decoded. Its id and name come with its first delta, or with every delta.
#[derive(Debug)]
struct Slot {
    index: Option<u64>,
    id: String,
    name: String,
    args: String,
    /// Fields of the service that are sent back with the call (`extra_content`), for example the
    /// signature that Gemini requires.
    extra: Map<String, Value>,
}

impl ReplyDecoder for ChatDecoder {
    fn event(
        &mut self,
        event: &sse::SseEvent,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<ReplyProgress, ProviderError> {
        match parse_object(event)? {
            Some(chunk) => self.chunk(&chunk, event.name == "error", on_delta)?,
            None => self.over |= event.data.trim() == "[DONE]",
        }
        Ok(self.progress())
    }

    fn decode_whole(
        &mut self,
        body: &Value,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<ReplyProgress, ProviderError> {
        self.chunk(body, false, on_delta)?;
        self.over = self.finish.is_some();
        Ok(self.progress())
    }

    fn reply(self: Box<Self>) -> Option<Reply> {
        let ChatDecoder { mut ids, pieces, details, usage, finish, over, .. } = *self;
        // A server that sends `[DONE]` after text has finished, even without a finish reason.
        let finish = finish.or_else(|| (over && !pieces.is_empty()).then(String::new))?;
        let is_truncated = matches!(finish.as_str(), "length" | "max_tokens" | "model_length");
        let count = pieces.len();
        let mut parts: Vec<ContentPart> = pieces
            .into_iter()
            .enumerate()
            .flat_map(|(index, piece)| piece.parts(&mut ids, is_truncated && index + 1 == count))
            .collect();
        if !details.is_empty() {
            let sealed = Some(json!({ "reasoning_details": details }));
            parts.insert(0, ContentPart::Reasoning { text: String::new(), sealed });
        }
        let message = Message { role: MessageRole::Assistant, parts };
        let stop = match finish.as_str() {
            _ if is_truncated => StopReason::Length,
            "content_filter" | "sensitive" => StopReason::Refused,
            _ if message.calls().next().is_some() => StopReason::Calls,
            _ => StopReason::Done,
        };
        Some(Reply { message, usage, stop })
    }
}

impl DeltaPart {
    fn parts(self, ids: &mut CallIds, is_truncated: bool) -> Vec<ContentPart> {
        match self {
            DeltaPart::Text(text) => vec![ContentPart::Text { text }],
            DeltaPart::Thought { field, text } => {
                vec![ContentPart::Reasoning { text, sealed: Some(json!({ "field": field })) }]
            }
            DeltaPart::Block { text, block } => {
                vec![ContentPart::Reasoning { text, sealed: Some(json!({ "block": block })) }]
            }
            DeltaPart::Call(slot) => slot.parts(ids, is_truncated),
        }
    }
}

impl ChatDecoder {
    /// Creates a decoder that assigns ids to calls without one.
    pub(crate) fn new(ids: CallIds) -> ChatDecoder {
        let (pieces, details) = (Vec::new(), Vec::new());
        let usage = Usage::default();
        ChatDecoder { ids, pieces, last_index: None, details, usage, finish: None, over: false }
    }

    fn progress(&self) -> ReplyProgress {
        match (self.over, &self.finish) {
            (true, _) => ReplyProgress::Over,
            (false, Some(_)) => ReplyProgress::Complete,
            (false, None) => ReplyProgress::Open,
        }
    }

    fn chunk(
        &mut self,
        chunk: &Value,
        is_error: bool,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<(), ProviderError> {
        // vLLM and Databricks put the error in the chunk itself.
        let is_error = is_error || chunk["object"] == "error" || chunk["error_code"].is_string();
        if is_error || !chunk["error"].is_null() {
            return Err(http_error::in_stream(chunk));
        }
        self.count(&chunk["usage"]);
        // If a stream has several choices, only the first one is the reply.
        let mut choices = chunk["choices"].as_array().into_iter().flatten();
        let is_first = |choice: &&Value| choice["index"].as_u64().unwrap_or_default() == 0;
        let Some(choice) = choices.find(is_first) else {
            on_delta(Delta::Ping);
            return Ok(());
        };
        self.count(&choice["usage"]);
        // A complete reply has `message` where a chunk has `delta`.
        let delta = if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
        if self.finish.is_none() || choice["finish_reason"].is_null() {
            self.delta(delta, on_delta);
        }
        if let Some(reason) = choice["finish_reason"].as_str().filter(|text| !text.is_empty()) {
            if FAILED_FINISH_REASONS.contains(&reason) {
                return Err(ProviderError::Broken(format!("the server broke off ({reason})")));
            }
            self.finish.get_or_insert_with(|| reason.to_owned());
        }
        Ok(())
    }

    /// Updates the usage. Counts are totals; some servers send them with every chunk, with gaps.
    /// The prompt tokens include the cached ones, where that is consistent.
    fn count(&mut self, usage: &Value) {
        let number = |key: &str| usage[key].as_u64();
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
        let cached = cached.or(number("prompt_cache_hit_tokens"));
        let cached = cached.or(number("cache_read_input_tokens")).unwrap_or_default();
        if let Some(prompt) = number("prompt_tokens") {
            let read = cached.min(prompt);
            let written = number("cache_creation_input_tokens").unwrap_or_default();
            self.usage.cache_read = read;
            self.usage.cache_write = written.min(prompt - read);
            self.usage.input = prompt - read - self.usage.cache_write;
        }
        if let Some(tokens) = number("completion_tokens") {
            self.usage.output = tokens;
        }
    }

    fn delta(&mut self, delta: &Value, on_delta: &mut OnDelta<'_>) {
        let mut thought =
            REASONING_FIELDS.iter().filter_map(|key| Some((*key, delta[*key].as_str()?)));
        if let Some((field, text)) = thought.find(|(_, text)| !text.is_empty()) {
            self.thought(field, text, on_delta);
        }
        for detail in delta["reasoning_details"].as_array().into_iter().flatten() {
            self.detail(detail);
        }
        match &delta["content"] {
            Value::String(text) => self.text(text, on_delta),
            Value::Array(parts) => parts.iter().for_each(|part| self.content(part, on_delta)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }
        if let Some(text) = delta["refusal"].as_str() {
            self.text(text, on_delta);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call);
            on_delta(Delta::Ping);
        }
    }

    /// Decodes a part of a content list. Databricks and Mistral send reasoning blocks this way.
    fn content(&mut self, part: &Value, on_delta: &mut OnDelta<'_>) {
        let (kind, key) = match part["type"].as_str() {
            Some("reasoning") => ("reasoning", "summary"),
            Some("thinking") => ("thinking", "thinking"),
            Some(_) | None => {
                return self.text(part["text"].as_str().unwrap_or_default(), on_delta);
            }
        };
        for piece in part[key].as_array().into_iter().flatten() {
            self.block(kind, key, piece, on_delta);
        }
    }

    /// Decodes a piece of a reasoning block. Pieces of the same kind are joined; a signature closes
    /// the block.
    fn block(&mut self, kind: &str, key: &str, item: &Value, on_delta: &mut OnDelta<'_>) {
        let more = item["text"].as_str().unwrap_or_default();
        if !more.is_empty() {
            on_delta(Delta::Reasoning(more));
        }
        let Some(DeltaPart::Block { text, block }) = self.pieces.last_mut() else {
            let block = json!({"type": kind, key: [item]});
            self.pieces.push(DeltaPart::Block { text: more.to_owned(), block });
            return;
        };
        text.push_str(more);
        let Some(pieces) = block[key].as_array_mut() else { return };
        match pieces.last_mut().filter(|last| last["type"] == item["type"]) {
            Some(last) => merge(last, item),
            None => pieces.push(item.clone()),
        }
    }

    fn text(&mut self, more: &str, on_delta: &mut OnDelta<'_>) {
        if more.is_empty() {
            return;
        }
        match self.pieces.last_mut() {
            Some(DeltaPart::Text(text)) => text.push_str(more),
            Some(DeltaPart::Thought { .. } | DeltaPart::Block { .. } | DeltaPart::Call(_))
            | None => {
                self.pieces.push(DeltaPart::Text(more.to_owned()));
            }
        }
        on_delta(Delta::Text(more));
    }

    fn thought(&mut self, name: &str, more: &str, on_delta: &mut OnDelta<'_>) {
        if more.is_empty() {
            return;
        }
        match self.pieces.last_mut() {
            Some(DeltaPart::Thought { field, text }) if field == name => text.push_str(more),
            Some(_) | None => {
                let (field, text) = (name.to_owned(), more.to_owned());
                self.pieces.push(DeltaPart::Thought { field, text });
            }
        }
        on_delta(Delta::Reasoning(more));
    }

    /// Decodes OpenRouter's reasoning blocks. Those with the same index are pieces of one block.
    fn detail(&mut self, detail: &Value) {
        let is_same = |other: &&mut Value| {
            !detail["index"].is_null()
                && other["index"] == detail["index"]
                && other["type"] == detail["type"]
        };
        let Some(earlier) = self.details.iter_mut().find(is_same) else {
            self.details.push(detail.clone());
            return;
        };
        merge(earlier, detail);
    }

    fn call(&mut self, piece: &Value) {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (id, name) = (word(&piece["id"]), word(&piece["function"]["name"]));
        let args = match &piece["function"]["arguments"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let extra = piece["extra_content"].as_object().cloned().unwrap_or_default();
        let index = piece["index"].as_u64();
        let slots = self.pieces.iter_mut().rev().filter_map(|piece| match piece {
            DeltaPart::Call(slot) => Some(slot),
            DeltaPart::Text(_) | DeltaPart::Thought { .. } | DeltaPart::Block { .. } => None,
        });
        // An index above all others belongs to a new call. This avoids a search, which would take
        // longer with each call of a reply.
        let is_new = index.is_some() && index > self.last_index;
        self.last_index = self.last_index.max(index);
        let mut slots = slots.filter(|slot| index.is_none() || slot.index == index);
        let open_slot = if is_new { None } else { slots.next() };
        match open_slot.filter(|slot| slot.continues(&id, &name)) {
            Some(slot) => {
                slot.args.push_str(&args);
                slot.extra.extend(extra);
            }
            None => self.pieces.push(DeltaPart::Call(Slot { index, id, name, args, extra })),
        }
    }
}

/// Merges a piece into its block: strings are appended, other values are replaced.
fn merge(earlier: &mut Value, piece: &Value) {
    for (key, value) in piece.as_object().into_iter().flatten() {
        match (value, &earlier[key]) {
            (Value::Null, _) => {}
            (Value::String(more), Value::String(text))
                if ["text", "summary", "data", "signature"].contains(&key.as_str()) =>
            {
                earlier[key] = json!(format!("{text}{more}"));
            }
            _ => earlier[key] = value.clone(),
        }
    }
}

impl Slot {
    /// Whether a delta continues this call. Some servers give every call the index 0: a name with
    /// another id starts another call, and so does a name after complete arguments. Other servers
    /// send a new id with every delta, without a name.
    fn continues(&self, id: &str, name: &str) -> bool {
        if !id.is_empty() && !self.id.is_empty() && (id == self.id || !name.is_empty()) {
            return id == self.id;
        }
        let is_complete = !self.args.is_empty() && tool_args::object(&self.args).is_some();
        name.is_empty() || (name == self.name && !is_complete)
    }

    /// Returns the call, after its extra content.
    fn parts(self, ids: &mut CallIds, is_truncated: bool) -> Vec<ContentPart> {
        let extra = (!self.extra.is_empty()).then(|| ContentPart::Reasoning {
            text: String::new(),
            sealed: Some(json!({ "extra_content": self.extra })),
        });
        let id = ids.unique(&self.id);
        let call = if is_truncated && self.args.trim().is_empty() {
            tool_args::malformed(id, self.name, &self.args)
        } else {
            tool_args::call(id, self.name, &self.args)
        };
        extra.into_iter().chain([ContentPart::Call(call)]).collect()
    }
}
