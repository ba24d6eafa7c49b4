//! The tools of a session as the turn loop uses them. Adds guidance for small models and reports
//! the todo list.

use std::sync::Arc;

use base::event::{EventKind, TodoItem};
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::escalation::Escalation;
use crate::current_call;
use crate::prompt::small_model::guide::TurnGuide;
use crate::turn::OnEvent;
use crate::turn::tool_calls::{ToolJob, Toolbox};
use provider::ToolDefinition;
use tools::args;
use tools::context::ToolContext;
use tools::dispatch;
use tools::output::ToolOutput;
use tools::profile::Profile;

/// The tools of a profile in a tool context, as the turn loop uses them.
pub(crate) struct SessionToolbox<'a> {
    /// The tools offered to the model.
    pub offered: &'a [ToolDefinition],
    /// The profile of the tools.
    pub profile: Profile,
    /// The context in which they run.
    pub context: ToolContext,
    /// Receives events about the todo list.
    pub on_event: OnEvent,
    /// The guide, only for a small model.
    pub guide: Option<Arc<TurnGuide>>,
    /// The stronger model that the model may ask for.
    pub escalation: Option<&'a Escalation>,
}

impl Toolbox for SessionToolbox<'_> {
    fn offered(&self) -> &[ToolDefinition] {
        self.offered
    }

    fn resource_keys(&self, name: &str, args: &Value) -> Vec<String> {
        dispatch::resource_keys(self.profile, name, args, &self.context)
    }

    fn run<'a>(&'a self, job: ToolJob<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let call = job.call;
            if let Some(raw_args) = &call.malformed {
                let hub = self.context.mcp.as_ref().filter(|hub| hub.owns(&call.name));
                return hub.map_or_else(
                    || args::malformed(self.profile, &call.name, raw_args),
                    |hub| hub.malformed(&call.name, raw_args),
                );
            }
            let context = ToolContext { on_output: job.on_output, ..self.context.clone() };
            let run = async {
                let Some(guide) = &self.guide else {
                    return dispatch::run(self.profile, &call.name, &call.args, &context).await;
                };
                let name_and_args = (call.name.as_str(), &call.args);
                let spec = dispatch::spec(self.profile, name_and_args, self.context.registry);
                let completed = spec.and_then(|spec| guide.complete_write(spec.kind, call));
                let blocked = || spec.and_then(|spec| guide.block(spec, call));
                if let Some(blocked) = completed.is_none().then(blocked).flatten() {
                    return blocked;
                }
                let args = completed.as_ref().map_or(&call.args, |completed| &completed.args);
                let mut outcome = dispatch::run(self.profile, &call.name, args, &context).await;
                if completed.is_some() && outcome.ok {
                    outcome.text = "added at the end; what the file held is kept".to_owned();
                }
                guide.add_next_step(spec, call, outcome)
            };
            let outcome = Escalation::handle_output(
                self.escalation,
                current_call::with_call_id(&call.id, run).await,
            )
            .await;
            if let Some(items) = todo_items(&outcome.metadata) {
                (self.on_event)(EventKind::Todo { items });
            }
            if outcome.metadata["plan"].is_string() && outcome.metadata["sha256"].is_string() {
                (self.on_event)(EventKind::Plan { plan: outcome.metadata.clone() });
            }
            outcome
        })
    }

    fn open_work(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { self.guide.as_ref()?.open_work() })
    }

    fn wants_handover(&self) -> bool {
        self.escalation.is_some_and(Escalation::is_requested)
    }

    fn is_done(&self) -> bool {
        self.guide.as_ref().is_some_and(|guide| guide.is_done())
    }
}

/// Parses the todo list in a tool's metadata.
fn todo_items(metadata: &Value) -> Option<Vec<TodoItem>> {
    serde_json::from_value(metadata.get("todos")?.clone()).ok()
}
