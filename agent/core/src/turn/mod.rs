//! The turn loop: send a request, run the tool calls, add the results. Independent of providers,
//! tools, terminals and files.

pub mod prepare;
pub mod tool_calls;

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base::event::{EventKind, NoticeLevel, Usage};
use base::failure::Failure;
use tokio_util::sync::CancellationToken;

use crate::context::{Conversation, Inbox, window};
use crate::limits::{Limit, UsageLimits, UsageMeter};
use crate::loop_detector::LoopDetector;
use provider::message::{Message, MessageRole, Reply, StopReason};
use provider::{ChatRequest, Delta, Provider, ProviderError, ToolDefinition};

use tool_calls::Toolbox;

/// Receives the events of a turn.
pub(crate) type OnEvent = Arc<dyn Fn(EventKind) + Send + Sync>;

/// The collaborators of the loop, which do not change during a turn. Assembled in `run`.
pub(crate) struct Agent<'a> {
    /// The model.
    pub provider: &'a dyn Provider,
    /// The tools.
    pub toolbox: &'a dyn Toolbox,
    /// The system prompt.
    pub system: &'a str,
    /// The session's id.
    pub session: &'a str,
    /// The limits.
    pub limits: UsageLimits,
    /// Messages of the user during the turn.
    pub inbox: &'a dyn Inbox,
    /// Returns the text that must survive a compaction (the todo list).
    pub verbatim_texts: &'a (dyn Fn() -> Option<String> + Send + Sync),
    /// Receives events.
    pub on_event: OnEvent,
    /// Set when the user cancels.
    pub cancel: CancellationToken,
}

/// How the loop ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TurnEnd {
    /// The model finished.
    Done,
    /// Another model continues.
    HandedOver,
    /// A limit was reached.
    Limit(Limit),
    /// The user cancelled.
    Cancelled,
}

/// A failed turn.
#[derive(Debug)]
pub(crate) struct TurnError {
    /// The failure for the user.
    pub failure: Failure,
    /// Commands that resume the session from a shell; not needed at g3's own prompt.
    pub resume: Vec<String>,
}

impl From<Failure> for TurnError {
    fn from(failure: Failure) -> TurnError {
        TurnError { failure, resume: Vec::new() }
    }
}

/// The result of a turn or of a part of one.
pub(crate) type TurnResult<T> = Result<T, TurnError>;

/// Maximum number of consecutive replies that are truncated or empty.
const MAX_BAD_REPLIES: u32 = 3;

/// Sends requests and runs tool calls until the model makes no more calls or a limit is reached.
/// The time limit interrupts replies and tools, like a cancellation by the user. `meter` is the
/// usage of the turn so far and is updated.
pub(crate) async fn run_turn(
    conversation: &mut Conversation,
    agent: &Agent<'_>,
    meter: &mut UsageMeter,
) -> TurnResult<TurnEnd> {
    let Some(time) = agent.limits.time else {
        return run_until_done(conversation, agent, meter).await;
    };
    let start = Instant::now();
    let remaining = time.saturating_sub(meter.time);
    let end = {
        let mut run = pin!(run_until_done(conversation, agent, meter));
        tokio::select! {
            end = &mut run => end,
            () = tokio::time::sleep(remaining) => {
                agent.cancel.cancel();
                run.await.map(|end| match end {
                    TurnEnd::Cancelled => TurnEnd::Limit(Limit::Time(time)),
                    TurnEnd::Done | TurnEnd::HandedOver | TurnEnd::Limit(_) => end,
                })
            }
        }
    };
    meter.time += start.elapsed();
    end
}

async fn run_until_done(
    conversation: &mut Conversation,
    agent: &Agent<'_>,
    meter: &mut UsageMeter,
) -> TurnResult<TurnEnd> {
    let mut detector = LoopDetector::new(agent.provider.facts().small);
    let mut remaining = MAX_BAD_REPLIES;
    loop {
        if agent.cancel.is_cancelled() {
            return Ok(TurnEnd::Cancelled);
        }
        if let Some(limit) = agent.limits.reached(meter) {
            return Ok(TurnEnd::Limit(limit));
        }
        prepare::receive_messages(conversation, agent)?;
        let Some(reply) = ask_within_context(conversation, agent, meter).await? else {
            return Ok(TurnEnd::Cancelled);
        };
        meter.add(reply.usage);
        let (reply, excess) = tool_calls::without_excess(reply);
        conversation.add_reply(&reply)?;
        emit_costs(conversation, agent, &reply);
        let calls = (&reply, excess.as_slice());
        let limit = tool_calls::run_tool_calls(conversation, agent, calls, &mut detector).await?;
        if agent.toolbox.is_done() {
            return Ok(TurnEnd::Done);
        }
        if let Some(limit) = limit {
            return Ok(TurnEnd::Limit(limit));
        }
        if agent.toolbox.wants_handover() {
            return Ok(TurnEnd::HandedOver);
        }
        match next_step(&reply) {
            Next::Ask => remaining = MAX_BAD_REPLIES,
            Next::Finish if prepare::receive_messages(conversation, agent)? => {}
            Next::Finish => match agent.toolbox.open_work().await {
                Some(open_work) => conversation.remind(open_work)?,
                None => return Ok(TurnEnd::Done),
            },
            Next::Fail(failure) => return Err(failure.into()),
            Next::Prompt(text) if remaining > 0 => {
                remaining -= 1;
                conversation.prompt(text)?;
            }
            Next::Prompt(_) => {
                return Err(Failure::failed("the model does not get to an end")
                    .because("its replies were cut off or empty several times in a row")
                    .into());
            }
        }
    }
}

/// What follows a reply whose calls have run.
enum Next {
    Ask,
    Prompt(&'static str),
    Finish,
    Fail(Failure),
}

fn next_step(reply: &Reply) -> Next {
    let called = reply.message.calls().next().is_some();
    let empty = reply.message.full_text().trim().is_empty();
    match reply.stop {
        StopReason::Refused => Next::Fail(
            Failure::failed("the model refused to continue")
                .because(last_words(&reply.message))
                .hint("say it in other words, or use another model: --model NAME"),
        ),
        StopReason::Calls | StopReason::Done | StopReason::Length if called => Next::Ask,
        StopReason::Length => Next::Prompt(
            "Your reply hit the output limit. Go on exactly where it broke off, without repeating \
             anything.",
        ),
        StopReason::Calls | StopReason::Done if empty => Next::Prompt(
            "Your reply was empty. Go on with the task; if it is done, say in a sentence what you \
             did.",
        ),
        StopReason::Calls | StopReason::Done => Next::Finish,
    }
}

fn last_words(message: &Message) -> String {
    let text = message.full_text();
    if text.trim().is_empty() { "it gave no reason".into() } else { text.trim().to_owned() }
}

/// Frees context if needed and sends a request. A request that turns out too long is sent again
/// after a compaction. Returns `None` if the user cancelled.
async fn ask_within_context(
    conversation: &mut Conversation,
    agent: &Agent<'_>,
    meter: &mut UsageMeter,
) -> TurnResult<Option<Reply>> {
    if let Some(detail) = conversation.thin()? {
        (agent.on_event)(EventKind::Thinned { detail });
    }
    if conversation.is_full() {
        let Some(usage) = prepare::compact(conversation, agent).await? else { return Ok(None) };
        meter.add_summary(usage);
    }
    match ask(conversation, agent).await {
        Err(ProviderError::TooLong(_)) if conversation.messages().len() > 1 => {
            conversation.window.mark_full();
            let Some(usage) = prepare::compact(conversation, agent).await? else { return Ok(None) };
            meter.add_summary(usage);
        }
        other => return to_turn_result(other),
    }
    to_turn_result(ask(conversation, agent).await)
}

fn to_turn_result(result: Result<Reply, ProviderError>) -> TurnResult<Option<Reply>> {
    match result {
        Ok(reply) => Ok(Some(reply)),
        Err(ProviderError::Cancelled) => Ok(None),
        Err(error) => Err(failure(&error)),
    }
}

/// Sends one request. Text streamed before the user cancelled stays in the conversation.
async fn ask(conversation: &mut Conversation, agent: &Agent<'_>) -> Result<Reply, ProviderError> {
    (agent.on_event)(EventKind::Turn { n: conversation.turns() + 1 });
    let streamed = Mutex::new(String::new());
    let mut on_delta = |delta: Delta<'_>| on_delta(agent, &streamed, delta);
    let request = ChatRequest {
        system: agent.system,
        messages: conversation.messages(),
        tools: agent.toolbox.offered(),
        max_output: agent.provider.facts().max_output,
        session: agent.session,
    };
    let result = tokio::select! {
        biased;
        () = agent.cancel.cancelled() => Err(ProviderError::Cancelled),
        result = agent.provider.ask(&request, &mut on_delta) => result,
    };
    let streamed = streamed.into_inner().unwrap_or_default();
    if matches!(result, Err(ProviderError::Cancelled)) && !streamed.trim().is_empty() {
        let message =
            Message::text(MessageRole::Assistant, format!("{streamed}\n[interrupted by the user]"));
        let broken = |e: Failure| ProviderError::Broken(e.to_string());
        let (usage, stop) = (Usage::default(), StopReason::Done);
        conversation.add_reply(&Reply { message, usage, stop }).map_err(broken)?;
    }
    result
}

fn on_delta(agent: &Agent<'_>, streamed: &Mutex<String>, delta: Delta<'_>) {
    let mut streamed = base::sync::lock(streamed);
    match delta {
        Delta::Text(text) => {
            streamed.push_str(text);
            (agent.on_event)(EventKind::Text { text: text.to_owned() });
        }
        Delta::Reasoning(text) => (agent.on_event)(EventKind::Reasoning { text: text.to_owned() }),
        Delta::Retry { .. } | Delta::Notice(_) | Delta::Ping => {
            side_event(delta).into_iter().for_each(|event| (agent.on_event)(event));
        }
    }
}

/// Returns the event for a delta other than text, such as a retry or a switch of models. Requests
/// outside the conversation (for summaries and notes) report these too.
pub fn side_event(delta: Delta<'_>) -> Option<EventKind> {
    match delta {
        Delta::Retry { reason, after, attempt } => {
            Some(EventKind::Retry { why: reason, after_ms: after.as_millis() as u64, attempt })
        }
        Delta::Notice(text) => {
            Some(EventKind::Notice { level: NoticeLevel::Warning, text: text.to_owned() })
        }
        Delta::Text(_) | Delta::Reasoning(_) | Delta::Ping => None,
    }
}

/// Returns the tokens of every request: system prompt and tools.
pub(crate) fn overhead(system: &str, tools: &[ToolDefinition]) -> u64 {
    let tool = |spec: &ToolDefinition| {
        window::estimate_text(&spec.description)
            + window::estimate_text(&spec.parameters.to_string())
    };
    window::estimate_text(system) + tools.iter().map(tool).sum::<u64>()
}

fn emit_costs(conversation: &Conversation, agent: &Agent<'_>, reply: &Reply) {
    (agent.on_event)(EventKind::Usage { usage: reply.usage });
    (agent.on_event)(EventKind::Context {
        used: conversation.window.used(),
        limit: conversation.window.limit(),
    });
}

/// Converts a provider's error to a failure with hints.
fn failure(error: &ProviderError) -> TurnError {
    let failure = error.failure_of("the model request failed");
    let (failure, resume) = match error {
        ProviderError::RateLimited { .. }
        | ProviderError::Busy { .. }
        | ProviderError::Overloaded(_) => (failure, Some("wait, then resume with: g3 --resume")),
        ProviderError::TooLong(_) => (failure, Some("start a new session: g3 --new-session")),
        ProviderError::Rejected(_) => (failure.hint("g3 config show --origin"), None),
        ProviderError::Unreachable(_) => {
            let check = "check the network, and the provider's base_url: g3 config show --origin";
            (failure.hint(check), Some("then resume with: g3 --resume"))
        }
        ProviderError::Broken(_) | ProviderError::Cancelled => {
            (failure, Some("resume with: g3 --resume"))
        }
    };
    TurnError { failure, resume: resume.map(str::to_owned).into_iter().collect() }
}

#[cfg(test)]
mod tests;
