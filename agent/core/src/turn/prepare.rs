//! Prepares the conversation for the next request: adds messages that the user sent during the
//! turn, and frees context with a summary, in parts if one request would not fit.

use base::event::{EventKind, NoticeLevel, Usage};
use base::failure::Result;

use super::{Agent, overhead, side_event};
use crate::context::Conversation;
use crate::context::compact::{self, Summary};
use provider::message::{Message, MessageRole};
use provider::{ChatRequest, Delta, ProviderError};

/// Adds messages that the user sent during the turn. Returns whether there were any.
pub(crate) fn receive_messages(conversation: &mut Conversation, agent: &Agent<'_>) -> Result<bool> {
    let mut has_messages = false;
    for (name, text) in agent.inbox.queued() {
        if conversation.steer(&name, &text)? {
            (agent.on_event)(EventKind::Notice {
                level: NoticeLevel::Info,
                text: format!("received: {text}"),
            });
            has_messages = true;
        }
        agent.inbox.remove(&name);
    }
    Ok(has_messages)
}

/// Maximum number of times that the parts are made smaller after the provider rejects them as too
/// long.
const MAX_ATTEMPTS: u32 = 3;

/// Replaces the conversation by a summary and returns its cost, or `None` if the user cancelled.
pub(crate) async fn compact(
    conversation: &mut Conversation,
    agent: &Agent<'_>,
) -> Result<Option<Usage>> {
    let facts = agent.provider.facts();
    let overhead = overhead(agent.system, agent.toolbox.offered());
    let mut budget = facts.context.saturating_sub(overhead + summary_length(agent));
    let mut usage = Usage::default();
    let mut text = String::new();
    for _ in 0..MAX_ATTEMPTS {
        match summarise(conversation.split_to_fit(budget), agent, &mut usage).await {
            Ok(summary) => {
                text = summary;
                break;
            }
            Err(ProviderError::Cancelled) => return Ok(None),
            Err(ProviderError::TooLong(_)) => budget /= 2,
            // If no summary can be made, the last messages and the request remain.
            Err(_) => break,
        }
    }
    if text.trim().is_empty() {
        text = last_texts(conversation);
    }
    (agent.on_event)(EventKind::Usage { usage });
    let detail = conversation.compact(&Summary { text, usage }, (agent.verbatim_texts)())?;
    (agent.on_event)(EventKind::Compacted { detail });
    Ok(Some(usage))
}

/// Returns the maximum number of tokens of a summary.
fn summary_length(agent: &Agent<'_>) -> u64 {
    let facts = agent.provider.facts();
    facts.max_output.min(facts.context / 8)
}

/// Summarizes all parts, each together with the summary of the earlier parts.
async fn summarise(
    parts: Vec<Vec<Message>>,
    agent: &Agent<'_>,
    usage: &mut Usage,
) -> std::result::Result<String, ProviderError> {
    let mut summary = String::new();
    for part in parts {
        let messages = compact::summary_messages(part, &summary);
        let request = ChatRequest {
            system: agent.system,
            messages: &messages,
            tools: agent.toolbox.offered(),
            max_output: summary_length(agent),
            session: agent.session,
        };
        let mut on_delta =
            |delta: Delta<'_>| side_event(delta).into_iter().for_each(&*agent.on_event);
        let reply = tokio::select! {
            () = agent.cancel.cancelled() => return Err(ProviderError::Cancelled),
            reply = agent.provider.ask(&request, &mut on_delta) => reply?,
        };
        *usage = usage.plus(reply.usage);
        let text = reply.message.full_text();
        if !text.trim().is_empty() {
            summary = text;
        }
    }
    Ok(summary)
}

/// Returns the model's last text, for a conversation without a summary.
fn last_texts(conversation: &Conversation) -> String {
    let replies = conversation
        .messages()
        .iter()
        .rev()
        .filter(|message| message.role == MessageRole::Assistant);
    let texts: Vec<String> =
        replies.map(Message::full_text).filter(|w| !w.trim().is_empty()).collect();
    texts.into_iter().take(3).collect::<Vec<_>>().join("\n")
}
