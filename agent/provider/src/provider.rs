//! A model that can be asked: one question, one reply.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::error::ProviderError;
use crate::message::{Message, Reply};

/// A model we can ask. Text arrives early through `hear`; the reply holds all of it.
pub trait Provider: Send + Sync {
    /// Asks once. Retries are [`retry`]'s business, tool calls the loop's.
    fn ask<'a>(
        &'a self,
        request: &'a ChatRequest<'a>,
        hear: &'a mut OnDelta<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>>;

    /// What the loop must know about the model.
    fn facts(&self) -> &ProviderFacts;

    /// A new turn of the user begins: what held for the last one only is over.
    fn turn_begins(&self) {}
}

/// Who listens while a reply comes in.
pub type OnDelta<'h> = dyn FnMut(Delta<'_>) + Send + 'h;

/// What the loop must know about a model.
#[derive(Clone, Debug)]
pub struct ProviderFacts {
    /// `type.name`, as in the configuration.
    pub provider: String,
    /// The model's name as sent.
    pub model: String,
    /// Tokens of input and output together.
    pub context: u64,
    /// Tokens of output at most.
    pub max_output: u64,
    /// Whether the model is small (under 4B parameters or under 8k context): it gets a short
    /// prompt, few tools and plain tool results.
    pub small: bool,
    /// Whether the price of its tokens is known.
    pub priced: bool,
}

/// One question.
#[derive(Clone, Debug)]
pub struct ChatRequest<'a> {
    /// The system prompt; byte-stable over a session.
    pub system: &'a str,
    /// The conversation so far, oldest first.
    pub messages: &'a [Message],
    /// The tools offered; byte-stable over a session.
    pub tools: &'a [ToolDefinition],
    /// Tokens of output at most.
    pub max_output: u64,
    /// The conversation's own id, for providers that keep state (KV cache, cache keys).
    pub session: &'a str,
}

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    /// The name in the profile.
    pub name: String,
    /// What it does.
    pub description: String,
    /// A JSON Schema object.
    pub parameters: Value,
}

/// What is heard while a reply comes in.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta<'a> {
    /// A piece of the model's words.
    Text(&'a str),
    /// A piece of its thought.
    Reasoning(&'a str),
    /// The question is asked again after a pause.
    Retry {
        /// Why, in a sentence.
        why: String,
        /// The pause.
        after: Duration,
        /// Counts from 1.
        attempt: u32,
    },
    /// Something that the user should know: another model is asked, say.
    Notice(&'a str),
    /// A sign of life without content.
    Ping,
}
