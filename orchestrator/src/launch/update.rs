//! The protocol's session updates, told in g3's events, for agents that send none of their own.

use agent_client_protocol::v1::schema::{
    ContentBlock, SessionUpdate, ToolCallContent, ToolCallStatus, ToolCallUpdate,
};
use base::event::{TodoItem, Usage, What};
use serde_json::Value;

use crate::launch::voice::Voice;

/// Bytes of a tool's result that an event carries.
const MOST: usize = 4096;

/// What an update means; `cost` is what the conversation cost so far, in US dollars.
pub fn heard(update: SessionUpdate, voice: &mut Voice, cost: &mut f64) -> Vec<Value> {
    match update {
        SessionUpdate::AgentMessageChunk(chunk) => {
            if let ContentBlock::Text(text) = chunk.content {
                voice.text(&text.text);
            }
            Vec::new()
        }
        SessionUpdate::ToolCall(call) => voice.event(What::ToolStart {
            id: call.tool_call_id.to_string(),
            name: call.name.unwrap_or(call.title),
            args: call.raw_input.unwrap_or(Value::Null),
        }),
        SessionUpdate::ToolCallUpdate(update) => tool_end(update, voice),
        SessionUpdate::Plan(plan) => {
            let items = plan.entries.into_iter().enumerate();
            let items = items.map(|(n, entry)| TodoItem {
                id: (n + 1).to_string(),
                content: entry.content,
                status: wire_name(&entry.status),
                priority: wire_name(&entry.priority),
            });
            voice.event(What::Todo { items: items.collect() })
        }
        SessionUpdate::UsageUpdate(usage) => {
            let mut all = voice.event(What::Context { used: usage.used, limit: usage.size });
            if let Some(now) = usage.cost.filter(|now| now.amount > *cost) {
                let usage = Usage { cost_usd: Some(now.amount - *cost), ..Usage::default() };
                *cost = now.amount;
                all.extend(voice.event(What::Usage { usage }));
            }
            all
        }
        // Thoughts, echoes of the user, modes and kinds that are newer than we are.
        _ => Vec::new(),
    }
}

fn tool_end(update: ToolCallUpdate, voice: &mut Voice) -> Vec<Value> {
    let ok = match update.fields.status {
        Some(ToolCallStatus::Completed) => true,
        Some(ToolCallStatus::Failed) => false,
        Some(_) | None => return Vec::new(),
    };
    let texts = update.fields.content.unwrap_or_default();
    let texts = texts.into_iter().filter_map(|content| match content {
        ToolCallContent::Content(block) => match block.content {
            ContentBlock::Text(text) => Some(text.text),
            _ => None,
        },
        _ => None,
    });
    let text: String = texts.collect::<Vec<_>>().join("\n");
    voice.event(What::ToolEnd {
        id: update.tool_call_id.to_string(),
        name: update.fields.name.or(update.fields.title).unwrap_or_default(),
        ok,
        text: base::text::head(&text, MOST).to_owned(),
        ms: 0,
        diff: None,
    })
}

fn wire_name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}
