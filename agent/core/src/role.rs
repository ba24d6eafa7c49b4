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
    pub write_scope: Option<WriteScope>,
    /// Whether it may only read files and the web. Other tools are neither offered nor run.
    pub reads_only: bool,
    /// A tool that only this role has.
    pub tool: Option<Arc<dyn RoleTool>>,
}

/// A tool of a role, with which the role finishes its work.
pub trait RoleTool: Send + Sync + fmt::Debug {
    /// Returns the definition for the model.
    fn spec(&self) -> ToolDefinition;
    /// Runs a call.
    fn call(&self, args: &Value) -> ToolOutput;
    /// Returns what remains to be done with the tool, or `None` if the role's work is finished.
    fn open_work(&self) -> Option<String>;
}

/// Maximum number of times that a model that stops is told what remains.
const MAX_REMINDERS: u32 = 3;

impl AgentRole {
    /// Returns the tools of a profile that the role is offered.
    pub(crate) fn offered(
        &self,
        profile: Profile,
        all: Vec<ToolDefinition>,
    ) -> Vec<ToolDefinition> {
        let is_read = |spec: &ToolDefinition| self.is_read_only(profile, &spec.name, &Value::Null);
        let mut offered = all;
        offered.retain(|spec| !self.reads_only || is_read(spec));
        offered.extend(self.tool.as_ref().map(|tool| tool.spec()));
        offered
    }

    /// Whether a call only reads. A role with its own tool judges the local work, so it may read
    /// only files.
    fn is_read_only(&self, profile: Profile, name: &str, args: &Value) -> bool {
        let kind = dispatch::kind(profile, name, args);
        let reads_files = matches!(
            kind,
            Some(
                ToolKind::READ
                    | ToolKind::IMAGE
                    | ToolKind::GREP
                    | ToolKind::GLOB
                    | ToolKind::SYNTAX_SEARCH
            )
        );
        let reads_web =
            matches!(kind, Some(ToolKind::FETCH | ToolKind::CODE_SEARCH | ToolKind::WEB_SEARCH));
        reads_files || reads_web && self.tool.is_none()
    }
}

/// A toolbox that enforces the role's permissions, whatever the model was told.
pub(crate) struct RoleToolbox<'a> {
    inner: &'a dyn Toolbox,
    profile: Profile,
    role: &'a AgentRole,
    reminders: AtomicU32,
}

impl<'a> RoleToolbox<'a> {
    /// Wraps a toolbox for this role.
    pub(crate) fn new(
        inner: &'a dyn Toolbox,
        profile: Profile,
        role: &'a AgentRole,
    ) -> RoleToolbox<'a> {
        RoleToolbox { inner, profile, role, reminders: AtomicU32::new(0) }
    }

    fn tool(&self, name: &str) -> Option<&Arc<dyn RoleTool>> {
        self.role.tool.as_ref().filter(|tool| tool.spec().name == name)
    }

    fn refusal(&self, name: &str, args: &Value) -> Option<ToolOutput> {
        if !self.role.reads_only || self.role.is_read_only(self.profile, name, args) {
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

    fn resource_keys(&self, name: &str, args: &Value) -> Vec<String> {
        match self.tool(name) {
            Some(_) => vec![name.to_owned()],
            None => self.inner.resource_keys(name, args),
        }
    }

    fn run<'b>(&'b self, job: ToolJob<'b>) -> BoxFuture<'b, ToolOutput> {
        let call = job.call;
        if let Some(tool) = self.tool(&call.name) {
            let outcome = match &call.malformed {
                Some(_) => {
                    ToolOutput::invalid("the arguments are not a JSON object: send them again")
                }
                None => tool.call(&call.args),
            };
            return Box::pin(async { outcome });
        }
        match self.refusal(&call.name, &call.args) {
            Some(denied) => Box::pin(async { denied }),
            None => self.inner.run(job),
        }
    }

    fn wants_handover(&self) -> bool {
        self.inner.wants_handover()
    }

    fn is_done(&self) -> bool {
        self.role.tool.as_ref().is_some_and(|tool| tool.open_work().is_none())
            || self.inner.is_done()
    }

    fn open_work(&self) -> BoxFuture<'_, Option<String>> {
        let open_work = self.role.tool.as_ref().and_then(|tool| tool.open_work());
        if open_work.is_some() && self.reminders.fetch_add(1, Ordering::Relaxed) >= MAX_REMINDERS {
            return Box::pin(async { None });
        }
        match open_work {
            Some(open_work) => Box::pin(async { Some(open_work) }),
            None => self.inner.open_work(),
        }
    }
}
