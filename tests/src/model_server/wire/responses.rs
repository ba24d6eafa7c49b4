//! Encodes a reply in the Responses wire format: typed events with sequence numbers.

use serde_json::{Value, json};

use crate::model_server::reply::{ReplyPart, ScriptedReply};

use super::{call_id, event};

/// Returns the events of a streamed reply: the opening, one entry per part, the closing.
pub fn events(reply: &ScriptedReply, number: usize) -> Vec<String> {
    let mut stream = Stream { sequence: 0 };
    let opening = stream
        .event("response.created", json!({"response": response(number, "in_progress")}))
        + &stream
            .event("response.in_progress", json!({"response": response(number, "in_progress")}));
    let mut events = vec![opening];
    let mut output = Vec::new();
    let is_text = |part: &ReplyPart| matches!(part, ReplyPart::Text(_));
    for (index, group) in reply.parts.chunk_by(|a, b| is_text(a) && is_text(b)).enumerate() {
        let Some(part) = group.first() else { continue };
        match part {
            ReplyPart::Text(_) => events.extend(stream.text(number, index, group, &mut output)),
            ReplyPart::Call { id, name, args } => {
                let id = call_id(id, "call", number, index);
                events.push(stream.call(index, (&id, name, args), &mut output));
            }
            ReplyPart::Thought(text) => {
                events.push(stream.thought(number, index, text, &mut output))
            }
            ReplyPart::Sealed(_) => {}
            ReplyPart::Error { kind, message } => {
                events.push(stream.event("error", json!({"code": kind, "message": message})));
                return events;
            }
        }
    }
    let mut done = ended(reply, number);
    done["output"] = json!(output);
    let name = format!("response.{}", done["status"].as_str().unwrap_or_default());
    events.push(stream.event(&name, json!({"response": done})));
    events
}

/// Returns a reply as one JSON object.
pub fn whole(reply: &ScriptedReply, number: usize) -> Value {
    let mut done = ended(reply, number);
    let items = reply.parts.iter().enumerate().filter_map(|(index, part)| match part {
        ReplyPart::Text(text) => Some(message(number, index, text)),
        ReplyPart::Call { id, name, args } => {
            Some(call(index, (&call_id(id, "call", number, index), name, args), "completed"))
        }
        ReplyPart::Thought(text) => Some(reasoning(number, index, text)),
        ReplyPart::Sealed(_) | ReplyPart::Error { .. } => None,
    });
    done["output"] = items.collect();
    done
}

/// Returns the final response object; a stop reason is the reason for being incomplete.
fn ended(reply: &ScriptedReply, number: usize) -> Value {
    let status = if reply.stop.is_some() { "incomplete" } else { "completed" };
    let mut done = response(number, status);
    if let Some(reason) = &reply.stop {
        done["incomplete_details"] = json!({ "reason": reason });
    }
    done["usage"] = usage(reply);
    done
}

fn reasoning(number: usize, index: usize, text: &str) -> Value {
    json!({"id": format!("rs_{number}_{index}"), "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text}],
        "encrypted_content": format!("signature-{number}")})
}

fn response(number: usize, status: &str) -> Value {
    json!({"id": format!("resp_{number}"), "object": "response", "created_at": 0, "status": status,
        "model": "scripted", "output": [], "usage": null})
}

fn usage(reply: &ScriptedReply) -> Value {
    let tokens = reply.tokens;
    let input = tokens.input + tokens.cache_read;
    json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": tokens.cache_read},
        "output_tokens": tokens.output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input.saturating_add(tokens.output)})
}

fn message(number: usize, index: usize, text: &str) -> Value {
    json!({"id": format!("msg_{number}_{index}"), "type": "message", "role": "assistant",
        "status": "completed", "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn call(index: usize, (id, name, args): (&str, &str, &str), status: &str) -> Value {
    json!({"id": format!("fc_{id}_{index}"), "type": "function_call", "status": status,
        "call_id": id, "name": name, "arguments": args})
}

struct Stream {
    sequence: usize,
}

impl Stream {
    fn event(&mut self, name: &str, mut data: Value) -> String {
        data["type"] = json!(name);
        data["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        event(Some(name), &data)
    }

    /// Adds a text item, with one entry per part.
    fn text(
        &mut self,
        number: usize,
        index: usize,
        group: &[ReplyPart],
        output: &mut Vec<Value>,
    ) -> Vec<String> {
        let pieces = group.iter().filter_map(|part| match part {
            ReplyPart::Text(text) => Some(text.as_str()),
            ReplyPart::Thought(_)
            | ReplyPart::Sealed(_)
            | ReplyPart::Call { .. }
            | ReplyPart::Error { .. } => None,
        });
        let text = &pieces.clone().collect::<String>();
        let item = message(number, index, text);
        let id = item["id"].clone();
        let mut open = item.clone();
        open["status"] = json!("in_progress");
        open["content"] = json!([]);
        let place = |mut data: Value| {
            data["output_index"] = json!(index);
            data["item_id"] = id.clone();
            data["content_index"] = json!(0);
            data
        };
        let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
        let begin = [
            ("response.output_item.added", json!({"output_index": index, "item": open})),
            ("response.content_part.added", place(json!({"part": part("")}))),
        ];
        let end = [
            ("response.output_text.done", place(json!({"text": text}))),
            ("response.content_part.done", place(json!({"part": part(text)}))),
            ("response.output_item.done", json!({"output_index": index, "item": item})),
        ];
        let mut opening = begin.map(|(name, data)| self.event(name, data)).concat();
        let mut events = Vec::new();
        for piece in pieces {
            let delta = self.event("response.output_text.delta", place(json!({"delta": piece})));
            events.push(std::mem::take(&mut opening) + &delta);
        }
        let end = end.map(|(name, data)| self.event(name, data)).concat();
        events.last_mut().into_iter().for_each(|last| last.push_str(&end));
        output.push(item);
        events
    }

    fn thought(
        &mut self,
        number: usize,
        index: usize,
        text: &str,
        output: &mut Vec<Value>,
    ) -> String {
        let item = reasoning(number, index, text);
        let mut open = item.clone();
        open["summary"] = json!([]);
        let place = |mut data: Value| {
            data["output_index"] = json!(index);
            data["item_id"] = item["id"].clone();
            data["summary_index"] = json!(0);
            data
        };
        let part = |text: &str| json!({"type": "summary_text", "text": text});
        let events = [
            ("response.output_item.added", json!({"output_index": index, "item": open})),
            ("response.reasoning_summary_part.added", place(json!({"part": part("")}))),
            ("response.reasoning_summary_text.delta", place(json!({"delta": text}))),
            ("response.reasoning_summary_text.done", place(json!({"text": text}))),
            ("response.output_item.done", json!({"output_index": index, "item": item})),
        ];
        let events = events.map(|(name, data)| self.event(name, data));
        output.push(item);
        events.concat()
    }

    fn call(&mut self, index: usize, made: (&str, &str, &str), output: &mut Vec<Value>) -> String {
        let item = call(index, made, "completed");
        let mut open = call(index, (made.0, made.1, ""), "in_progress");
        open["arguments"] = json!("");
        let id = item["id"].clone();
        let place = |mut data: Value| {
            data["output_index"] = json!(index);
            data["item_id"] = id.clone();
            data
        };
        let events = [
            ("response.output_item.added", json!({"output_index": index, "item": open})),
            ("response.function_call_arguments.delta", place(json!({"delta": made.2}))),
            ("response.function_call_arguments.done", place(json!({"arguments": made.2}))),
            ("response.output_item.done", json!({"output_index": index, "item": item})),
        ];
        output.push(item);
        events.into_iter().map(|(name, data)| self.event(name, data)).collect()
    }
}
