//! Services of tools other than files and processes: subagents, language servers, a browser, MCP
//! servers.

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;

use base::config::Config;
use base::failure::Result;
use futures_util::future::BoxFuture;
use serde_json::Value;

use super::call::Invocation;
use super::context::{Services, ToolContext};
use super::output::ToolOutput;
use super::registry::Registry;
use super::tool::ToolFuture;
use provider::ToolDefinition;

/// A task for a subagent.
pub struct SubagentRequest {
    /// The complete prompt.
    pub prompt: String,
    /// The persona; the parent's role if absent.
    pub agent: Option<String>,
    /// Whether it may only read files.
    pub reads_only: bool,
    /// Receives its actions.
    pub on_output: Arc<dyn Fn(&str) + Send + Sync>,
}

/// The subagents of a session. They share its gate and its limits.
pub trait Subagents: Send + Sync {
    /// Runs a subagent until it finishes and returns its report.
    fn run(&self, request: SubagentRequest) -> BoxFuture<'_, ToolOutput>;
}

/// The language servers of a session.
pub trait LanguageServers: Send + Sync {
    /// Answers a query about code.
    fn query<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a>;

    /// Returns the output of a call that wrote these files, with the errors that the servers report
    /// in them.
    fn after_edit<'a>(
        &'a self,
        call: &'a Invocation<'_>,
        files: &'a [PathBuf],
        output: ToolOutput,
    ) -> BoxFuture<'a, ToolOutput>;

    /// Stops all servers.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The browser of a session.
pub trait BrowserService: Send + Sync {
    /// Performs one browser action.
    fn run<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a>;
}

/// Tools that are not in the profiles.
pub trait ExternalTools: Send + Sync {
    /// Whether a name refers to one of these tools.
    fn owns(&self, name: &str) -> bool;

    /// Returns the result of a call whose arguments are not a JSON object.
    fn malformed(&self, name: &str, raw_args: &str) -> ToolOutput;

    /// Runs a call.
    fn run<'a>(
        &'a self,
        name: &'a str,
        args: &'a Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput>;
}

/// The MCP servers of a session.
pub trait McpServers: ExternalTools {
    /// Returns the tools to offer; unchanged until [`McpServers::apply_tool_changes`] returns a sentence.
    fn offered_tools(&self) -> Vec<ToolDefinition>;

    /// Applies tool changes of the servers. Returns a sentence for the user if the offered tools
    /// changed.
    fn apply_tool_changes(&self) -> Option<String>;

    /// Stops all servers.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The desktop helper.
pub trait DesktopService: Send + Sync {
    /// Stops the desktop helper, if it runs.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The owner of a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowserOwner {
    /// A session: the browser stops with it.
    Session,
    /// Calls from separate processes: the browser stops after a period without calls.
    Calls,
}

/// The tools of a program, and how their services are started.
pub trait Toolset: Debug + Sync {
    /// Returns all tools.
    fn registry(&self) -> &'static Registry;

    /// Creates the services according to the configuration.
    fn services(&self, config: &Config, owner: BrowserOwner) -> Result<Services>;

    /// Runs the process that keeps a shared browser. Calls `report` once, with a line for the process
    /// that started this one.
    fn keep_browser<'a>(
        &'a self,
        request: &'a str,
        report: &'a (dyn Fn(&str) + Sync),
    ) -> BoxFuture<'a, Result<()>>;
}
