//! The usage of the model's context window: the tokens that the provider reported, plus an estimate
//! for new messages.

use base::event::Usage;

use provider::message::{ContentPart, HarnessNote, Message};

/// Estimated number of tokens of an image.
const IMAGE_TOKENS: u64 = 1_500;

/// The token count of a context window.
#[derive(Clone, Copy, Debug)]
pub struct ContextWindow {
    limit: u64,
    overhead: u64,
    counted: u64,
    uncounted: u64,
    /// Reported tokens per 1,000 estimated ones.
    scale: u64,
    policy: CompactionPolicy,
}

/// The thresholds for freeing context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionPolicy {
    /// Percentage of the window below which nothing is thinned.
    pub thin_from: u64,
    /// Percentage of the window at which the conversation is replaced by a summary.
    pub compact_at: Option<u64>,
}

impl Default for CompactionPolicy {
    fn default() -> CompactionPolicy {
        CompactionPolicy { thin_from: 50, compact_at: Some(80) }
    }
}

impl ContextWindow {
    /// Creates a window that starts with the tokens of every request (system prompt and tools).
    pub(crate) fn new(limit: u64, overhead: u64) -> ContextWindow {
        let policy = CompactionPolicy::default();
        ContextWindow {
            limit: limit.max(1),
            overhead,
            counted: overhead,
            uncounted: 0,
            scale: 1_000,
            policy,
        }
    }

    /// Sets the thresholds.
    #[must_use]
    pub(crate) fn with(mut self, policy: CompactionPolicy) -> ContextWindow {
        self.policy = policy;
        self
    }

    /// Returns the thresholds.
    pub(crate) fn policy(&self) -> CompactionPolicy {
        self.policy
    }

    /// Returns the tokens of a message, scaled to the provider's counts.
    pub(crate) fn tokens(&self, message: &Message) -> u64 {
        estimate(message) * self.scale / 1_000
    }

    /// Adds a message that the provider has not counted yet.
    pub(crate) fn add(&mut self, message: &Message) {
        self.uncounted += self.tokens(message);
    }

    /// Subtracts an estimated number of tokens.
    pub(crate) fn remove(&mut self, estimated: u64) {
        let tokens = estimated * self.scale / 1_000;
        let from_new = tokens.min(self.uncounted);
        self.uncounted -= from_new;
        self.counted = self.counted.saturating_sub(tokens - from_new);
    }

    /// Takes over the provider's count of a request and its reply. Keeps the estimate if there is
    /// no count.
    pub(crate) fn report(&mut self, usage: Usage, reply: &Message) {
        let sent = usage.sent();
        if sent == 0 {
            return self.add(reply);
        }
        let estimated = self.used().saturating_mul(1_000) / self.scale.max(1);
        self.scale =
            sent.saturating_mul(1_000).checked_div(estimated).unwrap_or(1_000).clamp(500, 3_000);
        self.counted = sent.saturating_add(usage.output);
        self.uncounted = 0;
    }

    /// Marks the window as full after the provider rejected a request as too long.
    pub(crate) fn mark_full(&mut self) {
        self.counted = self.counted.max(self.limit);
    }

    /// Restarts the count with this conversation.
    pub(crate) fn restart(&mut self, messages: &[Message]) {
        self.counted = self.overhead * self.scale / 1_000;
        self.uncounted = 0;
        messages.iter().for_each(|message| self.add(message));
    }

    /// Returns the number of tokens in use.
    pub fn used(&self) -> u64 {
        self.counted.saturating_add(self.uncounted)
    }

    /// Returns the size of the window in tokens.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the usage in percent.
    pub fn percent(&self) -> u64 {
        self.used().saturating_mul(100) / self.limit
    }
}

/// Estimates the tokens of a message.
pub(crate) fn estimate(message: &Message) -> u64 {
    message.parts.iter().map(estimate_part).sum::<u64>() + 4
}

/// Estimates the tokens of a text.
pub(crate) fn estimate_text(text: &str) -> u64 {
    // English and code have 3 to 4 bytes per token; the provider's counts soon correct the
    // estimate.
    (text.len() as u64 * 2).div_ceil(7)
}

/// Estimates the tokens of a part.
pub(crate) fn estimate_part(part: &ContentPart) -> u64 {
    match part {
        ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
            estimate_text(text)
        }
        ContentPart::Reasoning { text, sealed } => {
            estimate_text(text) + sealed.as_ref().map_or(0, |v| estimate_text(&v.to_string()))
        }
        ContentPart::Call(call) => {
            estimate_text(&call.name) + estimate_text(&call.args.to_string()) + 8
        }
        ContentPart::Result(result) => {
            estimate_text(&result.text) + result.images.len() as u64 * IMAGE_TOKENS + 8
        }
        ContentPart::Image(_) => IMAGE_TOKENS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use provider::message::MessageRole;

    #[test]
    fn reported_tokens_replace_the_estimate() {
        let mut window = ContextWindow::new(1_000, 100);
        window.add(&Message::text(MessageRole::User, "x".repeat(350)));
        assert!((200..=220).contains(&window.used()), "{}", window.used());
        let usage = Usage { input: 300, cache_read: 100, output: 50, ..Usage::default() };
        window.report(usage, &Message::text(MessageRole::Assistant, "y"));
        assert_eq!(window.used(), 450);
        // The estimate was about half of the real count, so new messages count about twice.
        window.add(&Message::text(MessageRole::User, "x".repeat(350)));
        assert!(window.used() > 600, "{}", window.used());
    }

    #[test]
    fn the_estimate_remains_without_a_report() {
        let mut window = ContextWindow::new(1_000, 100);
        window.report(Usage::default(), &Message::text(MessageRole::Assistant, "y".repeat(35)));
        assert!(window.used() > 100);
    }
}
