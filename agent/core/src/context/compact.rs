//! Frees context by replacing the conversation with a summary that the model writes.

use base::event::Usage;
use base::failure::Result;
use serde_json::{Value, json};

use super::window::{self, ContextWindow};
use super::{Conversation, ConversationEntry};
use provider::message::{ContentPart, HarnessNote, Message, MessageRole};

/// The prompt that asks for a summary.
const QUESTION: &str = "The conversation no longer fits. Do not call tools. Write a summary from \
which you could go on without seeing anything above: 1. what the user wants, word for word where \
it matters; 2. decisions and why; 3. what was done: files changed, commands and their results; \
4. what is true now: failing tests, open errors, names and line numbers that matter; 5. what is \
still to do, next step first.";

/// The text that introduces the summary to the model.
const PREFACE: &str = "The conversation so far was replaced by this summary of it:";

/// A summary and its cost.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    /// The model's text.
    pub text: String,
    /// Tokens and cost.
    pub usage: Usage,
}

impl Conversation {
    /// Whether the next request would exceed the compaction threshold.
    pub(crate) fn is_full(&self) -> bool {
        let at = self.window.policy().compact_at;
        at.is_some_and(|at| self.window.percent() >= at) && self.messages.len() > 1
    }

    /// Splits the conversation into parts of at most `room` tokens. Returns it as one unchanged
    /// part while it fits, so that the provider's cache is used. A call is never separated from its
    /// result.
    pub(crate) fn parts_that_fit(&self, room: u64) -> Vec<Vec<Message>> {
        if self.window.used() <= room {
            return vec![self.messages.clone()];
        }
        // The prompt and the summary so far are sent with each part.
        let room = (room * 3 / 4).max(1);
        let mut parts: Vec<Vec<Message>> = Vec::new();
        let mut left = 0;
        for group in groups(&self.messages) {
            let group = shortened(group, room, &self.window);
            let size = tokens(&group, &self.window);
            match parts.last_mut().filter(|_| size <= left) {
                Some(part) => part.extend(group),
                None => {
                    parts.push(group);
                    left = room;
                }
            }
            left = left.saturating_sub(size);
        }
        parts
    }

    /// Returns the images of the user's last message with images, if they leave enough context
    /// free.
    fn pictures(&self) -> Vec<ContentPart> {
        let shown =
            |message: &&Message| message.role == MessageRole::User && images(message).count() > 0;
        let Some(message) = self.messages.iter().rev().find(shown) else { return Vec::new() };
        let all: Vec<ContentPart> = images(message).cloned().collect();
        let size: u64 = all.iter().map(window::estimate_part).sum();
        if size <= self.window.limit() / 4 { all } else { Vec::new() }
    }

    /// Replaces the conversation by a summary, the user's last request with its images, and the
    /// text of `keep` (the todo list). Returns the detail of the event.
    pub(crate) fn compact(&mut self, summary: &Summary, keep: Option<String>) -> Result<Value> {
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
        let mut message = Message::text(MessageRole::User, text);
        message.parts.extend(self.pictures());
        let messages = vec![message];
        self.note(ConversationEntry::Compacted { messages, usage: summary.usage })?;
        Ok(json!({"before": before, "after": self.window.percent(), "messages": count}))
    }
}

fn images(message: &Message) -> impl Iterator<Item = &ContentPart> {
    message.parts.iter().filter(|part| matches!(part, ContentPart::Image(_)))
}

/// Builds the messages that ask for a summary of one part, given the summary of the earlier parts.
pub(crate) fn question(part: Vec<Message>, summary: &str) -> Vec<Message> {
    let mut messages = part;
    if !summary.is_empty() {
        let text = format!("{PREFACE}\n\n{summary}\n\nWhat came after it:");
        messages.insert(0, Message::text(MessageRole::User, text));
    } else if messages.first().is_some_and(|first| first.role == MessageRole::Assistant) {
        messages.insert(0, Message::text(MessageRole::User, "[the conversation continues]"));
    }
    match messages.last_mut().filter(|last| last.role == MessageRole::User) {
        Some(last) => last.parts.push(ContentPart::context(QUESTION)),
        None => messages.push(Message::text(MessageRole::User, QUESTION)),
    }
    messages
}

/// Groups messages that must stay together: a reply with calls and their results.
fn groups(messages: &[Message]) -> Vec<&[Message]> {
    let mut groups = Vec::new();
    let mut rest = messages;
    while !rest.is_empty() {
        let results = rest[1..].iter().take_while(|message| starts_with_result(message)).count();
        let (group, after) = rest.split_at(1 + results);
        groups.push(group);
        rest = after;
    }
    groups
}

fn starts_with_result(message: &Message) -> bool {
    matches!(message.parts.first(), Some(ContentPart::Result(_)))
}

fn tokens(messages: &[Message], window: &ContextWindow) -> u64 {
    messages.iter().map(|message| window.tokens(message)).sum()
}

/// Shortens a group that is too large by itself: truncates its long texts.
fn shortened(group: &[Message], room: u64, window: &ContextWindow) -> Vec<Message> {
    let mut group = group.to_vec();
    let mut most = 8_000;
    while tokens(&group, window) > room && most > 100 {
        group.iter_mut().flat_map(|message| message.parts.iter_mut()).for_each(|p| cut(p, most));
        most /= 2;
    }
    group
}

/// Truncates the text of a part to `most` bytes. Removes images and reasoning, which are not
/// summarized.
fn cut(part: &mut ContentPart, most: usize) {
    let to_fit = |text: &mut String| {
        if text.len() > most + 16 {
            *text = format!("{}\n[cut]", base::text::head(text, most));
        }
    };
    match part {
        ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => to_fit(text),
        ContentPart::Result(result) => {
            to_fit(&mut result.text);
            result.images.clear();
        }
        ContentPart::Call(call) => {
            call.malformed.as_mut().into_iter().for_each(to_fit);
            for value in call.args.as_object_mut().into_iter().flat_map(|map| map.values_mut()) {
                if let Value::String(text) = value {
                    to_fit(text);
                }
            }
        }
        ContentPart::Reasoning { .. } | ContentPart::Image(_) => {
            *part = ContentPart::Text { text: "[left out]".to_owned() };
        }
    }
}
