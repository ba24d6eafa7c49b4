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
    pub place: ToolContext,
    /// Receives events about the todo list.
    pub tell: OnEvent,
    /// The guide, only for a small model.
    pub coach: Option<Arc<TurnGuide>>,
    /// The stronger model that the model may ask for.
    pub escalation: Option<&'a Escalation>,
}

impl Toolbox for SessionToolbox<'_> {
    fn offered(&self) -> &[ToolDefinition] {
        self.offered
    }

    fn touches(&self, name: &str, args: &Value) -> Vec<String> {
        dispatch::touches(self.profile, name, args, &self.place)
    }

    fn run<'a>(&'a self, job: ToolJob<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let call = job.call;
            if let Some(sent) = &call.malformed {
                let hub = self.place.mcp.as_ref().filter(|hub| hub.owns(&call.name));
                return hub.map_or_else(
                    || args::malformed(self.profile, &call.name, sent),
                    |hub| hub.malformed(&call.name, sent),
                );
            }
            let place = ToolContext { hear: job.hear, ..self.place.clone() };
            let run = async {
                let Some(coach) = &self.coach else {
                    return dispatch::run(self.profile, &call.name, &call.args, &place).await;
                };
                let named = (call.name.as_str(), &call.args);
                let spec = dispatch::spec(self.profile, named, self.place.registry);
                let whole = spec.and_then(|spec| coach.completed(spec.kind, call));
                let held = || spec.and_then(|spec| coach.hold(spec, call));
                if let Some(held) = whole.is_none().then(held).flatten() {
                    return held;
                }
                let args = whole.as_ref().map_or(&call.args, |whole| &whole.args);
                let mut outcome = dispatch::run(self.profile, &call.name, args, &place).await;
                if whole.is_some() && outcome.ok {
                    outcome.text = "added at the end; what the file held is kept".to_owned();
                }
                coach.lead(spec, call, outcome)
            };
            let outcome =
                Escalation::heard(self.escalation, current_call::within(&call.id, run).await).await;
            if let Some(items) = todo_items(&outcome.metadata) {
                (self.tell)(EventKind::Todo { items });
            }
            if outcome.metadata["plan"].is_string() && outcome.metadata["sha256"].is_string() {
                (self.tell)(EventKind::Plan { plan: outcome.metadata.clone() });
            }
            outcome
        })
    }

    fn still_open(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async { self.coach.as_ref()?.still_open() })
    }

    fn hands_over(&self) -> bool {
        self.escalation.is_some_and(Escalation::is_wanted)
    }

    fn is_done(&self) -> bool {
        self.coach.as_ref().is_some_and(|coach| coach.is_done())
    }
}

/// Parses the todo list in a tool's metadata.
fn todo_items(metadata: &Value) -> Option<Vec<TodoItem>> {
    serde_json::from_value(metadata.get("todos")?.clone()).ok()
}
