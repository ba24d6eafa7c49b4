//! What an agent says, as events for the journal: streamed text is gathered into whole messages.

use base::clock::Clock;
use base::event::{Event, EventKind};
use serde_json::Value;

/// Bytes of one message that the journal keeps; the rest is in `agent.log`.
const MOST: usize = 64 << 10;

/// Gathers what an agent says.
#[derive(Debug)]
pub(crate) struct MessageBuffer {
    clock: Clock,
    seq: u64,
    text: String,
    cut: bool,
}

impl MessageBuffer {
    /// Returns a message that has said nothing.
    pub(crate) fn new(clock: Clock) -> MessageBuffer {
        MessageBuffer { clock, seq: 0, text: String::new(), cut: false }
    }

    /// Hears a piece of text.
    pub(crate) fn text(&mut self, piece: &str) {
        self.text.push_str(piece);
        if self.text.len() > 2 * MOST {
            self.text = base::text::tail(&self.text, MOST).to_owned();
            self.cut = true;
        }
    }

    /// Something else happened: the text so far is a message, then comes the event.
    pub(crate) fn event(&mut self, what: EventKind) -> Vec<Value> {
        let mut all: Vec<Value> = self.message().into_iter().collect();
        all.extend(self.stamped(what));
        all
    }

    /// Returns an event that carries its own number and time.
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

    /// Returns the text so far as one message; none when nothing was said.
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
    fn pieces_of_text_become_one_message_before_the_next_event() {
        let mut message = MessageBuffer::new(Clock::from_env());
        message.text("Hel");
        assert!(message.foreign(json!({"type": "text", "text": "lo"})).is_empty());
        let all = message.event(EventKind::Turn { n: 2 });
        assert_eq!((&all[0]["text"], &all[1]["type"]), (&json!("Hello"), &json!("turn")));
        assert_eq!(message.message(), None);
    }

    #[test]
    fn a_flood_keeps_its_end() {
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
