//! Decodes a reply in the responses format: items that grow by events and are sent again when they
//! are complete.

use std::collections::BTreeMap;

use base::event::Usage;
use serde_json::{Value, json};

use crate::error::ProviderError;
use crate::hosted::{ReplyDecoder, ReplyProgress, object_of};
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
    sent: Value,
    /// Text, reasoning or arguments that arrived in deltas.
    heard: String,
    /// Whether the complete item was sent.
    whole: bool,
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
        hear: &mut OnDelta<'_>,
    ) -> Result<ReplyProgress, ProviderError> {
        if let Some(data) = object_of(event)? {
            self.take(data["type"].as_str().unwrap_or(&event.name), &data, hear)?;
        }
        Ok(self.stage())
    }

    fn whole(
        &mut self,
        body: &Value,
        hear: &mut OnDelta<'_>,
    ) -> Result<ReplyProgress, ProviderError> {
        let kind = body["status"].as_str().unwrap_or("completed");
        self.ended(&format!("response.{kind}"), body, hear)?;
        Ok(self.stage())
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

    fn stage(&self) -> ReplyProgress {
        if self.end.is_some() { ReplyProgress::Over } else { ReplyProgress::Open }
    }

    fn take(
        &mut self,
        kind: &str,
        event: &Value,
        hear: &mut OnDelta<'_>,
    ) -> Result<(), ProviderError> {
        match kind {
            "error" if !event["error"].is_null() => return Err(http_error::in_stream(event)),
            "error" => {
                let (kind, message) = (&event["code"], &event["message"]);
                return Err(http_error::in_stream(&json!({"type": kind, "message": message})));
            }
            "response.output_item.added" => {
                let item = self.item(event);
                item.sent = event["item"].clone();
                item.heard.clear();
                hear(Delta::Ping);
            }
            "response.output_item.done" => self.item(event).close(&event["item"], hear),
            "response.output_text.delta" | "response.refusal.delta" => {
                let more = self.item(event).more(event);
                hear(Delta::Text(more));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let more = self.item(event).more(event);
                hear(Delta::Reasoning(more));
            }
            // The parts of a reasoning summary are paragraphs.
            "response.reasoning_summary_part.added" => {
                let item = self.item(event);
                if !item.heard.is_empty() {
                    item.heard.push_str("\n\n");
                    hear(Delta::Reasoning("\n\n"));
                }
            }
            "response.function_call_arguments.delta" => {
                self.item(event).more(event);
                hear(Delta::Ping);
            }
            "response.function_call_arguments.done" => {
                let all = event["arguments"].as_str().map(str::to_owned);
                let item = self.item(event);
                item.heard = all.unwrap_or_else(|| std::mem::take(&mut item.heard));
                item.whole = true;
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => self.ended(kind, &event["response"], hear)?,
            _ if !event["error"].is_null() => return Err(http_error::in_stream(event)),
            _ => hear(Delta::Ping),
        }
        Ok(())
    }

    fn item(&mut self, event: &Value) -> &mut Item {
        self.items.entry(event["output_index"].as_u64().unwrap_or_default()).or_default()
    }

    /// Handles the final event, which usually carries the complete reply.
    fn ended(
        &mut self,
        kind: &str,
        response: &Value,
        hear: &mut OnDelta<'_>,
    ) -> Result<(), ProviderError> {
        if response["error"].is_object() || kind == "response.failed" {
            return Err(http_error::in_stream(response));
        }
        for (at, item) in response["output"].as_array().into_iter().flatten().enumerate() {
            let known = self.items.entry(at as u64).or_default();
            if !known.whole {
                known.close(item, hear);
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
    fn more<'e>(&mut self, event: &'e Value) -> &'e str {
        let more = event["delta"].as_str().unwrap_or_default();
        self.heard.push_str(more);
        more
    }

    /// Stores the complete item. Text that did not arrive in deltas is passed on now.
    fn close(&mut self, item: &Value, hear: &mut OnDelta<'_>) {
        self.sent = item.clone();
        self.whole = true;
        let all = match item["type"].as_str() {
            Some("message") => texts(&item["content"], &["text", "refusal"], ""),
            Some("reasoning") => {
                let summary = texts(&item["summary"], &["text"], "\n\n");
                let content = texts(&item["content"], &["text"], "\n\n");
                if summary.is_empty() { content } else { summary }
            }
            Some("function_call") => {
                let given = item["arguments"].as_str().filter(|text| !text.is_empty());
                self.heard = given.map_or_else(|| std::mem::take(&mut self.heard), str::to_owned);
                return;
            }
            _ => return,
        };
        let Some(more) = all.strip_prefix(&self.heard).filter(|more| !more.is_empty()) else {
            return;
        };
        let is_thought = item["type"] == "reasoning";
        hear(if is_thought { Delta::Reasoning(more) } else { Delta::Text(more) });
        self.heard = all;
    }

    fn parts(self, ids: &mut CallIds) -> Option<ContentPart> {
        let word = |key: &str| self.sent[key].as_str().unwrap_or_default().to_owned();
        match self.sent["type"].as_str() {
            Some("message") => Some(ContentPart::Text { text: self.heard }),
            Some("reasoning") => {
                let sealed = self.whole.then(|| sealed(&self.sent)).flatten();
                Some(ContentPart::Reasoning { text: self.heard, sealed })
            }
            Some("function_call") => {
                let id = ids.unique(&word("call_id"));
                let is_cut = !self.whole || self.sent["status"] == "incomplete";
                Some(ContentPart::Call(if is_cut {
                    tool_args::malformed(id, word("name"), &self.heard)
                } else {
                    tool_args::call(id, word("name"), &self.heard)
                }))
            }
            // Text of a server that sends no items.
            None if !self.heard.is_empty() => Some(ContentPart::Text { text: self.heard }),
            // Item types that g3 does not offer.
            Some(_) | None => None,
        }
    }
}

/// Returns the reasoning item to send back, or `None` if only the server could look it up.
fn sealed(item: &Value) -> Option<Value> {
    item["encrypted_content"].as_str().filter(|text| !text.is_empty())?;
    let mut kept = json!({ "type": "reasoning" });
    for key in ["id", "summary", "encrypted_content"] {
        if !item[key].is_null() {
            kept[key] = item[key].clone();
        }
    }
    Some(json!({ "item": kept }))
}

fn texts(parts: &Value, keys: &[&str], between: &str) -> String {
    let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = parts.iter().filter_map(|part| keys.iter().find_map(|key| part[*key].as_str()));
    texts.collect::<Vec<_>>().join(between)
}
