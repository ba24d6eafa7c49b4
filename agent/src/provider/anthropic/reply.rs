//! A reply in the Messages format, read event by event.

use base::event::Usage;
use serde_json::{Value, json};

use crate::message::{Message, Part, Reply, Role, Stop, ToolCall};
use crate::provider::hosted::{Decoder, Stage, object_of};
use crate::provider::{Delta, Hear, ProviderError, arguments, fault, sse};

/// A reply on its way.
#[derive(Debug, Default)]
pub struct Reading {
    blocks: Vec<Open>,
    usage: Usage,
    stop: Option<Stop>,
    over: bool,
}

/// A block of the reply. A server that starts over may use an index twice; the newest counts.
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

impl Decoder for Reading {
    fn event(&mut self, event: &sse::Event, hear: &mut Hear<'_>) -> Result<Stage, ProviderError> {
        let Some(data) = object_of(event)? else {
            return Ok(self.stage());
        };
        match data["type"].as_str().unwrap_or(&event.name) {
            "message_start" => self.count(&data["message"]["usage"]),
            "content_block_start" => self.start(&data, hear),
            "content_block_delta" => self.delta(&data, hear),
            "message_delta" => {
                self.count(&data["usage"]);
                self.end(&data["delta"]);
            }
            "message_stop" => self.over = true,
            "error" => return Err(fault::in_stream(&data)),
            // `ping` and whatever a newer version of the format adds.
            _ => hear(Delta::Ping),
        }
        Ok(self.stage())
    }

    fn whole(&mut self, body: &Value, hear: &mut Hear<'_>) -> Result<Stage, ProviderError> {
        self.count(&body["usage"]);
        for (index, block) in body["content"].as_array().into_iter().flatten().enumerate() {
            self.start(&json!({"index": index, "content_block": block}), hear);
        }
        self.end(body);
        self.over = self.stop.is_some();
        Ok(self.stage())
    }

    fn reply(self: Box<Self>) -> Option<Reply> {
        let stop = self.stop?;
        let count = self.blocks.len();
        let parts = self.blocks.into_iter().enumerate().filter_map(|(at, open)| {
            // The output limit may cut a call before its first delta.
            part(open.block, stop == Stop::Length && at + 1 == count)
        });
        let message = Message { role: Role::Assistant, parts: parts.collect() };
        let stop = match stop {
            Stop::Done | Stop::Calls if message.calls().next().is_some() => Stop::Calls,
            Stop::Done | Stop::Calls => Stop::Done,
            Stop::Length | Stop::Refused => stop,
        };
        Some(Reply { message, usage: self.usage, stop })
    }
}

impl Reading {
    fn stage(&self) -> Stage {
        match (self.over, self.stop) {
            (true, _) => Stage::Over,
            (false, Some(_)) => Stage::Said,
            (false, None) => Stage::Open,
        }
    }

    /// Counts are totals so far: the last one of each kind holds.
    fn count(&mut self, usage: &Value) {
        let set = |total: &mut u64, key: &str| {
            if let Some(tokens) = usage[key].as_u64() {
                *total = tokens;
            }
        };
        set(&mut self.usage.input, "input_tokens");
        set(&mut self.usage.output, "output_tokens");
        set(&mut self.usage.cache_read, "cache_read_input_tokens");
        set(&mut self.usage.cache_write, "cache_creation_input_tokens");
    }

    fn end(&mut self, delta: &Value) {
        let Some(reason) = delta["stop_reason"].as_str() else { return };
        self.stop = Some(match reason {
            "tool_use" => Stop::Calls,
            "max_tokens" | "model_context_window_exceeded" => Stop::Length,
            "refusal" => Stop::Refused,
            // `end_turn`, `stop_sequence`, `pause_turn` and what may come.
            _ => Stop::Done,
        });
    }

    fn start(&mut self, data: &Value, hear: &mut Hear<'_>) {
        let block = data["content_block"].clone();
        let word = |key: &str| block[key].as_str().unwrap_or_default().to_owned();
        let block = match block["type"].as_str() {
            Some("text") => {
                let text = word("text");
                if !text.is_empty() {
                    hear(Delta::Text(&text));
                }
                Block::Text(text)
            }
            Some("thinking") => {
                let (text, signature) = (word("thinking"), word("signature"));
                if !text.is_empty() {
                    hear(Delta::Reasoning(&text));
                }
                Block::Thought { block, text, signature }
            }
            Some("redacted_thinking") => Block::Sealed(block),
            Some("tool_use") => Block::Call {
                id: word("id"),
                name: word("name"),
                start: block["input"].clone(),
                json: String::new(),
            },
            Some(_) | None => Block::Unknown,
        };
        self.blocks.push(Open { index: data["index"].as_u64().unwrap_or_default(), block });
    }

    fn delta(&mut self, data: &Value, hear: &mut Hear<'_>) {
        let (index, delta) = (data["index"].as_u64().unwrap_or_default(), &data["delta"]);
        let Some(open) = self.blocks.iter_mut().rev().find(|open| open.index == index) else {
            return;
        };
        let word = |key: &str| delta[key].as_str().unwrap_or_default();
        match &mut open.block {
            Block::Text(text) => {
                let more = word("text");
                if !more.is_empty() {
                    text.push_str(more);
                    hear(Delta::Text(more));
                }
            }
            Block::Thought { text, signature, .. } => {
                let more = word("thinking");
                signature.push_str(word("signature"));
                if !more.is_empty() {
                    text.push_str(more);
                    hear(Delta::Reasoning(more));
                }
            }
            Block::Call { json, .. } => {
                json.push_str(word("partial_json"));
                hear(Delta::Ping);
            }
            Block::Sealed(_) | Block::Unknown => {}
        }
    }
}

fn part(block: Block, is_cut: bool) -> Option<Part> {
    match block {
        Block::Text(text) if text.is_empty() => None,
        Block::Text(text) => Some(Part::Text { text }),
        Block::Thought { mut block, text, signature } => {
            block["thinking"] = json!(text);
            block["signature"] = json!(signature);
            Some(Part::Reasoning { text, sealed: Some(block) })
        }
        Block::Sealed(block) => Some(Part::Reasoning { text: String::new(), sealed: Some(block) }),
        Block::Call { id, name, start, json } => {
            Some(Part::Call(call(id, name, start, &json, is_cut)))
        }
        Block::Unknown => None,
    }
}

fn call(id: String, name: String, start: Value, json: &str, is_cut: bool) -> ToolCall {
    if !json.is_empty() {
        return arguments::call(id, name, json);
    }
    match start {
        Value::Object(ref args) if !args.is_empty() => {
            ToolCall { id, name, args: start, malformed: None }
        }
        _ if is_cut => arguments::malformed(id, name, ""),
        _ => arguments::call(id, name, ""),
    }
}
