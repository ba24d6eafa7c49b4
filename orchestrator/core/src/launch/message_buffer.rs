//! Converts an agent's output to journal events: streamed text is collected into whole messages.

use base::clock::Clock;
use base::event::{Event, EventKind};
use serde_json::Value;

/// Maximum number of bytes of one message in the journal; the rest is in `agent.log`.
const MOST: usize = 64 << 10;

/// Collects an agent's messages.
#[derive(Debug)]
pub(crate) struct MessageBuffer {
    clock: Clock,
    seq: u64,
    text: String,
    cut: bool,
}

impl MessageBuffer {
    /// Creates an empty buffer.
    pub(crate) fn new(clock: Clock) -> MessageBuffer {
        MessageBuffer { clock, seq: 0, text: String::new(), cut: false }
    }

    /// Appends a chunk of text.
    pub(crate) fn text(&mut self, piece: &str) {
        self.text.push_str(piece);
        if self.text.len() > 2 * MOST {
            self.text = base::text::tail(&self.text, MOST).to_owned();
            self.cut = true;
        }
    }

    /// Returns the text so far as a message, followed by this event.
    pub(crate) fn event(&mut self, what: EventKind) -> Vec<Value> {
        let mut all: Vec<Value> = self.message().into_iter().collect();
        all.extend(self.stamped(what));
        all
    }

    /// Returns an event that has its own number and time, after the text so far.
    pub(crate) fn foreign(&mut self, event: Value) -> Vec<Value> {
        let text = (event["type"] == "text").then(|| event["text"].as_str()).flatten();
        if let Some(text) = text {
            self.text(text);
            return Vec::new();
        }
        let mut all: Vec<Value> = self.message().into_iter().collect();
        all.push(event);
        all
    }

    /// Returns the text so far as one message; `None` if it is empty.
    pub(crate) fn message(&mut self) -> Option<Value> {
        let mut text = std::mem::take(&mut self.text);
        if text.trim().is_empty() {
            return None;
        }
        if std::mem::take(&mut self.cut) {
            text.insert_str(0, "[…]");
        }
        self.stamped(EventKind::Text { text })
    }

    fn stamped(&mut self, what: EventKind) -> Option<Value> {
        self.seq += 1;
        let event = Event { seq: self.seq, time: self.clock.stamp(), what };
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
        message.text("Hel");
        assert!(message.foreign(json!({"type": "text", "text": "lo"})).is_empty());
        let all = message.event(EventKind::Turn { n: 2 });
        assert_eq!((&all[0]["text"], &all[1]["type"]), (&json!("Hello"), &json!("turn")));
        assert_eq!(message.message(), None);
    }

    #[test]
    fn a_long_message_keeps_its_end() {
        let mut message = MessageBuffer::new(Clock::from_env());
        for _ in 0..1000 {
            message.text(&"x".repeat(1000));
        }
        message.text("last output");
        let message = message.message().unwrap();
        let text = message["text"].as_str().unwrap();
        assert!(text.len() < 3 * MOST && text.ends_with("last output"));
    }
}
