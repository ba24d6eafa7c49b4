//! Who works in a session: what the prompt says of it, what it may do, and a tool of its own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::prompt::Identity;
use crate::turn::tool_calls::{ToolJob, Toolbox};
use gate::write_scope::WriteScope;
use provider::ToolDefinition;
use tools::dispatch;
use tools::kind::ToolKind;
use tools::output::{ToolErrorKind, ToolOutput};
use tools::profile::Profile;

/// Who works in a session. The default is g3 itself, with all its tools.
#[derive(Clone, Debug, Default)]
pub struct AgentRole {
    /// A name that is kept with the session.
    pub name: Option<String>,
    /// How the system prompt begins.
    pub identity: Identity,
    /// Where it may write; everywhere when there is no fence.
    pub fence: Option<WriteScope>,
    /// Whether it may only look, at files and at the web: nothing else is offered, and nothing else
    /// runs.
    pub reads_only: bool,
    /// A tool that only this role has.
    pub own: Option<Arc<dyn RoleTool>>,
}

/// A tool that belongs to a role, by which its work ends.
pub trait RoleTool: Send + Sync + fmt::Debug {
    /// As the model sees it.
    fn spec(&self) -> ToolDefinition;
    /// Carries a call out.
    fn call(&self, args: &Value) -> ToolOutput;
    /// What is still to be done with it; `None` when the role's work is over.
    fn left(&self) -> Option<String>;
}

/// How often a model that stops is told what is left to do.
const ASKS: u32 = 3;

impl AgentRole {
    /// What the role is offered of a profile's tools.
    pub(crate) fn offered(
        &self,
        profile: Profile,
        all: Vec<ToolDefinition>,
    ) -> Vec<ToolDefinition> {
        let reads = |spec: &ToolDefinition| self.looks(profile, &spec.name, &Value::Null);
        let mut offered = all;
        offered.retain(|spec| !self.reads_only || reads(spec));
        offered.extend(self.own.as_ref().map(|own| own.spec()));
        offered
    }

    /// Whether a call looks at something and does nothing else. Who judges the work that lies here,
    /// with a tool of its own, looks at that alone.
    fn looks(&self, profile: Profile, name: &str, args: &Value) -> bool {
        let engine = dispatch::kind(profile, name, args);
        let at_files = matches!(
            engine,
            Some(
                ToolKind::READ
                    | ToolKind::IMAGE
                    | ToolKind::GREP
                    | ToolKind::GLOB
                    | ToolKind::SYNTAX_SEARCH
            )
        );
        let at_web =
            matches!(engine, Some(ToolKind::FETCH | ToolKind::CODE_SEARCH | ToolKind::WEB_SEARCH));
        at_files || at_web && self.own.is_none()
    }
}

/// A toolbox as a role may use it: what the role may not do is refused here, whatever the model
/// was told.
pub(crate) struct RoleToolbox<'a> {
    inner: &'a dyn Toolbox,
    profile: Profile,
    role: &'a AgentRole,
    asked: AtomicU32,
}

impl<'a> RoleToolbox<'a> {
    /// The toolbox as this role may use it.
    pub(crate) fn new(
        inner: &'a dyn Toolbox,
        profile: Profile,
        role: &'a AgentRole,
    ) -> RoleToolbox<'a> {
        RoleToolbox { inner, profile, role, asked: AtomicU32::new(0) }
    }

    fn own(&self, name: &str) -> Option<&Arc<dyn RoleTool>> {
        self.role.own.as_ref().filter(|own| own.spec().name == name)
    }

    fn refusal(&self, name: &str, args: &Value) -> Option<ToolOutput> {
        if !self.role.reads_only || self.role.looks(self.profile, name, args) {
            return None;
        }
        let offered: Vec<&str> = self.offered().iter().map(|spec| spec.name.as_str()).collect();
        let text = format!("denied: `{name}` is not among your tools: {}", offered.join(", "));
        Some(ToolOutput::failed(ToolErrorKind::Denied, text))
    }
}

impl Toolbox for RoleToolbox<'_> {
    fn offered(&self) -> &[ToolDefinition] {
        self.inner.offered()
    }

    fn touches(&self, name: &str, args: &Value) -> Vec<String> {
        match self.own(name) {
            Some(_) => vec![name.to_owned()],
            None => self.inner.touches(name, args),
        }
    }

    fn run<'b>(&'b self, job: ToolJob<'b>) -> BoxFuture<'b, ToolOutput> {
        let call = job.call;
        if let Some(own) = self.own(&call.name) {
            let outcome = match &call.malformed {
                Some(_) => {
                    ToolOutput::invalid("the arguments are not a JSON object: send them again")
                }
                None => own.call(&call.args),
            };
            return Box::pin(async { outcome });
        }
        match self.refusal(&call.name, &call.args) {
            Some(refused) => Box::pin(async { refused }),
            None => self.inner.run(job),
        }
    }

    fn hands_over(&self) -> bool {
        self.inner.hands_over()
    }

    fn is_done(&self) -> bool {
        self.role.own.as_ref().is_some_and(|own| own.left().is_none()) || self.inner.is_done()
    }

    fn still_open(&self) -> BoxFuture<'_, Option<String>> {
        let left = self.role.own.as_ref().and_then(|own| own.left());
        if left.is_some() && self.asked.fetch_add(1, Ordering::Relaxed) >= ASKS {
            return Box::pin(async { None });
        }
        match left {
            Some(left) => Box::pin(async { Some(left) }),
            None => self.inner.still_open(),
        }
    }
}
