//! Decodes a reply in the responses format: items that grow by events and are sent again when they
//! are complete.

use std::cmp::Reverse;

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
    /// The items in the order of the reply.
    items: Vec<Item>,
    usage: Usage,
    end: Option<End>,
}

/// An item: text, reasoning or a call.
#[derive(Debug)]
struct Item {
    /// Its `output_index`, which some servers omit and others use for several items.
    index: Option<u64>,
    /// The item as last sent: first only its header, at the end complete.
    raw: Value,
    /// Text, reasoning or arguments that arrived in deltas.
    streamed: String,
    state: ItemState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemState {
    /// Its deltas arrived before its header.
    Unannounced,
    Open,
    /// The arguments of the call are complete.
    ArgumentsComplete,
    /// The complete item was sent.
    Complete,
}

/// What an event says about the item that it belongs to.
struct ItemKey<'e> {
    kind: &'e str,
    /// Empty if absent. Some servers change it with every event.
    id: &'e str,
    /// Empty if absent.
    call_id: &'e str,
    index: Option<u64>,
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
        let parts = items.into_iter().flat_map(|item| item.parts(&mut ids)).collect();
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
        ResponsesDecoder { ids, items: Vec::new(), usage: Usage::default(), end: None }
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
                self.announce(event);
                on_delta(Delta::Ping);
            }
            "response.output_item.done" => {
                let key = ItemKey::of_item(&event["item"], event["output_index"].as_u64());
                if !self.items.iter().any(|item| key.repeats(item)) {
                    self.find_or_add(&key).close(&event["item"], on_delta);
                }
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                let item = self.find_or_add(&ItemKey::of_delta("message", event));
                on_delta(Delta::Text(item.append_delta(event)));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let item = self.find_or_add(&ItemKey::of_delta("reasoning", event));
                on_delta(Delta::Reasoning(item.append_delta(event)));
            }
            // The parts of a reasoning summary are paragraphs.
            "response.reasoning_summary_part.added" => {
                let item = self.find_or_add(&ItemKey::of_delta("reasoning", event));
                if !item.streamed.is_empty() {
                    item.streamed.push_str("\n\n");
                    on_delta(Delta::Reasoning("\n\n"));
                }
            }
            // Arguments before the header of their call are sent again with the complete item.
            "response.function_call_arguments.delta" => {
                if let Some(item) = self.find(&ItemKey::of_delta("function_call", event)) {
                    item.append_delta(event);
                }
                on_delta(Delta::Ping);
            }
            "response.function_call_arguments.done" => {
                if let Some(item) = self.find(&ItemKey::of_delta("function_call", event)) {
                    if let Some(all) = event["arguments"].as_str() {
                        all.clone_into(&mut item.streamed);
                    }
                    item.state = ItemState::ArgumentsComplete;
                }
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

    /// Handles the header of an item.
    fn announce(&mut self, event: &Value) {
        let header = &event["item"];
        let key = ItemKey::of_item(header, event["output_index"].as_u64());
        match self.find(&key) {
            Some(item) if item.state == ItemState::Unannounced => {
                (item.raw, item.state) = (header.clone(), ItemState::Open);
            }
            Some(item) if key.has_id_of(&item.raw) => {
                item.raw = header.clone();
                item.streamed.clear();
            }
            Some(_) | None => self.items.push(Item::new(&key, header.clone(), ItemState::Open)),
        }
    }

    /// Returns the incomplete item that an event belongs to: the most similar one, and of several
    /// the newest.
    fn find(&mut self, key: &ItemKey<'_>) -> Option<&mut Item> {
        let open = self.items.iter_mut().filter(|item| item.state != ItemState::Complete);
        let similar = open.filter_map(|item| Some((key.similarity(item)?, item)));
        similar.max_by_key(|(similarity, _)| *similarity).map(|(_, item)| item)
    }

    fn find_or_add(&mut self, key: &ItemKey<'_>) -> &mut Item {
        if self.find(key).is_none() {
            self.items.push(Item::new(key, json!({"type": key.kind}), ItemState::Unannounced));
        }
        self.find(key).expect("the item exists")
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
        self.take_output(&response["output"], on_delta);
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

    /// Handles the items of the final event. They complete those that arrived in deltas.
    fn take_output(&mut self, output: &Value, on_delta: &mut OnDelta<'_>) {
        let mut streamed = std::mem::take(&mut self.items);
        for whole in output.as_array().into_iter().flatten() {
            let key = ItemKey::of_item(whole, None);
            let similar = streamed
                .iter()
                .enumerate()
                .filter_map(|(position, item)| Some((key.similarity(item)?, Reverse(position))));
            let mut item = match similar.max() {
                Some((_, Reverse(position))) => streamed.remove(position),
                None => Item::new(&key, whole.clone(), ItemState::Open),
            };
            if item.state != ItemState::Complete {
                item.close(whole, on_delta);
            }
            self.items.push(item);
        }
        self.items.append(&mut streamed);
    }
}

impl<'e> ItemKey<'e> {
    fn of_item(item: &'e Value, index: Option<u64>) -> ItemKey<'e> {
        let field = |key: &str| item[key].as_str().unwrap_or_default();
        ItemKey { kind: field("type"), id: field("id"), call_id: field("call_id"), index }
    }

    fn of_delta(kind: &'e str, event: &'e Value) -> ItemKey<'e> {
        let id = event["item_id"].as_str().unwrap_or_default();
        ItemKey { kind, id, call_id: "", index: event["output_index"].as_u64() }
    }

    /// Returns whether the item is named by an id of the key.
    fn has_id_of(&self, item: &Value) -> bool {
        let is_same = |id: &str, key: &str| !id.is_empty() && item[key] == id;
        is_same(self.call_id, "call_id") || is_same(self.id, "id")
    }

    /// Whether a complete item is sent again.
    fn repeats(&self, item: &Item) -> bool {
        item.state == ItemState::Complete && self.similarity(item) == Some((true, true))
    }

    /// Returns how similar an item is to the key (same id, same index), or `None` if the key is
    /// one of another item.
    fn similarity(&self, item: &Item) -> Option<(bool, bool)> {
        let call_id = item.raw["call_id"].as_str().unwrap_or_default();
        let is_other_call =
            !self.call_id.is_empty() && !call_id.is_empty() && self.call_id != call_id;
        if item.raw["type"] != self.kind || is_other_call {
            return None;
        }
        let (has_id, has_index) = (self.has_id_of(&item.raw), self.index == item.index);
        let has_no_index = self.index.is_none() || item.index.is_none();
        (has_id || has_index || has_no_index).then_some((has_id, has_index))
    }
}

impl Item {
    fn new(key: &ItemKey<'_>, raw: Value, state: ItemState) -> Item {
        Item { index: key.index, raw, streamed: String::new(), state }
    }

    fn append_delta<'e>(&mut self, event: &'e Value) -> &'e str {
        let delta = event["delta"].as_str().unwrap_or_default();
        self.streamed.push_str(delta);
        delta
    }

    /// Stores the complete item. Text that did not arrive in deltas is passed on now.
    fn close(&mut self, item: &Value, on_delta: &mut OnDelta<'_>) {
        self.raw = item.clone();
        self.state = ItemState::Complete;
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
        let rest = all.strip_prefix(&self.streamed).filter(|rest| !rest.is_empty());
        let Some(rest) = rest else { return };
        let is_thought = item["type"] == "reasoning";
        on_delta(if is_thought { Delta::Reasoning(rest) } else { Delta::Text(rest) });
        self.streamed = all;
    }

    fn parts(self, ids: &mut CallIds) -> Vec<ContentPart> {
        let field = |key: &str| self.raw[key].as_str().unwrap_or_default().to_owned();
        match self.raw["type"].as_str().unwrap_or_default() {
            "message" => {
                let phase = self.raw["phase"].as_str().map(|phase| ContentPart::Reasoning {
                    text: String::new(),
                    sealed: Some(json!({ "phase": phase })),
                });
                let text = ContentPart::Text { text: self.streamed };
                phase.into_iter().chain([text]).collect()
            }
            "reasoning" => {
                let is_complete = self.state == ItemState::Complete;
                let sealed = is_complete.then(|| sealed(&self.raw)).flatten();
                vec![ContentPart::Reasoning { text: self.streamed, sealed }]
            }
            "function_call" => {
                let id = ids.unique(&field("call_id"));
                let is_truncated =
                    self.state == ItemState::Open || self.raw["status"] == "incomplete";
                vec![ContentPart::Call(if is_truncated {
                    tool_args::malformed(id, field("name"), &self.streamed)
                } else {
                    tool_args::call(id, field("name"), &self.streamed)
                })]
            }
            // Item types that g3 does not offer.
            _ => Vec::new(),
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
