//! The tools of a session as the loop uses them: what a small model is led to, the todo list told.

use std::sync::Arc;

use base::event::{TodoItem, What};
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::escalation::Escalation;
use crate::prompt::small::coach::Coach;
use crate::tools::args;
use crate::tools::context::ToolContext;
use crate::tools::dispatch;
use crate::tools::output::ToolOutput;
use crate::tools::profile::Profile;
use crate::turn::Tell;
use crate::turn::tool_calls::{ToolJob, Toolbox};
use crate::ui::ask;
use provider::ToolSpec;

/// The tools of a profile at a workplace, as the loop uses them.
pub struct SessionToolbox<'a> {
    /// Offered to the model.
    pub offered: &'a [ToolSpec],
    /// Which names they have.
    pub profile: Profile,
    /// Where they work.
    pub place: ToolContext,
    /// Hears of the todo list.
    pub tell: Tell,
    /// Only for a small model.
    pub coach: Option<Arc<Coach>>,
    /// Who goes on when the model asks for that.
    pub escalation: Option<&'a Escalation>,
}

impl Toolbox for SessionToolbox<'_> {
    fn offered(&self) -> &[ToolSpec] {
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
                Escalation::heard(self.escalation, ask::within(&call.id, run).await).await;
            if let Some(items) = todo_items(&outcome.metadata) {
                (self.tell)(What::Todo { items });
            }
            if outcome.metadata["plan"].is_string() && outcome.metadata["sha256"].is_string() {
                (self.tell)(What::Plan { plan: outcome.metadata.clone() });
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

/// The todo list that a tool left, as its metadata has it.
fn todo_items(metadata: &Value) -> Option<Vec<TodoItem>> {
    serde_json::from_value(metadata.get("todos")?.clone()).ok()
}
