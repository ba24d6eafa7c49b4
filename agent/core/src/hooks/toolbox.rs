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
const MAX_CONTINUES: u32 = 3;

/// A toolbox wrapped by hooks.
pub(crate) struct HookedToolbox<'a> {
    inner: &'a dyn Toolbox,
    hooks: &'a Hooks,
    gate: &'a Gate,
    continues: AtomicU32,
}

impl<'a> HookedToolbox<'a> {
    /// Wraps a toolbox.
    pub(crate) fn new(
        inner: &'a dyn Toolbox,
        hooks: &'a Hooks,
        gate: &'a Gate,
    ) -> HookedToolbox<'a> {
        HookedToolbox { inner, hooks, gate, continues: AtomicU32::new(0) }
    }

    async fn run_one(&self, job: ToolJob<'_>) -> ToolOutput {
        let call = job.call;
        let before = self.hooks.before(&call.name, &call.args).await;
        let changed_call = before.args.map(|args| ToolCall { args, ..call.clone() });
        let call = changed_call.as_ref().unwrap_or(call);
        let denied = match &before.decision {
            HookDecision::Go | HookDecision::Allow => None,
            HookDecision::Deny(reason) => Some(format!("denied by a hook: {reason}")),
            HookDecision::Ask(reason) => {
                self.gate.ask(&build_question(call, reason)).await.err().map(|denied| denied.reason)
            }
        };
        if let Some(reason) = denied {
            return ToolOutput::failed(ToolErrorKind::Denied, reason);
        }
        let run = self.inner.run(ToolJob { call, on_output: job.on_output });
        let mut outcome = match before.decision {
            HookDecision::Allow => gate::preapproved(run).await,
            HookDecision::Go | HookDecision::Ask(_) | HookDecision::Deny(_) => run.await,
        };
        if changed_call.is_some() {
            outcome.text.push_str(&format!("\n\n[a hook changed the arguments to {}]", call.args));
        }
        for note in self.hooks.after(&call.name, &call.args, &outcome).await {
            outcome.text.push_str(&format!("\n\n[note of a hook: {note}]"));
        }
        outcome
    }
}

fn build_question(call: &ToolCall, reason: &str) -> PermissionQuestion {
    PermissionQuestion {
        tool: call.name.clone(),
        what: format!("run with {}", call.args),
        reason: format!("a hook requires confirmation: {reason}"),
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

    fn resource_keys(&self, name: &str, args: &Value) -> Vec<String> {
        self.inner.resource_keys(name, args)
    }

    fn run<'a>(&'a self, job: ToolJob<'a>) -> BoxFuture<'a, ToolOutput> {
        if job.call.malformed.is_some() {
            return self.inner.run(job);
        }
        Box::pin(self.run_one(job))
    }

    fn wants_handover(&self) -> bool {
        self.inner.wants_handover()
    }

    fn is_done(&self) -> bool {
        // A stop hook requires that the model itself declares that it is done.
        self.inner.is_done() && !self.hooks.has(HookEvent::Stop)
    }

    fn open_work(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async move {
            if let Some(reason) = self.inner.open_work().await {
                return Some(reason);
            }
            let continues = self.continues.load(Ordering::Relaxed);
            if continues >= MAX_CONTINUES {
                return None;
            }
            let reason = self.hooks.stop(continues).await?;
            self.continues.store(continues + 1, Ordering::Relaxed);
            Some(reason)
        })
    }
}
