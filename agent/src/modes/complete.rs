//! `g3 complete`: one question on stdin, one answer on stdout; no tools and no agent prompt.

use std::sync::Arc;

use base::event::Usage;
use base::failure::{Failure, Result};

use super::interrupt::{self, Interrupts};
use agent_core::bus::Bus;
use agent_core::run::AgentSettings;
use agent_core::turn::side_event;
use provider::message::{Message, MessageRole};
use provider::{self, ChatRequest, Delta, ProviderError};

/// A model's answer to one question.
#[derive(Debug)]
pub(crate) struct Completion {
    /// The text of the answer.
    pub text: String,
    /// Tokens and money.
    pub usage: Usage,
}

/// Asks the model once and returns its answer. The bus receives only other events, e.g. that a
/// fallback model answers.
pub(crate) async fn run(
    settings: &AgentSettings,
    question: &str,
    bus: Arc<Bus>,
) -> Result<Completion> {
    if question.trim().is_empty() {
        return Err(Failure::usage("stdin is empty: expected a question")
            .hint("echo 'What is a monad?' | g3 complete"));
    }
    let provider = provider::open(&settings.config, &settings.choice)?;
    let messages = [Message::text(MessageRole::User, question)];
    let request = ChatRequest {
        system: "",
        messages: &messages,
        tools: &[],
        max_output: provider.facts().max_output,
        session: "complete",
    };
    let mut on_delta =
        |delta: Delta<'_>| side_event(delta).into_iter().for_each(|what| bus.emit(what));
    let interrupts = Interrupts::listen()?;
    let tokens = interrupts.begin();
    let reply = tokio::select! {
        reply = provider.ask(&request, &mut on_delta) => reply,
        () = tokens.cancel.cancelled() => Err(ProviderError::Cancelled),
    };
    let reply = match reply {
        Err(ProviderError::Cancelled) => return Err(interrupt::failure()),
        reply => reply.map_err(|error| error.failure_of("the model request failed"))?,
    };
    let words = reply.message.full_text();
    if words.trim().is_empty() {
        return Err(Failure::failed("the model returned an empty answer"));
    }
    Ok(Completion { text: words, usage: reply.usage })
}
