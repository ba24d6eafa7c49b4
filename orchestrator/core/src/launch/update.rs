//! Converts the protocol's session updates to g3's events, for agents that do not send them.

use std::collections::{BTreeMap, BTreeSet};

use agent_client_protocol::v1::schema::{
    ContentBlock, SessionUpdate, ToolCallContent, ToolCallStatus, ToolCallUpdate,
};
use base::event::{EventKind, TodoItem, Usage};
use serde_json::Value;

use crate::launch::message_buffer::MessageBuffer;

/// Maximum number of bytes of a tool result in an event.
const MAX_RESULT_BYTES: usize = 4096;

/// Converts the updates of one agent.
#[derive(Debug, Default)]
pub(crate) struct SessionUpdates {
    /// The cost of the conversation so far, in US dollars.
    cost: f64,
    /// Calls that were announced without their arguments.
    pending: BTreeMap<String, PendingCall>,
    /// The ids of the calls that were announced.
    announced: BTreeSet<String>,
}

/// A call that has not been reported yet.
#[derive(Debug, Default)]
struct PendingCall {
    name: String,
    args: Value,
    /// Whether only a permission request announced it: it may be denied.
    is_requested: bool,
}

impl SessionUpdates {
    /// Returns the events for an update.
    pub(crate) fn on_update(
        &mut self,
        update: SessionUpdate,
        message: &mut MessageBuffer,
    ) -> Vec<Value> {
        match update {
            SessionUpdate::AgentMessageChunk(chunk) => {
                if let ContentBlock::Text(text) = chunk.content {
                    message.push_text(&text.text);
                }
                Vec::new()
            }
            SessionUpdate::ToolCall(call) => {
                let id = call.tool_call_id.to_string();
                self.announced.insert(id.clone());
                let call_start = PendingCall {
                    name: call.name.unwrap_or(call.title),
                    args: call.raw_input.unwrap_or(Value::Null),
                    is_requested: false,
                };
                // Some agents send the arguments only when the call starts.
                if call.status == ToolCallStatus::Pending {
                    self.pending.insert(id, call_start);
                    return Vec::new();
                }
                call_start.start_events(id, message)
            }
            SessionUpdate::ToolCallUpdate(update) => self.on_call_update(update, message),
            SessionUpdate::Plan(plan) => {
                let items = plan.entries.into_iter().enumerate();
                let items = items.map(|(n, entry)| TodoItem {
                    id: (n + 1).to_string(),
                    content: entry.content,
                    status: wire_name(&entry.status),
                    priority: wire_name(&entry.priority),
                });
                message.push_event(EventKind::Todo { items: items.collect() })
            }
            SessionUpdate::UsageUpdate(usage) => {
                let mut events =
                    message.push_event(EventKind::Context { used: usage.used, limit: usage.size });
                // Costs are counted in US dollars.
                let cost = usage.cost.filter(|cost| cost.currency.eq_ignore_ascii_case("USD"));
                if let Some(cost) = cost.filter(|cost| cost.amount > self.cost) {
                    let cost_usd = Some(cost.amount - self.cost);
                    let usage = Usage { cost_usd, ..Usage::default() };
                    if is_plausible(&usage) {
                        self.cost = cost.amount;
                        events.extend(message.push_event(EventKind::Usage { usage }));
                    }
                }
                events
            }
            // Thoughts, echoes of the user's text, modes, and unknown kinds of updates.
            _ => Vec::new(),
        }
    }

    /// Returns the arguments of a call that was announced and has not started.
    pub(crate) fn args_of(&self, id: &str) -> Option<Value> {
        self.pending.get(id).map(|call| call.args.clone()).filter(|args| !args.is_null())
    }

    /// Announces the call of a permission request: some agents do it only there.
    pub(crate) fn on_request(&mut self, call: &ToolCallUpdate) {
        let (id, fields) = (call.tool_call_id.to_string(), &call.fields);
        let name = fields.name.clone().or_else(|| fields.title.clone());
        if let (true, Some(name)) = (self.announced.insert(id.clone()), name) {
            let args = fields.raw_input.clone().unwrap_or(Value::Null);
            self.pending.insert(id, PendingCall { name, args, is_requested: true });
        }
    }

    /// Reports the calls that were announced and never started, at the end of their turn.
    pub(crate) fn drain_pending(&mut self, message: &mut MessageBuffer) -> Vec<Value> {
        let (requested, pending) =
            std::mem::take(&mut self.pending).into_iter().partition(|(_, call)| call.is_requested);
        self.pending = requested;
        let pending: BTreeMap<String, PendingCall> = pending;
        pending.into_iter().flat_map(|(id, call)| call.start_events(id, message)).collect()
    }

    fn on_call_update(
        &mut self,
        update: ToolCallUpdate,
        message: &mut MessageBuffer,
    ) -> Vec<Value> {
        let id = update.tool_call_id.to_string();
        let fields = update.fields;
        let mut events = Vec::new();
        if let Some(mut call) = self.pending.remove(&id) {
            call.name = fields.name.clone().unwrap_or(call.name);
            call.args = fields.raw_input.unwrap_or(call.args);
            match fields.status {
                None | Some(ToolCallStatus::Pending) => {
                    self.pending.insert(id, call);
                    return events;
                }
                Some(_) => events = call.start_events(id.clone(), message),
            }
        }
        let ok = match fields.status {
            Some(ToolCallStatus::Completed) => true,
            Some(ToolCallStatus::Failed) => false,
            Some(_) | None => return events,
        };
        let content = fields.content.unwrap_or_default();
        let texts = content.into_iter().filter_map(|content| match content {
            ToolCallContent::Content(block) => match block.content {
                ContentBlock::Text(text) => Some(text.text),
                _ => None,
            },
            _ => None,
        });
        let text: String = texts.collect::<Vec<_>>().join("\n");
        events.extend(message.push_event(EventKind::ToolEnd {
            id,
            name: fields.name.or(fields.title).unwrap_or_default(),
            ok,
            text: base::text::head(&text, MAX_RESULT_BYTES).to_owned(),
            ms: 0,
            diff: None,
        }));
        events
    }
}

impl PendingCall {
    fn start_events(self, id: String, message: &mut MessageBuffer) -> Vec<Value> {
        message.push_event(EventKind::ToolStart { id, name: self.name, args: self.args })
    }
}

/// Maximum number of tokens of one kind in a single reply.
const MAX_TOKENS: u64 = 1_000_000_000;
/// Maximum cost of a single reply, in US dollars.
const MAX_USD: f64 = 10_000.0;

/// Returns whether these numbers are plausible for a single reply: neither too large nor negative.
pub(crate) fn is_plausible(usage: &Usage) -> bool {
    let counts = [usage.input, usage.output, usage.cache_read, usage.cache_write];
    counts.iter().all(|tokens| *tokens <= MAX_TOKENS)
        && usage.cost_usd.is_none_or(|usd| usd.is_finite() && (0.0..=MAX_USD).contains(&usd))
}

fn wire_name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_client_protocol::v1::schema::{ToolCall, ToolCallUpdateFields, UsageUpdate};
    use base::clock::Clock;
    use serde_json::json;

    fn convert(updates: Vec<SessionUpdate>) -> Vec<Value> {
        let (mut reader, mut message) =
            (SessionUpdates::default(), MessageBuffer::new(Clock::from_env()));
        let mut events: Vec<Value> =
            updates.into_iter().flat_map(|update| reader.on_update(update, &mut message)).collect();
        events.extend(reader.drain_pending(&mut message));
        events
    }

    #[test]
    fn a_call_is_reported_when_its_command_is_known() {
        let pending = ToolCall::new("c", "bash")
            .status(ToolCallStatus::Pending)
            .raw_input(json!({"cwd": "/w"}));
        let started = ToolCallUpdateFields::new()
            .status(ToolCallStatus::InProgress)
            .raw_input(json!({"cwd": "/w", "command": "make"}));
        let completed = ToolCallUpdateFields::new().status(ToolCallStatus::Completed);
        let update = |fields| SessionUpdate::ToolCallUpdate(ToolCallUpdate::new("c", fields));
        let events =
            convert(vec![SessionUpdate::ToolCall(pending), update(started), update(completed)]);
        let types: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(types, ["tool_start", "tool_end"]);
        assert_eq!(events[0]["args"]["command"], "make");
    }

    #[test]
    fn a_call_that_never_starts_is_reported_at_the_end() {
        let pending = ToolCall::new("c", "bash").status(ToolCallStatus::Pending);
        let events = convert(vec![SessionUpdate::ToolCall(pending)]);
        assert_eq!(events[0]["name"], "bash");
    }

    #[test]
    fn a_call_that_only_its_request_announces_is_reported_once() {
        let (mut reader, mut message) =
            (SessionUpdates::default(), MessageBuffer::new(Clock::from_env()));
        let mut types = |update: Option<SessionUpdate>, request: Option<ToolCallUpdate>| {
            request.into_iter().for_each(|call| reader.on_request(&call));
            let events = update.map(|update| reader.on_update(update, &mut message));
            let events = events.unwrap_or_default().into_iter();
            events.map(|event| (event["type"].clone(), event["name"].clone())).collect::<Vec<_>>()
        };
        let fields = ToolCallUpdateFields::new;
        let asked = |id: &'static str| ToolCallUpdate::new(id, fields().title("Shell: make"));
        let completed = |id: &'static str| {
            let fields = fields().status(ToolCallStatus::Completed);
            Some(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id, fields)))
        };
        let start = (json!("tool_start"), json!("Shell: make"));
        assert_eq!(types(completed("a"), Some(asked("a")))[0], start);
        let running = ToolCall::new("b", "bash").status(ToolCallStatus::InProgress);
        assert_eq!(types(Some(SessionUpdate::ToolCall(running)), None).len(), 1);
        assert_eq!(types(completed("b"), Some(asked("b"))).len(), 1, "it was reported before");
    }

    #[test]
    fn implausible_numbers_are_detected() {
        let cost = |usd| Usage { cost_usd: Some(usd), ..Usage::default() };
        let tokens = Usage { input: u64::MAX, ..Usage::default() };
        for bad in [tokens, cost(-1.0), cost(f64::NAN), cost(f64::INFINITY), cost(1e9)] {
            assert!(!is_plausible(&bad), "{bad:?}");
        }
        assert!(is_plausible(&cost(0.25)) && is_plausible(&Usage::default()));
    }

    #[test]
    fn an_impossible_cost_is_not_counted() {
        let usage = |amount: f64, currency: &str| {
            let value =
                json!({"used": 1, "size": 2, "cost": {"amount": amount, "currency": currency}});
            let usage: UsageUpdate = serde_json::from_value(value).unwrap();
            SessionUpdate::UsageUpdate(usage)
        };
        let usd = |amount: f64| usage(amount, "USD");
        let events = convert(vec![usd(0.5), usd(1e300), usd(-3.0), usage(9.0, "EUR"), usd(0.75)]);
        let costs: Vec<f64> =
            events.iter().filter_map(|event| event["cost_usd"].as_f64()).collect();
        assert_eq!(costs, [0.5, 0.25]);
    }
}
