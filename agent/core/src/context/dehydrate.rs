//! Moves finished turns out of the conversation into files, and back.

use base::failure::{Failure, OrFail, Result};
use serde_json::{Value, json};

use super::window::estimate;
use super::{Conversation, ConversationEntry};
use crate::fragment::{self, Fragment};
use provider::message::{Message, MessageRole};

/// Minimum number of tokens that moving a turn must free; its placeholder takes about 60 tokens.
const MIN_FREED: u64 = 150;

/// The placeholder of a turn that was moved into a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stub {
    /// The index of its first message; the model's last message is the next one.
    index: usize,
    id: String,
}

impl Conversation {
    /// Moves the finished turn since the last call into a file. Requires that the model's final
    /// message has arrived. Returns the detail of the event, or `None` if moving the turn does not
    /// free enough tokens.
    pub(crate) fn dehydrate(&mut self, now: String) -> Result<Option<Value>> {
        let turn = &self.messages[self.settled.min(self.messages.len())..];
        if turn.len() < 3 || turn.last().is_none_or(|last| last.role != MessageRole::Assistant) {
            return Ok(None);
        }
        let last = self.stubs.last().map(|stub| stub.id.clone());
        let tokens: u64 = turn.iter().map(|message| self.window.tokens(message)).sum();
        let fragment = Fragment::new(turn, tokens, now, last.as_deref());
        let stub = fragment.stub();
        let stub_tokens: u64 = stub.iter().map(|message| self.window.tokens(message)).sum();
        if tokens < stub_tokens + MIN_FREED {
            return Ok(None);
        }
        let text = serde_json::to_string_pretty(&fragment).or_fail(|| "cannot write a fragment")?;
        let (id, before) = (fragment.fragment_id, self.window.percent());
        let file = self.log.write_file("fragments", &fragment::file_name(&id), &text);
        file.or_fail(|| "cannot move a turn into a file")?;
        let (from, messages) = (self.settled, stub.to_vec());
        let count = fragment.message_count;
        self.append(ConversationEntry::Dehydrated { from, fragment: id.clone(), messages })?;
        let after = self.window.percent();
        Ok(Some(json!({"fragment": id, "before": before, "after": after, "messages": count})))
    }

    /// Replaces the placeholder of a turn by the turn.
    pub fn rehydrate(&mut self, fragment: Fragment) -> Result<()> {
        let id = &fragment.fragment_id;
        if !self.stubs.iter().any(|stub| stub.id == *id) {
            return Err(Failure::failed(format!("fragment {id} no longer fits"))
                .because("its turn was summarised, dropped or brought back already"));
        }
        let free = self.window.limit().saturating_sub(self.window.used());
        if fragment.estimated_tokens > free {
            return Err(Failure::refused(format!(
                "fragment {id} has {} tokens, and {free} are free",
                fragment.estimated_tokens
            ))
            .hint("/compact makes room"));
        }
        let Fragment { fragment_id, messages, .. } = fragment;
        self.append(ConversationEntry::Rehydrated { fragment: fragment_id, messages })
    }

    pub(super) fn apply_dehydrated(&mut self, from: usize, id: String, stub: Vec<Message>) {
        let from = from.min(self.messages.len());
        self.replace_messages(from..self.messages.len(), stub);
        self.stubs.push(Stub { index: from, id });
        self.settled = self.messages.len();
        // Freed context allows a threshold to be crossed again.
        self.thinned_at = self.thinned_at.min(self.window.percent() / 10 * 10);
    }

    pub(super) fn apply_rehydrated(&mut self, id: &str, messages: Vec<Message>) {
        let Some(nth) = self.stubs.iter().position(|stub| stub.id == id) else { return };
        let index = self.stubs.remove(nth).index;
        let end = (index + 2).min(self.messages.len());
        let added = messages.len().saturating_sub(end - index);
        self.replace_messages(index..end, messages);
        self.stubs[nth..].iter_mut().for_each(|stub| stub.index += added);
        self.settled += added;
    }

    /// Replaces messages and updates the token count of the window.
    fn replace_messages(&mut self, range: std::ops::Range<usize>, replacement: Vec<Message>) {
        let removed: u64 = self.messages[range.clone()].iter().map(estimate).sum();
        self.window.remove(removed);
        replacement.iter().for_each(|message| self.window.add(message));
        self.messages.splice(range, replacement);
    }
}
