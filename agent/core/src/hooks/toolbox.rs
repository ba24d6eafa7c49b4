//! A toolbox that runs hooks before and after each call and before the agent stops.

use std::sync::atomic::{AtomicU32, Ordering};

use base::config::hooks::HookEvent;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::{HookDecision, Hooks};
use crate::turn::tool_calls::{ToolJob, Toolbox};
use gate::{self, Gate, PermissionQuestion};
use provider::ToolDefinition;
use provider::message::ToolCall;
use tools::output::{ToolErrorKind, ToolOutput};

/// Maximum number of times that hooks may make the agent continue in one user turn.
const AGAIN: u32 = 3;

/// A toolbox wrapped by hooks.
pub(crate) struct HookedToolbox<'a> {
    inner: &'a dyn Toolbox,
    hooks: &'a Hooks,
    gate: &'a Gate,
    again: AtomicU32,
}

impl<'a> HookedToolbox<'a> {
    /// Wraps a toolbox.
    pub(crate) fn new(
        inner: &'a dyn Toolbox,
        hooks: &'a Hooks,
        gate: &'a Gate,
    ) -> HookedToolbox<'a> {
        HookedToolbox { inner, hooks, gate, again: AtomicU32::new(0) }
    }

    async fn run_one(&self, job: ToolJob<'_>) -> ToolOutput {
        let call = job.call;
        let before = self.hooks.before(&call.name, &call.args).await;
        let changed = before.args.map(|args| ToolCall { args, ..call.clone() });
        let call = changed.as_ref().unwrap_or(call);
        let denied = match &before.word {
            HookDecision::Go | HookDecision::Allow => None,
            HookDecision::Deny(why) => Some(format!("denied by a hook: {why}")),
            HookDecision::Ask(why) => {
                self.gate.ask(&question(call, why)).await.err().map(|refused| refused.why)
            }
        };
        if let Some(why) = denied {
            return ToolOutput::failed(ToolErrorKind::Denied, why);
        }
        let run = self.inner.run(ToolJob { call, hear: job.hear });
        let mut outcome = match before.word {
            HookDecision::Allow => gate::answered(run).await,
            HookDecision::Go | HookDecision::Ask(_) | HookDecision::Deny(_) => run.await,
        };
        if changed.is_some() {
            outcome.text.push_str(&format!("\n\n[a hook changed the arguments to {}]", call.args));
        }
        for note in self.hooks.after(&call.name, &call.args, &outcome).await {
            outcome.text.push_str(&format!("\n\n[note of a hook: {note}]"));
        }
        outcome
    }
}

fn question(call: &ToolCall, why: &str) -> PermissionQuestion {
    PermissionQuestion {
        tool: call.name.clone(),
        what: format!("run with {}", call.args),
        why: format!("a hook requires confirmation: {why}"),
        // A hook's decision has no rule.
        rule: String::new(),
        host: None,
        writes: None,
        details: None,
    }
}

impl Toolbox for HookedToolbox<'_> {
    fn offered(&self) -> &[ToolDefinition] {
        self.inner.offered()
    }

    fn touches(&self, name: &str, args: &Value) -> Vec<String> {
        self.inner.touches(name, args)
    }

    fn run<'a>(&'a self, job: ToolJob<'a>) -> BoxFuture<'a, ToolOutput> {
        if job.call.malformed.is_some() {
            return self.inner.run(job);
        }
        Box::pin(self.run_one(job))
    }

    fn hands_over(&self) -> bool {
        self.inner.hands_over()
    }

    fn is_done(&self) -> bool {
        // A stop hook requires that the model itself declares that it is done.
        self.inner.is_done() && !self.hooks.has(HookEvent::Stop)
    }

    fn still_open(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async move {
            if let Some(open) = self.inner.still_open().await {
                return Some(open);
            }
            let again = self.again.load(Ordering::Relaxed);
            if again >= AGAIN {
                return None;
            }
            let open = self.hooks.stop(again).await?;
            self.again.store(again + 1, Ordering::Relaxed);
            Some(open)
        })
    }
}
