//! A reply in the bytes of the Responses wire format: typed events with sequence numbers.

use serde_json::{Value, json};

use crate::model_server::reply::{Reply, Said};

use super::{call_id, event};

/// The events of a streamed reply: the opening, one entry per piece, the closing.
pub fn events(reply: &Reply, number: usize) -> Vec<String> {
    let mut stream = Stream { sequence: 0 };
    let opening = stream
        .event("response.created", json!({"response": response(number, "in_progress")}))
        + &stream
            .event("response.in_progress", json!({"response": response(number, "in_progress")}));
    let mut events = vec![opening];
    let mut output = Vec::new();
    for (index, part) in reply.parts.iter().enumerate() {
        match part {
            Said::Text(text) => events.push(stream.text(number, index, text, &mut output)),
            Said::Call { id, name, args } => {
                let id = call_id(id, "call", number, index);
                events.push(stream.call(index, (&id, name, args), &mut output));
            }
            Said::Thought(_) | Said::Sealed(_) => {}
            Said::Error { kind, message } => {
                events.push(stream.event("error", json!({"code": kind, "message": message})));
                return events;
            }
        }
    }
    let mut done = response(number, "completed");
    done["output"] = json!(output);
    done["usage"] = usage(reply);
    events.push(stream.event("response.completed", json!({"response": done})));
    events
}

/// A reply as one JSON object.
pub fn whole(reply: &Reply, number: usize) -> Value {
    let mut done = response(number, "completed");
    let items = reply.parts.iter().enumerate().filter_map(|(index, part)| match part {
        Said::Text(text) => Some(message(number, index, text)),
        Said::Call { id, name, args } => {
            Some(call(index, (&call_id(id, "call", number, index), name, args), "completed"))
        }
        Said::Thought(_) | Said::Sealed(_) | Said::Error { .. } => None,
    });
    done["output"] = items.collect();
    done["usage"] = usage(reply);
    done
}

fn response(number: usize, status: &str) -> Value {
    json!({"id": format!("resp_{number}"), "object": "response", "created_at": 0, "status": status,
        "model": "scripted", "output": [], "usage": null})
}

fn usage(reply: &Reply) -> Value {
    let tokens = reply.tokens;
    let input = tokens.input + tokens.cache_read;
    json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": tokens.cache_read},
        "output_tokens": tokens.output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + tokens.output})
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

    fn text(&mut self, number: usize, index: usize, text: &str, output: &mut Vec<Value>) -> String {
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
        let events = [
            ("response.output_item.added", json!({"output_index": index, "item": open})),
            ("response.content_part.added", place(json!({"part": part("")}))),
            ("response.output_text.delta", place(json!({"delta": text}))),
            ("response.output_text.done", place(json!({"text": text}))),
            ("response.content_part.done", place(json!({"part": part(text)}))),
            ("response.output_item.done", json!({"output_index": index, "item": item})),
        ];
        output.push(item);
        events.into_iter().map(|(name, data)| self.event(name, data)).collect()
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
