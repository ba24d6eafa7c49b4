//! Tools of MCP servers. Servers start concurrently with the first turn; their tools are offered
//! under prefixed names and pass through the gate like all calls.

pub mod cache;
pub mod connect;
pub mod http;
pub mod login;
pub mod name;
pub mod result;
pub mod search;
pub mod server;
pub mod tool_selection;
mod user_questions;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base::config::mcp::{CallDefault, McpServerConfig};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use self::connect::ServerPaths;
use self::server::{ConfiguredServer, KnownTool};
use self::tool_selection::ToolSelection;
use self::user_questions::UserQuestions;
use gate::{Access, AccessRequest, Gate, Permit, Preview};
use provider::ToolDefinition;
use tools::context::ToolContext;
use tools::exec::confinement::CommandSandbox;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::services::{ExternalTools, McpServers};
use tools::{history, skill_permissions};

/// Receives notices for the user.
pub(crate) type OnServerNotice = Arc<dyn Fn(String) + Send + Sync>;

/// The servers of a session and their offered tools.
pub struct McpHub {
    servers: Vec<Arc<ConfiguredServer>>,
    selection: Mutex<ToolSelection>,
    session_dir: PathBuf,
    closed: Arc<AtomicBool>,
}

/// Returns the enabled servers of a configuration, none of them started. With a gate, they can ask the
/// user.
pub fn servers(
    configured: &BTreeMap<String, McpServerConfig>,
    paths: &ServerPaths,
    gate: Option<&Arc<Gate>>,
) -> Vec<Arc<ConfiguredServer>> {
    let enabled: Vec<_> = configured.iter().filter(|(_, server)| server.enabled).collect();
    let parts = name::servers(enabled.iter().map(|(name, _)| name.as_str()));
    let named_servers = enabled.into_iter().zip(parts);
    named_servers
        .map(|((name, server), part)| {
            let questions = gate.and_then(|gate| UserQuestions::new(gate, name));
            Arc::new(ConfiguredServer::new(name, &part, server, paths).with_questions(questions))
        })
        .collect()
}

impl McpHub {
    /// Starts the servers in the background, and selects the offered tools. Returns `None` if there
    /// are no servers.
    pub fn start(
        configured: &BTreeMap<String, McpServerConfig>,
        (cwd, sandbox): (&Path, CommandSandbox),
        session_dir: &Path,
        gate: &Arc<Gate>,
        on_notice: &OnServerNotice,
    ) -> Option<Arc<McpHub>> {
        let logs = Some(session_dir.join("mcp"));
        let paths = ServerPaths { cwd: cwd.to_owned(), logs, sandbox };
        let servers = servers(configured, &paths, Some(gate));
        if servers.is_empty() {
            return None;
        }
        let server_refs: Vec<&ConfiguredServer> = servers.iter().map(Arc::as_ref).collect();
        let selection = Mutex::new(ToolSelection::new(&server_refs, session_dir));
        let closed: Arc<AtomicBool> = Arc::default();
        for server in &servers {
            let (server, on_notice, closed) = (server.clone(), on_notice.clone(), closed.clone());
            tokio::spawn(async move {
                if let Err(error) = server.start().await
                    && !closed.load(Ordering::Relaxed)
                {
                    on_notice(format!("the MCP server `{}` cannot be used: {error}", server.name));
                }
            });
        }
        Some(Arc::new(McpHub { servers, selection, session_dir: session_dir.to_owned(), closed }))
    }

    /// Runs a call.
    async fn run_call(&self, name: &str, args: &Value, context: &ToolContext) -> ToolOutput {
        let started = Instant::now();
        let Some(arguments) = args.as_object() else {
            return ToolOutput::invalid(format!("{name}: the arguments must be a JSON object"));
        };
        let text = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default();
        if name == tool_selection::SEARCH_TOOL {
            let server_refs: Vec<&ConfiguredServer> =
                self.servers.iter().map(Arc::as_ref).collect();
            let search = search::run(&server_refs, text("query"));
            let result = context.cancel.run_until_cancelled(search).await;
            return result.unwrap_or_else(|| cancelled().into());
        }
        let output = if name == tool_selection::CALL_TOOL {
            match inner_args(arguments.get("args")) {
                Some(args) => {
                    let target = self.find_by_words(text("server"), text("tool")).await;
                    self.call(target, args, context).await
                }
                None => Ok(ToolOutput::invalid(format!(
                    "{name}: `args` must be a JSON object; nothing was run"
                ))),
            }
        } else {
            self.call(self.find_by_name(name).await, arguments.clone(), context).await
        };
        let output = output.unwrap_or_else(ToolOutput::from);
        history::append(context, name, args, &output, started.elapsed(), "check_command");
        output
    }

    /// Returns the tool that `mcp_call` refers to.
    async fn find_by_words(&self, server: &str, tool: &str) -> Result<Target, ToolError> {
        let Some(configured) = self.servers.iter().find(|configured| configured.name == server)
        else {
            let names: Vec<&str> =
                self.servers.iter().map(|configured| configured.name.as_str()).collect();
            let text =
                format!("there is no MCP server `{server}`; there are: {}", names.join(", "));
            return Err(ToolError::new(ToolErrorKind::UnknownTool, text));
        };
        find_target(configured, tool).await
    }

    /// Returns the tool that a full name refers to.
    async fn find_by_name(&self, name: &str) -> Result<Target, ToolError> {
        let part = name::part_of(name).unwrap_or_default();
        match self.servers.iter().find(|server| server.part == part) {
            Some(server) => find_target(server, name).await,
            None => {
                let text = format!("no such tool: `{name}`");
                Err(ToolError::new(ToolErrorKind::UnknownTool, text))
            }
        }
    }

    async fn call(
        &self,
        target: Result<Target, ToolError>,
        args: Map<String, Value>,
        context: &ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        let Target { server, name, tool } = target?;
        if let Some(reason) = skill_permissions::external_refusal(&name, &context.skills) {
            return Err(ToolError::new(ToolErrorKind::Denied, reason));
        }
        let is_free = server.definition.calls == CallDefault::Allow;
        let access = Access::Foreign { server: server.name.clone(), allowed: is_free };
        let (root, session_dir) = (&context.root, &context.session_dir);
        let details = || serde_json::to_string_pretty(&args).ok();
        let preview = Some(Preview(&details));
        let access_request =
            AccessRequest { tool: &name, root, session_dir, access: &access, preview };
        let denied = |reason: String| Err(ToolError::new(ToolErrorKind::Denied, reason));
        match context.cancel.run_until_cancelled(context.gate.admit(&access_request)).await {
            None => return Err(cancelled()),
            Some(Err(refused)) => return denied(refused.reason),
            Some(Ok(Permit::StrictSandbox | Permit::ScratchSandbox)) => {
                return denied(format!(
                    "denied: a rule boxes `{name}`, and no box can hold a server"
                ));
            }
            Some(Ok(Permit::Unconfined | Permit::CommandSandbox)) => {}
        }
        let output = server.call(&tool, args, &context.cancel).await?;
        Ok(result::to_tool_output(output, &context.session_dir.join("tools")))
    }
}

impl ExternalTools for McpHub {
    /// Whether a name refers to one of these tools.
    fn owns(&self, name: &str) -> bool {
        name.starts_with(name::PREFIX)
            || [tool_selection::SEARCH_TOOL, tool_selection::CALL_TOOL].contains(&name)
    }

    /// Returns the result of a call whose arguments are not a JSON object.
    fn malformed(&self, name: &str, text: &str) -> ToolOutput {
        let start = base::text::head(text, 200);
        ToolOutput::invalid(format!(
            "{name}: the arguments are not a JSON object; nothing was run\nas sent: {start}"
        ))
    }

    fn run<'a>(
        &'a self,
        name: &'a str,
        args: &'a Value,
        context: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(self.run_call(name, args, context))
    }
}

impl McpServers for McpHub {
    /// Returns the tools to offer; unchanged until [`McpServers::apply_tool_changes`] returns a sentence.
    fn offered_tools(&self) -> Vec<ToolDefinition> {
        let names: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
        base::sync::lock(&self.selection).specs(&names)
    }

    /// Applies tool changes that servers reported since the session or its last turn started.
    /// Returns a sentence for the user if the offered tools changed.
    fn apply_tool_changes(&self) -> Option<String> {
        let changed: Vec<&ConfiguredServer> =
            self.servers.iter().filter(|server| server.has_changed()).map(Arc::as_ref).collect();
        if changed.is_empty() {
            return None;
        }
        let server_refs: Vec<&ConfiguredServer> = self.servers.iter().map(Arc::as_ref).collect();
        let mut selection = base::sync::lock(&self.selection);
        let new_selection = selection.after_changes(&server_refs, &changed);
        if new_selection == *selection {
            return None;
        }
        let list_names = |word: &str, names: Vec<String>| match names.is_empty() {
            true => String::new(),
            false => format!("; {word}: {}", names.join(", ")),
        };
        let (added, removed) = (
            list_names("new", new_selection.added_since(&selection)),
            list_names("gone", selection.added_since(&new_selection)),
        );
        *selection = new_selection;
        selection.save(&self.session_dir);
        let names: Vec<&str> = changed.iter().map(|server| server.name.as_str()).collect();
        Some(format!(
            "the MCP server {} offers other tools from now on{added}{removed}",
            names.join(", ")
        ))
    }

    /// Stops all servers; servers that are not started yet will not start.
    fn close(&self) -> BoxFuture<'_, ()> {
        self.closed.store(true, Ordering::Relaxed);
        let servers = self.servers.iter().map(|server| server.close());
        Box::pin(async {
            futures_util::future::join_all(servers).await;
        })
    }
}

/// Returns the arguments inside a call of `mcp_call`. Some models send the object as a string.
fn inner_args(args: Option<&Value>) -> Option<Map<String, Value>> {
    match args {
        None | Some(Value::Null) => Some(Map::new()),
        Some(Value::Object(args)) => Some(args.clone()),
        Some(Value::String(text)) if text.trim().is_empty() => Some(Map::new()),
        Some(Value::String(text)) => serde_json::from_str(text).ok(),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_)) => None,
    }
}

/// The tool of a call.
struct Target {
    server: Arc<ConfiguredServer>,
    name: String,
    tool: KnownTool,
}

/// Finds a server's tool by its own or its full name.
async fn find_target(server: &Arc<ConfiguredServer>, tool_name: &str) -> Result<Target, ToolError> {
    let tools = server.tools().await.map_err(|error| {
        ToolError::failed(format!("the MCP server `{}` cannot be used: {error}", server.name))
    })?;
    let mut named_tools = server.tools_by_name(&tools).into_iter();
    match named_tools.find(|(name, tool)| name == tool_name || tool.name == tool_name) {
        Some((name, tool)) => Ok(Target { server: server.clone(), name, tool }),
        None => {
            let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).take(50).collect();
            Err(ToolError::new(
                ToolErrorKind::UnknownTool,
                format!(
                    "`{}` has no tool `{tool_name}`; it has: {}",
                    server.name,
                    names.join(", ")
                ),
            ))
        }
    }
}

fn cancelled() -> ToolError {
    ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user")
}
