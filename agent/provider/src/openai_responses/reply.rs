//! Decodes a reply in the responses format: items that grow by events and are sent again when they
//! are complete.

use std::collections::BTreeMap;

use base::event::Usage;
use serde_json::{Value, json};

use crate::error::ProviderError;
use crate::hosted::{ReplyDecoder, ReplyProgress, parse_object};
use crate::message::{ContentPart, Message, MessageRole, Reply, StopReason};
use crate::provider::{Delta, OnDelta};
use crate::tool_args::{self, CallIds};
use crate::{http_error, sse};

/// A reply being decoded.
#[derive(Debug)]
pub(crate) struct ResponsesDecoder {
    ids: CallIds,
    /// Items by their output index.
    items: BTreeMap<u64, Item>,
    usage: Usage,
    end: Option<End>,
}

/// An item: text, reasoning or a call.
#[derive(Debug, Default)]
struct Item {
    /// The item as last sent: first only its header, at the end complete.
    raw: Value,
    /// Text, reasoning or arguments that arrived in deltas.
    streamed: String,
    /// Whether the complete item was sent.
    decode_whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    Cut,
    Refused,
}

impl ReplyDecoder for ResponsesDecoder {
    fn event(
        &mut self,
        event: &sse::SseEvent,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<ReplyProgress, ProviderError> {
        if let Some(data) = parse_object(event)? {
            self.take(data["type"].as_str().unwrap_or(&event.name), &data, on_delta)?;
        }
        Ok(self.progress())
    }

    fn decode_whole(
        &mut self,
        body: &Value,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<ReplyProgress, ProviderError> {
        let kind = body["status"].as_str().unwrap_or("completed");
        self.finish(&format!("response.{kind}"), body, on_delta)?;
        Ok(self.progress())
    }

    fn reply(self: Box<Self>) -> Option<Reply> {
        let ResponsesDecoder { mut ids, items, usage, end } = *self;
        let end = end?;
        let parts = items.into_values().flat_map(|item| item.parts(&mut ids)).collect();
        let message = Message { role: MessageRole::Assistant, parts };
        let stop = match end {
            End::Cut => StopReason::Length,
            End::Refused => StopReason::Refused,
            End::Complete if message.calls().next().is_some() => StopReason::Calls,
            End::Complete => StopReason::Done,
        };
        Some(Reply { message, usage, stop })
    }
}

impl ResponsesDecoder {
    /// Creates a decoder that assigns ids to calls without one.
    pub(crate) fn new(ids: CallIds) -> ResponsesDecoder {
        ResponsesDecoder { ids, items: BTreeMap::new(), usage: Usage::default(), end: None }
    }

    fn progress(&self) -> ReplyProgress {
        if self.end.is_some() { ReplyProgress::Over } else { ReplyProgress::Open }
    }

    fn take(
        &mut self,
        kind: &str,
        event: &Value,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<(), ProviderError> {
        match kind {
            "error" if !event["error"].is_null() => return Err(http_error::in_stream(event)),
            "error" => {
                let (kind, message) = (&event["code"], &event["message"]);
                return Err(http_error::in_stream(&json!({"type": kind, "message": message})));
            }
            "response.output_item.added" => {
                let item = self.item(event);
                item.raw = event["item"].clone();
                item.streamed.clear();
                on_delta(Delta::Ping);
            }
            "response.output_item.done" => self.item(event).close(&event["item"], on_delta),
            "response.output_text.delta" | "response.refusal.delta" => {
                let append_delta = self.item(event).append_delta(event);
                on_delta(Delta::Text(append_delta));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let append_delta = self.item(event).append_delta(event);
                on_delta(Delta::Reasoning(append_delta));
            }
            // The parts of a reasoning summary are paragraphs.
            "response.reasoning_summary_part.added" => {
                let item = self.item(event);
                if !item.streamed.is_empty() {
                    item.streamed.push_str("\n\n");
                    on_delta(Delta::Reasoning("\n\n"));
                }
            }
            "response.function_call_arguments.delta" => {
                self.item(event).append_delta(event);
                on_delta(Delta::Ping);
            }
            "response.function_call_arguments.done" => {
                let all = event["arguments"].as_str().map(str::to_owned);
                let item = self.item(event);
                item.streamed = all.unwrap_or_else(|| std::mem::take(&mut item.streamed));
                item.decode_whole = true;
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => self.finish(kind, &event["response"], on_delta)?,
            _ if !event["error"].is_null() => return Err(http_error::in_stream(event)),
            _ => on_delta(Delta::Ping),
        }
        Ok(())
    }

    fn item(&mut self, event: &Value) -> &mut Item {
        self.items.entry(event["output_index"].as_u64().unwrap_or_default()).or_default()
    }

    /// Handles the final event, which usually carries the complete reply.
    fn finish(
        &mut self,
        kind: &str,
        response: &Value,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<(), ProviderError> {
        if response["error"].is_object() || kind == "response.failed" {
            return Err(http_error::in_stream(response));
        }
        for (index, item) in response["output"].as_array().into_iter().flatten().enumerate() {
            let known = self.items.entry(index as u64).or_default();
            if !known.decode_whole {
                known.close(item, on_delta);
            }
        }
        let usage = &response["usage"];
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        let cached = count(&usage["input_tokens_details"]["cached_tokens"]);
        self.usage.cache_read = cached;
        self.usage.input = count(&usage["input_tokens"]).saturating_sub(cached);
        self.usage.output = count(&usage["output_tokens"]);
        let reason = response["incomplete_details"]["reason"].as_str().unwrap_or_default();
        self.end = Some(match kind {
            "response.incomplete" if reason == "content_filter" => End::Refused,
            "response.incomplete" => End::Cut,
            "response.cancelled" => {
                return Err(ProviderError::Broken("the server cancelled the reply".to_owned()));
            }
            _ => End::Complete,
        });
        Ok(())
    }
}

impl Item {
    fn append_delta<'e>(&mut self, event: &'e Value) -> &'e str {
        let append_delta = event["delta"].as_str().unwrap_or_default();
        self.streamed.push_str(append_delta);
        append_delta
    }

    /// Stores the complete item. Text that did not arrive in deltas is passed on now.
    fn close(&mut self, item: &Value, on_delta: &mut OnDelta<'_>) {
        self.raw = item.clone();
        self.decode_whole = true;
        let all = match item["type"].as_str() {
            Some("message") => texts(&item["content"], &["text", "refusal"], ""),
            Some("reasoning") => {
                let summary = texts(&item["summary"], &["text"], "\n\n");
                let content = texts(&item["content"], &["text"], "\n\n");
                if summary.is_empty() { content } else { summary }
            }
            Some("function_call") => {
                let arguments = item["arguments"].as_str().filter(|text| !text.is_empty());
                self.streamed =
                    arguments.map_or_else(|| std::mem::take(&mut self.streamed), str::to_owned);
                return;
            }
            _ => return,
        };
        let Some(append_delta) =
            all.strip_prefix(&self.streamed).filter(|append_delta| !append_delta.is_empty())
        else {
            return;
        };
        let is_thought = item["type"] == "reasoning";
        on_delta(if is_thought {
            Delta::Reasoning(append_delta)
        } else {
            Delta::Text(append_delta)
        });
        self.streamed = all;
    }

    fn parts(self, ids: &mut CallIds) -> Option<ContentPart> {
        let field = |key: &str| self.raw[key].as_str().unwrap_or_default().to_owned();
        match self.raw["type"].as_str() {
            Some("message") => Some(ContentPart::Text { text: self.streamed }),
            Some("reasoning") => {
                let sealed = self.decode_whole.then(|| sealed(&self.raw)).flatten();
                Some(ContentPart::Reasoning { text: self.streamed, sealed })
            }
            Some("function_call") => {
                let id = ids.unique(&field("call_id"));
                let is_truncated = !self.decode_whole || self.raw["status"] == "incomplete";
                Some(ContentPart::Call(if is_truncated {
                    tool_args::malformed(id, field("name"), &self.streamed)
                } else {
                    tool_args::call(id, field("name"), &self.streamed)
                }))
            }
            // Text of a server that sends no items.
            None if !self.streamed.is_empty() => Some(ContentPart::Text { text: self.streamed }),
            // Item types that g3 does not offer.
            Some(_) | None => None,
        }
    }
}

/// Returns the reasoning item to send back, or `None` if only the server could look it up.
fn sealed(item: &Value) -> Option<Value> {
    item["encrypted_content"].as_str().filter(|text| !text.is_empty())?;
    let mut saved_item = json!({ "type": "reasoning" });
    for key in ["id", "summary", "encrypted_content"] {
        if !item[key].is_null() {
            saved_item[key] = item[key].clone();
        }
    }
    Some(json!({ "item": saved_item }))
}

fn texts(parts: &Value, keys: &[&str], separator: &str) -> String {
    let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = parts.iter().filter_map(|part| keys.iter().find_map(|key| part[*key].as_str()));
    texts.collect::<Vec<_>>().join(separator)
}
