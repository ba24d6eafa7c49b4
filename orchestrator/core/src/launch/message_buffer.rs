//! Converts an agent's output to journal events: streamed text is collected into whole messages.

use std::collections::BTreeMap;

use base::clock::Clock;
use base::event::{Event, EventKind};
use jiff::Timestamp;
use serde_json::Value;

use crate::launch::live_message::LiveMessages;

/// Maximum number of bytes of one message in the journal; the rest is in `agent.log`.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Maximum number of calls whose duration is measured at the same time.
const MAX_OPEN_CALLS: usize = 1000;

/// Collects an agent's messages.
#[derive(Debug)]
pub(crate) struct MessageBuffer {
    clock: Clock,
    seq: u64,
    text: String,
    truncated: bool,
    /// Where the text is published while it arrives.
    live: LiveMessages,
    /// When the calls started that have not ended.
    call_starts: BTreeMap<String, Timestamp>,
}

impl MessageBuffer {
    /// Creates an empty buffer.
    pub(crate) fn new(clock: Clock) -> MessageBuffer {
        MessageBuffer {
            clock,
            seq: 0,
            text: String::new(),
            truncated: false,
            live: LiveMessages::default(),
            call_starts: BTreeMap::new(),
        }
    }

    /// Publishes the text while it arrives.
    #[must_use]
    pub(crate) fn published(self, live: LiveMessages) -> MessageBuffer {
        MessageBuffer { live, ..self }
    }

    /// Appends a chunk of text.
    pub(crate) fn push_text(&mut self, chunk: &str) {
        self.text.push_str(chunk);
        self.live.push(chunk);
        if self.text.len() > 2 * MAX_MESSAGE_BYTES {
            self.text = base::text::tail(&self.text, MAX_MESSAGE_BYTES).to_owned();
            self.truncated = true;
            self.live.replace(&self.text);
        }
    }

    /// Returns the text so far as a message, followed by this event.
    pub(crate) fn push_event(&mut self, kind: EventKind) -> Vec<Value> {
        let mut events: Vec<Value> = self.take_message().into_iter().collect();
        events.extend(self.numbered(kind));
        events
    }

    /// Returns an event that has its own number and time, after the text so far.
    pub(crate) fn push_foreign(&mut self, event: Value) -> Vec<Value> {
        let text = (event["type"] == "text").then(|| event["text"].as_str()).flatten();
        if let Some(text) = text {
            self.push_text(text);
            return Vec::new();
        }
        let mut events: Vec<Value> = self.take_message().into_iter().collect();
        events.push(event);
        events
    }

    /// Returns the text so far as one message; `None` if it is empty.
    pub(crate) fn take_message(&mut self) -> Option<Value> {
        let mut text = std::mem::take(&mut self.text);
        self.live.finish();
        if text.trim().is_empty() {
            return None;
        }
        if std::mem::take(&mut self.truncated) {
            text.insert_str(0, "[…]");
        }
        self.numbered(EventKind::Text { text })
    }

    fn numbered(&mut self, mut kind: EventKind) -> Option<Value> {
        self.measure_call(&mut kind);
        self.seq += 1;
        let event = Event { seq: self.seq, time: self.clock.stamp(), what: kind };
        serde_json::to_value(event).ok()
    }

    /// Sets the duration of a call at its end: the agents' own protocols contain none.
    fn measure_call(&mut self, kind: &mut EventKind) {
        match kind {
            EventKind::ToolStart { id, .. } if self.call_starts.len() < MAX_OPEN_CALLS => {
                self.call_starts.insert(id.clone(), self.clock.now());
            }
            EventKind::ToolEnd { id, ms, .. } => {
                if let Some(start) = self.call_starts.remove(id) {
                    let elapsed = self.clock.now().duration_since(start);
                    *ms = u64::try_from(elapsed.as_millis()).unwrap_or(0);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn chunks_of_text_become_one_message_before_the_next_event() {
        let mut message = MessageBuffer::new(Clock::from_env());
        message.push_text("Hel");
        assert!(message.push_foreign(json!({"type": "text", "text": "lo"})).is_empty());
        let events = message.push_event(EventKind::Turn { n: 2 });
        assert_eq!((&events[0]["text"], &events[1]["type"]), (&json!("Hello"), &json!("turn")));
        assert_eq!(message.take_message(), None);
    }

    #[test]
    fn the_duration_of_a_call_is_measured() {
        let mut message = MessageBuffer::new(Clock::fixed("2026-01-02T03:04:05Z".parse().unwrap()));
        let (id, name) = ("c1".to_owned(), "bash".to_owned());
        let start = EventKind::ToolStart { id: id.clone(), name: name.clone(), args: Value::Null };
        message.push_event(start);
        message.clock = Clock::fixed("2026-01-02T03:04:07.5Z".parse().unwrap());
        let text = String::new();
        let end = EventKind::ToolEnd { id, name, ok: true, text, ms: 0, diff: None };
        assert_eq!(message.push_event(end)[0]["ms"], 2500);
    }

    #[test]
    fn a_long_message_keeps_its_end() {
        let mut message = MessageBuffer::new(Clock::from_env());
        for _ in 0..1000 {
            message.push_text(&"x".repeat(1000));
        }
        message.push_text("last output");
        let message = message.take_message().unwrap();
        let text = message["text"].as_str().unwrap();
        assert!(text.len() < 3 * MAX_MESSAGE_BYTES && text.ends_with("last output"));
    }
}
