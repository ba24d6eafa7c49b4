//! Frees context by replacing the conversation with a summary that the model writes.

use base::event::Usage;
use base::failure::Result;
use serde_json::{Value, json};

use super::window::{self, ContextWindow};
use super::{Conversation, ConversationEntry};
use provider::message::{ContentPart, HarnessNote, Message, MessageRole};

/// The prompt that asks for a summary.
const SUMMARY_PROMPT: &str = "The conversation no longer fits. Do not call tools. Write a summary from \
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
        let threshold = self.window.policy().compact_at;
        threshold.is_some_and(|threshold| self.window.percent() >= threshold)
            && self.messages.len() > 1
    }

    /// Splits the conversation into parts of at most `budget` tokens. Returns it as one unchanged
    /// part while it fits, so that the provider's cache is used. A call is never separated from its
    /// result.
    pub(crate) fn split_to_fit(&self, budget: u64) -> Vec<Vec<Message>> {
        if self.window.used() <= budget {
            return vec![self.messages.clone()];
        }
        // The prompt and the summary so far are sent with each part.
        let budget = (budget * 3 / 4).max(1);
        let mut parts: Vec<Vec<Message>> = Vec::new();
        let mut remaining = 0;
        for group in group_messages(&self.messages) {
            let group = shorten_group(group, budget, &self.window);
            let size = count_tokens(&group, &self.window);
            match parts.last_mut().filter(|_| size <= remaining) {
                Some(part) => part.extend(group),
                None => {
                    parts.push(group);
                    remaining = budget;
                }
            }
            remaining = remaining.saturating_sub(size);
        }
        parts
    }

    /// Returns the images of the user's last message with images, if they leave enough context
    /// free.
    fn last_user_images(&self) -> Vec<ContentPart> {
        let has_images =
            |message: &&Message| message.role == MessageRole::User && images(message).count() > 0;
        let Some(message) = self.messages.iter().rev().find(has_images) else { return Vec::new() };
        let user_images: Vec<ContentPart> = images(message).cloned().collect();
        let size: u64 = user_images.iter().map(window::estimate_part).sum();
        if size <= self.window.limit() / 4 { user_images } else { Vec::new() }
    }

    /// Replaces the conversation by a summary, the user's last request with its images, and the
    /// text of `todo` (the todo list). Returns the detail of the event.
    pub(crate) fn compact(&mut self, summary: &Summary, todo: Option<String>) -> Result<Value> {
        let before = self.window.percent();
        let count = self.messages.len();
        let mut text = format!("{PREFACE}\n\n{}", summary.text.trim());
        if !self.request.is_empty() {
            let max_bytes = (self.window.limit() as usize).min(200_000);
            let request = base::text::head(&self.request, max_bytes);
            text.push_str(&format!("\n\nThe user's last request:\n{request}"));
        }
        if let Some(todo) = todo {
            text.push_str(&format!("\n\nThe todo list:\n{todo}"));
        }
        text.push_str("\n\nGo on with the work.");
        let mut message = Message::text(MessageRole::User, text);
        message.parts.extend(self.last_user_images());
        let messages = vec![message];
        self.append(ConversationEntry::Compacted { messages, usage: summary.usage })?;
        Ok(json!({"before": before, "after": self.window.percent(), "messages": count}))
    }
}

fn images(message: &Message) -> impl Iterator<Item = &ContentPart> {
    message.parts.iter().filter(|part| matches!(part, ContentPart::Image(_)))
}

/// Builds the messages that ask for a summary of one part, given the summary of the earlier parts.
pub(crate) fn summary_messages(part: Vec<Message>, summary: &str) -> Vec<Message> {
    let mut messages = part;
    if !summary.is_empty() {
        let text = format!("{PREFACE}\n\n{summary}\n\nWhat came after it:");
        messages.insert(0, Message::text(MessageRole::User, text));
    } else if messages.first().is_some_and(|first| first.role == MessageRole::Assistant) {
        messages.insert(0, Message::text(MessageRole::User, "[the conversation continues]"));
    }
    match messages.last_mut().filter(|last| last.role == MessageRole::User) {
        Some(last) => last.parts.push(ContentPart::context(SUMMARY_PROMPT)),
        None => messages.push(Message::text(MessageRole::User, SUMMARY_PROMPT)),
    }
    messages
}

/// Groups messages that must stay together: a reply with calls and their results.
fn group_messages(messages: &[Message]) -> Vec<&[Message]> {
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

fn count_tokens(messages: &[Message], window: &ContextWindow) -> u64 {
    messages.iter().map(|message| window.tokens(message)).sum()
}

/// Shortens a group that is too large by itself: truncates its long texts.
fn shorten_group(group: &[Message], budget: u64, window: &ContextWindow) -> Vec<Message> {
    let mut group = group.to_vec();
    let mut max_bytes = 8_000;
    while count_tokens(&group, window) > budget && max_bytes > 100 {
        group
            .iter_mut()
            .flat_map(|message| message.parts.iter_mut())
            .for_each(|p| truncate_part(p, max_bytes));
        max_bytes /= 2;
    }
    group
}

/// Truncates the text of a part to `max_bytes` bytes. Removes images and reasoning, which are not
/// summarized.
fn truncate_part(part: &mut ContentPart, max_bytes: usize) {
    let truncate = |text: &mut String| {
        if text.len() > max_bytes + 16 {
            *text = format!("{}\n[cut]", base::text::head(text, max_bytes));
        }
    };
    match part {
        ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => truncate(text),
        ContentPart::Result(result) => {
            truncate(&mut result.text);
            result.images.clear();
        }
        ContentPart::Call(call) => {
            call.malformed.as_mut().into_iter().for_each(truncate);
            for value in call.args.as_object_mut().into_iter().flat_map(|map| map.values_mut()) {
                if let Value::String(text) = value {
                    truncate(text);
                }
            }
        }
        ContentPart::Reasoning { .. } | ContentPart::Image(_) => {
            *part = ContentPart::Text { text: "[left out]".to_owned() };
        }
    }
}
