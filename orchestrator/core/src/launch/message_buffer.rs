//! Converts an agent's output to journal events: streamed text is collected into whole messages.

use base::clock::Clock;
use base::event::{Event, EventKind};
use serde_json::Value;

/// Maximum number of bytes of one message in the journal; the rest is in `agent.log`.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Collects an agent's messages.
#[derive(Debug)]
pub(crate) struct MessageBuffer {
    clock: Clock,
    seq: u64,
    text: String,
    truncated: bool,
}

impl MessageBuffer {
    /// Creates an empty buffer.
    pub(crate) fn new(clock: Clock) -> MessageBuffer {
        MessageBuffer { clock, seq: 0, text: String::new(), truncated: false }
    }

    /// Appends a chunk of text.
    pub(crate) fn push_text(&mut self, chunk: &str) {
        self.text.push_str(chunk);
        if self.text.len() > 2 * MAX_MESSAGE_BYTES {
            self.text = base::text::tail(&self.text, MAX_MESSAGE_BYTES).to_owned();
            self.truncated = true;
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
        if text.trim().is_empty() {
            return None;
        }
        if std::mem::take(&mut self.truncated) {
            text.insert_str(0, "[…]");
        }
        self.numbered(EventKind::Text { text })
    }

    fn numbered(&mut self, kind: EventKind) -> Option<Value> {
        self.seq += 1;
        let event = Event { seq: self.seq, time: self.clock.stamp(), what: kind };
        serde_json::to_value(event).ok()
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
