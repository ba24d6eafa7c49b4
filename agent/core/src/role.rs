//! The role of the agent in a session: its identity, its permissions and its own tool.

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

/// The role of the agent in a session. The default is g3 itself, with all its tools.
#[derive(Clone, Debug, Default)]
pub struct AgentRole {
    /// The name stored with the session.
    pub name: Option<String>,
    /// The start of the system prompt.
    pub identity: Identity,
    /// The paths that it may write; no restriction if absent.
    pub fence: Option<WriteScope>,
    /// Whether it may only read files and the web. Other tools are neither offered nor run.
    pub reads_only: bool,
    /// A tool that only this role has.
    pub own: Option<Arc<dyn RoleTool>>,
}

/// A tool of a role, with which the role finishes its work.
pub trait RoleTool: Send + Sync + fmt::Debug {
    /// Returns the definition for the model.
    fn spec(&self) -> ToolDefinition;
    /// Runs a call.
    fn call(&self, args: &Value) -> ToolOutput;
    /// Returns what remains to be done with the tool, or `None` if the role's work is finished.
    fn left(&self) -> Option<String>;
}

/// Maximum number of times that a model that stops is told what remains.
const ASKS: u32 = 3;

impl AgentRole {
    /// Returns the tools of a profile that the role is offered.
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

    /// Whether a call only reads. A role with its own tool judges the local work, so it may read
    /// only files.
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

/// A toolbox that enforces the role's permissions, whatever the model was told.
pub(crate) struct RoleToolbox<'a> {
    inner: &'a dyn Toolbox,
    profile: Profile,
    role: &'a AgentRole,
    asked: AtomicU32,
}

impl<'a> RoleToolbox<'a> {
    /// Wraps a toolbox for this role.
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
