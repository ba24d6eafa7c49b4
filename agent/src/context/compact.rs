//! Makes room by replacing the conversation with a summary that the model writes.

use base::event::Usage;
use base::failure::Result;
use serde_json::{Value, json};

use super::window::estimate;
use super::{Conversation, Entry};
use crate::message::{Message, Part, Role};

/// What is asked for a summary.
const QUESTION: &str = "The conversation no longer fits. Do not call tools. Write a summary from \
which you could go on without seeing anything above: 1. what the user wants, word for word where \
it matters; 2. decisions and why; 3. what was done: files changed, commands and their results; \
4. what is true now: failing tests, open errors, names and line numbers that matter; 5. what is \
still to do, next step first.";

/// What the model reads in place of the conversation.
const PREFACE: &str = "The conversation so far was replaced by this summary of it:";

/// A summary, and what it cost.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The model's words.
    pub text: String,
    /// Tokens and money.
    pub usage: Usage,
}

impl Conversation {
    /// Whether the next request would fill the window too far.
    pub fn is_full(&self) -> bool {
        let at = self.window.policy().compact_at;
        at.is_some_and(|at| self.window.percent() >= at) && self.messages.len() > 1
    }

    /// The question for a summary: the conversation itself (so that the provider's cache serves
    /// it), with long results cut when it would not fit `room` tokens as it is.
    pub fn summary_request(&self, room: u64) -> Vec<Message> {
        let mut messages = self.messages.clone();
        if self.window.used() > room {
            shorten(&mut messages);
            drop_oldest(&mut messages, room);
        }
        match messages.last_mut().filter(|last| last.role == Role::User) {
            Some(last) => last.parts.push(Part::Text { text: QUESTION.to_owned() }),
            None => messages.push(Message::text(Role::User, QUESTION)),
        }
        messages
    }

    /// Replaces the conversation by a summary, the user's last request and what `keep` says
    /// (the todo list). Gives the detail of the event.
    pub fn compact(&mut self, summary: &Summary, keep: Option<String>) -> Result<Value> {
        let before = self.window.percent();
        let count = self.messages.len();
        let mut text = format!("{PREFACE}\n\n{}", summary.text.trim());
        if !self.request.is_empty() {
            let most = (self.window.limit() as usize).min(200_000);
            let request = base::text::head(&self.request, most);
            text.push_str(&format!("\n\nThe user's last request:\n{request}"));
        }
        if let Some(todo) = keep {
            text.push_str(&format!("\n\nThe todo list:\n{todo}"));
        }
        text.push_str("\n\nGo on with the work.");
        let messages = vec![Message::text(Role::User, text)];
        self.note(Entry::Compacted { messages, usage: summary.usage })?;
        Ok(json!({"before": before, "after": self.window.percent(), "messages": count}))
    }
}

/// Cuts every long result to its beginning.
fn shorten(messages: &mut [Message]) {
    for part in messages.iter_mut().flat_map(|message| message.parts.iter_mut()) {
        if let Part::Result(result) = part
            && result.text.len() > 400
        {
            let cut = base::text::head(&result.text, 300).to_owned();
            result.text = format!("{cut}\n[cut]");
            result.images.clear();
        }
    }
}

/// Drops the oldest messages until the rest fits, never leaving a result without its call.
fn drop_oldest(messages: &mut Vec<Message>, room: u64) {
    let mut total: u64 = messages.iter().map(estimate).sum();
    let mut drop = 0;
    while total > room && drop + 2 < messages.len() {
        total -= estimate(&messages[drop]);
        drop += 1;
    }
    while drop > 0 && drop + 1 < messages.len() && starts_with_result(&messages[drop]) {
        drop += 1;
    }
    messages.drain(..drop);
    if messages.first().is_some_and(|first| first.role == Role::Assistant) {
        messages.insert(0, Message::text(Role::User, "[earlier messages were dropped]"));
    }
}

fn starts_with_result(message: &Message) -> bool {
    matches!(message.parts.first(), Some(Part::Result(_)))
}
