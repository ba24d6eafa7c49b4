//! What tools can ask for besides files and programs: other agents, language servers, a browser,
//! MCP servers.

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

/// What another agent is to do.
pub struct SubagentRequest {
    /// All that it is told.
    pub prompt: String,
    /// The persona that works; the same role as ours when none is named.
    pub agent: Option<String>,
    /// Whether it may only look at files.
    pub reads_only: bool,
    /// Hears what it does.
    pub hear: Arc<dyn Fn(&str) + Send + Sync>,
}

/// Agents that work within a session. They share its gate and its limits.
pub trait Subagents: Send + Sync {
    /// Lets one work to its end, and gives its report.
    fn work(&self, order: SubagentRequest) -> BoxFuture<'_, ToolOutput>;
}

/// The language servers of a session.
pub trait LanguageServers: Send + Sync {
    /// Answers a question about code.
    fn query<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a>;

    /// The output of a call that wrote these files, with the errors that servers find in them.
    fn after_edit<'a>(
        &'a self,
        call: &'a Invocation<'_>,
        files: &'a [PathBuf],
        output: ToolOutput,
    ) -> BoxFuture<'a, ToolOutput>;

    /// Ends all servers.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The browser of a session.
pub trait BrowserService: Send + Sync {
    /// Does one thing with the browser.
    fn run<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a>;
}

/// Tools that are not in the profiles.
pub trait ExternalTools: Send + Sync {
    /// Whether a name means one of these tools.
    fn owns(&self, name: &str) -> bool;

    /// The result of a call whose arguments are not a JSON object.
    fn malformed(&self, name: &str, sent: &str) -> ToolOutput;

    /// Runs a call.
    fn run<'a>(
        &'a self,
        name: &'a str,
        args: &'a Value,
        at: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput>;
}

/// The MCP servers of a session.
pub trait McpServers: ExternalTools {
    /// The tools to offer; the same until [`McpServers::news`] gives a sentence.
    fn offered(&self) -> Vec<ToolDefinition>;

    /// Takes over what servers changed about their tools: a sentence for the user when others are
    /// offered now.
    fn news(&self) -> Option<String>;

    /// Ends all servers.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What controls the desktop.
pub trait DesktopService: Send + Sync {
    /// Ends the desktop helper, if it runs.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// Who shares a browser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowserOwner {
    /// A session: its browser ends with it.
    Session,
    /// Calls in processes of their own: their browser ends when none came for a while.
    Calls,
}

/// The tools of a program, and how the services behind them are started.
pub trait Toolset: Debug + Sync {
    /// Every tool.
    fn registry(&self) -> &'static Registry;

    /// The services, as the configuration has them.
    fn services(&self, config: &Config, owner: BrowserOwner) -> Result<Services>;

    /// Runs the process that keeps a shared browser. Calls `say` once, with a line for the process
    /// that started this one.
    fn keep_browser<'a>(
        &'a self,
        order: &'a str,
        say: &'a (dyn Fn(&str) + Sync),
    ) -> BoxFuture<'a, Result<()>>;
}
