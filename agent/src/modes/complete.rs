//! `g3 complete`: one question on stdin, one answer on stdout; no tools, no agent prompt.

use base::failure::{Failure, OrFail, Result};

use crate::message::{Message, Role};
use crate::provider::{self, Delta, Request};
use crate::run::Settings;

/// Asks once and gives the answer.
pub async fn run(settings: &Settings, question: &str) -> Result<String> {
    if question.trim().is_empty() {
        return Err(Failure::usage("there is no question on stdin")
            .next("echo 'What is a monad?' | g3 complete"));
    }
    let provider = provider::open(&settings.config, &settings.choice)?;
    let messages = [Message::text(Role::User, question)];
    let request = Request {
        system: "",
        messages: &messages,
        tools: &[],
        max_output: provider.facts().max_output,
        session: "complete",
    };
    let mut deaf = |_: Delta<'_>| {};
    let reply = provider.ask(&request, &mut deaf).await.or_fail(|| "the model gave no answer")?;
    let words = reply.message.words();
    if words.trim().is_empty() {
        return Err(Failure::failed("the model gave an empty answer"));
    }
    Ok(words)
}
