//! What tools can ask for besides files and programs: other agents, language servers, a browser,
//! MCP servers.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::Value;

use super::call::Invocation;
use super::context::ToolContext;
use super::output::ToolOutput;
use super::tool::ToolFuture;
use provider::ToolSpec;

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
    fn offered(&self) -> Vec<ToolSpec>;

    /// Takes over what servers changed about their tools: a sentence for the user when others are
    /// offered now.
    fn news(&self) -> Option<String>;

    /// Ends all servers.
    fn close(&self) -> BoxFuture<'_, ()>;
}
