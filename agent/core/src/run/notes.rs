//! Automatic memory: after a turn that discovered something, asks the model for notes.

use std::path::PathBuf;
use std::time::Duration;

use base::event::{EventKind, NoticeLevel};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::AgentSession;
use crate::turn::side_event;
use gate::permission_mode::PermissionMode;
use provider::message::{Message, MessageRole, Reply, SideUsage, StopReason};
use provider::{ChatRequest, Delta};
use tools::dispatch;
use tools::kind::ToolKind;
use tools::profile::Profile;

/// The settings of the workspace notes.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// A file other than `analysis/memory.md`.
    pub file: Option<PathBuf>,
    /// Whether to ask for notes after a turn that discovered something; if absent, the mode
    /// decides.
    pub auto: Option<bool>,
}

/// The prompt that asks for notes.
const NOTES_PROMPT: &str = "The task is done; this is about the next one. What did you find out about \
this workspace just now that a later session would have to find out again: where things are, how \
to build and test, what is not as one would expect? Call no tools. Answer with notes in Markdown \
and nothing else: `### Topic` headings, below them short bullets, places as `file` and `symbol` \
without line numbers, which change. Nothing about what you did, nothing that AGENTS.md or the \
notes say already, no secrets. If there is nothing worth a note, answer with the word NOTHING.";

/// Maximum number of tokens of the notes.
const MAX_TOKENS: u64 = 4_000;
/// Timeout of the request.
const TIMEOUT: Duration = Duration::from_secs(120);

impl AgentSession {
    /// Asks for notes and stores them, if they are enabled and the turn discovered something. This
    /// is not a turn: the conversation does not change, only the cost is recorded. Errors are
    /// reported and ignored.
    pub(super) async fn take_notes(&mut self, cancel: CancellationToken) {
        let memory = &self.context.memory;
        let may_write = self.permission_mode() != PermissionMode::Plan;
        if !(memory.takes_notes && may_write && memory.novelty.should_take_note()) {
            return;
        }
        // A skill's requirements end with the turn.
        self.context.skills.begin_turn();
        let mut messages = self.conversation.messages().to_vec();
        messages.push(Message::text(MessageRole::User, NOTES_PROMPT));
        let request = ChatRequest {
            system: &self.model.system,
            messages: &messages,
            // The same tools as in other requests, so that the provider's cache is used.
            tools: &self.model.offered,
            max_output: self.model.facts().max_output.min(MAX_TOKENS),
            session: self.session.id.as_str(),
        };
        let mut on_delta = |delta: Delta<'_>| {
            side_event(delta).into_iter().for_each(|event| self.bus.emit(event));
        };
        let response =
            tokio::time::timeout(TIMEOUT, self.model.provider.ask(&request, &mut on_delta));
        let reply = tokio::select! {
            () = cancel.cancelled() => return,
            reply = response => reply,
        };
        let reply = match reply {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => {
                return self.warn(format!("no notes were taken: {}", error.failure().what));
            }
            Err(_) => return self.warn("no notes were taken: it took too long".to_owned()),
        };
        self.bus.emit(EventKind::Usage { usage: reply.usage });
        if let Err(failure) = self.conversation.add_side_usage(SideUsage {
            model: None,
            calls: 1,
            usage: reply.usage,
        }) {
            return self.warn(failure.sentence());
        }
        let Some(notes) = self.extract_notes(&reply) else { return };
        let args = json!({ "notes": notes });
        let outcome = dispatch::run(Profile::G3, "remember", &args, &self.context).await;
        let level = if outcome.ok { NoticeLevel::Info } else { NoticeLevel::Warning };
        self.bus.emit(EventKind::Notice { level, text: outcome.text });
    }

    /// Returns the notes in a reply: its text, or the argument of a call of the notes tool.
    fn extract_notes(&self, reply: &Reply) -> Option<String> {
        let notes_call = reply.message.calls().find(|call| {
            dispatch::kind(self.model.profile, &call.name, &call.args) == Some(ToolKind::REMEMBER)
        });
        let notes = match notes_call {
            Some(call) => call.args["notes"].as_str().unwrap_or_default().to_owned(),
            None if reply.message.calls().next().is_some() => return None,
            None => reply.message.full_text(),
        };
        // A truncated reply ends within a line.
        let complete = match reply.stop {
            StopReason::Length => notes.rsplit_once('\n').map_or("", |(complete, _)| complete),
            StopReason::Done | StopReason::Calls | StopReason::Refused => &notes,
        };
        let complete = complete.trim();
        let is_empty =
            complete.is_empty() || complete.trim_matches(['*', '`']).starts_with("NOTHING");
        (!is_empty && reply.stop != StopReason::Refused).then(|| complete.to_owned())
    }
}
