//! A model we can ask: one question, one reply. What differs between services stays in this folder.

pub mod anthropic;
pub mod arguments;
pub mod auth;
pub mod embedded;
pub mod fallback;
pub mod fault;
pub mod gemini;
pub mod history;
pub mod hosted;
pub mod http;
pub mod listed;
pub mod models;
pub mod oauth;
pub mod open;
pub mod openai_chat;
pub mod openai_responses;
pub mod retry;
pub mod sse;
pub mod text_calls;
pub mod traced;

use std::sync::Arc;
use std::time::Duration;

use base::config::Config;
use base::failure::Failure;
use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::message::{Message, Reply};

/// A model we can ask. Text arrives early through `hear`; the reply holds all of it.
pub trait Provider: Send + Sync {
    /// Asks once. Retries are [`retry`]'s business, tool calls the loop's.
    fn ask<'a>(
        &'a self,
        request: &'a Request<'a>,
        hear: &'a mut Hear<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>>;

    /// What the loop must know about the model.
    fn facts(&self) -> &Facts;

    /// A new turn of the user begins: what held for the last one only is over.
    fn turn_begins(&self) {}
}

/// Who listens while a reply comes in.
pub type Hear<'h> = dyn FnMut(Delta<'_>) + Send + 'h;

/// What the loop must know about a model.
#[derive(Clone, Debug)]
pub struct Facts {
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
pub struct Request<'a> {
    /// The system prompt; byte-stable over a session.
    pub system: &'a str,
    /// The conversation so far, oldest first.
    pub messages: &'a [Message],
    /// The tools offered; byte-stable over a session.
    pub tools: &'a [ToolSpec],
    /// Tokens of output at most.
    pub max_output: u64,
    /// The conversation's own id, for providers that keep state (KV cache, cache keys).
    pub session: &'a str,
}

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
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

/// Only what a caller does something different about.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// Too many requests; the server may say how long to wait.
    #[error("the provider limits requests{}", wait_text(*.after))]
    RateLimited {
        /// From `retry-after`.
        after: Option<Duration>,
    },
    /// The model has too much to do (503, 529); the server may say how long to wait.
    #[error("the model is busy: {said}{}", wait_text(*.after))]
    Busy {
        /// The server's words.
        said: String,
        /// From `retry-after`.
        after: Option<Duration>,
    },
    /// The server failed (5xx): {0}.
    #[error("the provider is overloaded: {0}")]
    Overloaded(String),
    /// The request does not fit the model's context.
    #[error("the request does not fit the model's context: {0}")]
    TooLong(String),
    /// Key, model or request is wrong: the user must act.
    #[error("the provider refused the request: {0}")]
    Rejected(String),
    /// Nobody answers at the address.
    #[error("{0}")]
    Unreachable(String),
    /// The connection or the stream broke.
    #[error("the reply broke off: {0}")]
    Broken(String),
    /// The user cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// Who shall be asked, as far as flags say it.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// `type.name` or a bare type; without one the configuration and the environment decide
    /// ([`base::config::providers::Providers::chosen`]).
    pub reference: Option<String>,
    /// Stands for the configured model.
    pub model: Option<String>,
    /// Stands for the configured model to fall back on.
    pub fallback: Option<String>,
    /// Whether a budget holds: models without a known price are refused.
    pub budget: bool,
}

/// Opens a provider, wrapped so that it asks again, or another model, where that may help.
pub fn open(config: &Config, choice: &Choice) -> Result<Box<dyn Provider>, Failure> {
    let reference = choice.reference.clone().unwrap_or_else(|| config.providers.chosen());
    if choice.fallback.is_some() && reference.split('.').next() == Some("embedded") {
        return Err(Failure::usage(format!("`{reference}` has no model to fall back on"))
            .because("it is a local model, which has no fallback"));
    }
    let own = open::by_reference(config, &reference, choice.model.as_deref())?;
    check_price(choice, own.facts())?;
    let spare = spare(config, choice, own.facts());
    let models = fallback::Models::new(own, spare);
    let attempts = config.agent.max_retry_attempts;
    Ok(Box::new(retry::Retrying::new(models, attempts, retry::Pace::from_env())))
}

/// Whether the chosen provider, and those that other roles name, could be opened: key, model and
/// address are there. Asks no model, and starts none on this machine.
pub fn check(
    config: &Config,
    choice: &Choice,
    roles: impl Iterator<Item = String>,
) -> Result<(), Failure> {
    let chosen = choice.reference.clone().unwrap_or_else(|| config.providers.chosen());
    for (n, reference) in std::iter::once(chosen).chain(roles).enumerate() {
        let model = choice.model.as_deref().filter(|_| n == 0);
        if reference.split('.').next() == Some("embedded") {
            base::host::find::Wanted::of(&config.providers.local(&reference), model)?;
        } else {
            let choice = Choice { reference: Some(reference), ..choice.clone() };
            open(config, &Choice { model: model.map(str::to_owned), ..choice })?;
        }
    }
    Ok(())
}

/// Does something that may take long without a pause, such as opening a provider whose key comes from
/// a command, beside the runtime's own thread.
pub async fn off_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|why| {
        Err(Failure::new(base::failure::Kind::Bug, "a task of g3 broke").because(why))
    })
}

/// How the model to fall back on is opened, when there is one.
fn spare(config: &Config, choice: &Choice, own: &Facts) -> Option<fallback::Open> {
    let reference = own.provider.clone();
    let configured = config.providers.fallback_model(&reference);
    let model = choice.fallback.as_deref().or(configured).filter(|model| *model != own.model)?;
    let (config, choice, model) = (config.clone(), choice.clone(), model.to_owned());
    Some(Arc::new(move || {
        let other = open::by_reference(&config, &reference, Some(&model))?;
        check_price(&choice, other.facts())?;
        Ok(other)
    }))
}

/// A budget cannot be kept where the price is unknown.
fn check_price(choice: &Choice, facts: &Facts) -> Result<(), Failure> {
    if !choice.budget || facts.priced {
        return Ok(());
    }
    let Facts { provider, model, .. } = facts;
    let price = "price = { input = …, output = … }";
    let failure = Failure::usage(format!("the price of `{model}` on `{provider}` is unknown"))
        .because("a budget cannot be kept without it");
    let failure = match provider.contains('.') {
        true => failure.next(format!("set `{price}` in [providers.{provider}]")),
        false => failure.next(format!("add [[models]] with `name = \"{model}\"` and `{price}`")),
    };
    Err(failure
        .next("prices are US dollars for a million tokens")
        .next("or limit tokens instead of money: --max-tokens N"))
}

impl ProviderError {
    /// Whether the service does not know what it is asked about (404).
    pub fn is_missing(&self) -> bool {
        // The status begins every refusal's text: see `fault::refusal`.
        matches!(self, ProviderError::Rejected(text) if text.starts_with("HTTP 404:"))
    }

    /// The error as people read it; lines of the text that begin with `try: ` say what to try.
    pub fn failure(&self) -> Failure {
        let text = self.to_string();
        let mut lines = text.split("\ntry: ");
        let what = lines.next().unwrap_or_default();
        let failure = match self {
            ProviderError::Cancelled => Failure::new(base::failure::Kind::Interrupted, what),
            ProviderError::RateLimited { .. }
            | ProviderError::Busy { .. }
            | ProviderError::Overloaded(_)
            | ProviderError::TooLong(_)
            | ProviderError::Rejected(_)
            | ProviderError::Unreachable(_)
            | ProviderError::Broken(_) => Failure::failed(what),
        };
        lines.fold(failure, Failure::next)
    }
}

fn wait_text(after: Option<Duration>) -> String {
    after.map(|d| format!(" (retry after {} s)", d.as_secs())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_what_to_try_apart() {
        let failure = ProviderError::Rejected("HTTP 401: no\ntry: check the key".into()).failure();
        assert_eq!(failure.what, "the provider refused the request: HTTP 401: no");
        assert_eq!(failure.next, ["check the key"]);
    }
}
