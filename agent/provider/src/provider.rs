//! The interface of a model provider: one request, one reply.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::error::ProviderError;
use crate::message::{Message, Reply};

/// A model. Streams deltas to `on_delta`; the reply contains everything that was streamed.
pub trait Provider: Send + Sync {
    /// Sends one request. Retries are handled by [`retry`], tool calls by the turn loop.
    fn ask<'a>(
        &'a self,
        request: &'a ChatRequest<'a>,
        on_delta: &'a mut OnDelta<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>>;

    /// Returns the facts about the model.
    fn facts(&self) -> &ProviderFacts;

    /// Resets state that applied only to the previous user turn.
    fn turn_begins(&self) {}
}

/// Callback for the deltas of a reply.
pub type OnDelta<'h> = dyn FnMut(Delta<'_>) + Send + 'h;

/// Facts about the model that the turn loop needs.
#[derive(Clone, Debug)]
pub struct ProviderFacts {
    /// `type.name`, as in the configuration.
    pub provider: String,
    /// The model's name as sent.
    pub model: String,
    /// Context window in tokens, input and output together.
    pub context: u64,
    /// Maximum number of output tokens.
    pub max_output: u64,
    /// Whether the model is small (under 4B parameters or under 8k context). A small model gets a
    /// short prompt, few tools and plain tool results.
    pub small: bool,
    /// Whether the price of its tokens is known.
    pub priced: bool,
}

/// A request to the model.
#[derive(Clone, Debug)]
pub struct ChatRequest<'a> {
    /// The system prompt; byte-identical throughout a session.
    pub system: &'a str,
    /// The conversation so far, oldest first.
    pub messages: &'a [Message],
    /// The tools offered; byte-identical throughout a session.
    pub tools: &'a [ToolDefinition],
    /// Maximum number of output tokens.
    pub max_output: u64,
    /// The id of the conversation, for providers that keep state (KV cache, cache keys).
    pub session: &'a str,
}

/// A tool definition as the model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    /// The name in the profile.
    pub name: String,
    /// What the tool does.
    pub description: String,
    /// A JSON Schema object.
    pub parameters: Value,
}

/// An event during a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta<'a> {
    /// A piece of text.
    Text(&'a str),
    /// A piece of reasoning.
    Reasoning(&'a str),
    /// The request is retried after a delay.
    Retry {
        /// The reason, in a sentence.
        reason: String,
        /// The delay.
        after: Duration,
        /// The number of the attempt, counted from 1.
        attempt: u32,
    },
    /// A notice for the user, such as a switch to another model.
    Notice(&'a str),
    /// A keep-alive without content.
    Ping,
}
