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
use gate::{Access, AccessRequest, Permit, Preview};
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
    offer: Mutex<ToolSelection>,
    session_dir: PathBuf,
    closed: Arc<AtomicBool>,
}

/// Returns the enabled servers of a configuration, none of them started.
pub fn servers(
    all: &BTreeMap<String, McpServerConfig>,
    place: &ServerPaths,
) -> Vec<Arc<ConfiguredServer>> {
    let on: Vec<_> = all.iter().filter(|(_, server)| server.enabled).collect();
    let parts = name::servers(on.iter().map(|(name, _)| name.as_str()));
    let made = on.into_iter().zip(parts);
    made.map(|((name, server), part)| Arc::new(ConfiguredServer::new(name, &part, server, place)))
        .collect()
}

impl McpHub {
    /// Starts the servers in the background, and selects the offered tools. Returns `None` if there
    /// are no servers.
    pub fn start(
        all: &BTreeMap<String, McpServerConfig>,
        (cwd, around): (&Path, CommandSandbox),
        session_dir: &Path,
        tell: &OnServerNotice,
    ) -> Option<Arc<McpHub>> {
        let logs = Some(session_dir.join("mcp"));
        let servers = servers(all, &ServerPaths { cwd: cwd.to_owned(), logs, around });
        if servers.is_empty() {
            return None;
        }
        let each: Vec<&ConfiguredServer> = servers.iter().map(Arc::as_ref).collect();
        let offer = Mutex::new(ToolSelection::of(&each, session_dir));
        let closed: Arc<AtomicBool> = Arc::default();
        for server in &servers {
            let (server, tell, closed) = (server.clone(), tell.clone(), closed.clone());
            tokio::spawn(async move {
                if let Err(why) = server.start().await
                    && !closed.load(Ordering::Relaxed)
                {
                    tell(format!("the MCP server `{}` cannot be used: {why}", server.name));
                }
            });
        }
        Some(Arc::new(McpHub { servers, offer, session_dir: session_dir.to_owned(), closed }))
    }

    /// Runs a call.
    async fn carried_out(&self, name: &str, args: &Value, at: &ToolContext) -> ToolOutput {
        let started = Instant::now();
        let Some(given) = args.as_object() else {
            return ToolOutput::invalid(format!("{name}: the arguments must be a JSON object"));
        };
        let text = |key: &str| given.get(key).and_then(Value::as_str).unwrap_or_default();
        if name == tool_selection::SEARCH {
            let each: Vec<&ConfiguredServer> = self.servers.iter().map(Arc::as_ref).collect();
            let search = search::run(&each, text("query"));
            let done = at.cancel.run_until_cancelled(search).await;
            return done.unwrap_or_else(|| cancelled().into());
        }
        let outcome = if name == tool_selection::CALL {
            let inner = given.get("args").and_then(Value::as_object).cloned().unwrap_or_default();
            self.call(self.by_words(text("server"), text("tool")).await, inner, at).await
        } else {
            self.call(self.by_name(name).await, given.clone(), at).await
        };
        let outcome = outcome.unwrap_or_else(ToolOutput::from);
        history::append(at, name, args, &outcome, started.elapsed(), "check_command");
        outcome
    }

    /// Returns the tool that `mcp_call` refers to.
    async fn by_words(&self, server: &str, tool: &str) -> Result<Target, ToolError> {
        let Some(known) = self.servers.iter().find(|known| known.name == server) else {
            let names: Vec<&str> = self.servers.iter().map(|known| known.name.as_str()).collect();
            let text =
                format!("there is no MCP server `{server}`; there are: {}", names.join(", "));
            return Err(ToolError::new(ToolErrorKind::UnknownTool, text));
        };
        target(known, tool).await
    }

    /// Returns the tool that a full name refers to.
    async fn by_name(&self, name: &str) -> Result<Target, ToolError> {
        let part = name::part_of(name).unwrap_or_default();
        match self.servers.iter().find(|server| server.part == part) {
            Some(server) => target(server, name).await,
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
        at: &ToolContext,
    ) -> Result<ToolOutput, ToolError> {
        let Target { server, name, tool } = target?;
        if let Some(why) = skill_permissions::external_refusal(&name, &at.skills) {
            return Err(ToolError::new(ToolErrorKind::Denied, why));
        }
        let free = server.definition.calls == CallDefault::Allow;
        let access = Access::Foreign { server: server.name.clone(), allowed: free };
        let (root, session_dir) = (&at.root, &at.session_dir);
        let details = || serde_json::to_string_pretty(&args).ok();
        let preview = Some(Preview(&details));
        let visitor = AccessRequest { tool: &name, root, session_dir, access: &access, preview };
        let denied = |why: String| Err(ToolError::new(ToolErrorKind::Denied, why));
        match at.cancel.run_until_cancelled(at.gate.admit(&visitor)).await {
            None => return Err(cancelled()),
            Some(Err(refused)) => return denied(refused.why),
            Some(Ok(Permit::StrictSandbox | Permit::ScratchSandbox)) => {
                return denied(format!(
                    "denied: a rule boxes `{name}`, and no box can hold a server"
                ));
            }
            Some(Ok(Permit::Unconfined | Permit::CommandSandbox)) => {}
        }
        let answer = server.call(&tool, args, &at.cancel).await?;
        Ok(result::outcome(answer, &at.session_dir.join("tools")))
    }
}

impl ExternalTools for McpHub {
    /// Whether a name refers to one of these tools.
    fn owns(&self, name: &str) -> bool {
        name.starts_with(name::BEGIN)
            || [tool_selection::SEARCH, tool_selection::CALL].contains(&name)
    }

    /// Returns the result of a call whose arguments are not a JSON object.
    fn malformed(&self, name: &str, sent: &str) -> ToolOutput {
        let start = base::text::head(sent, 200);
        ToolOutput::invalid(format!(
            "{name}: the arguments are not a JSON object; nothing was run\nas sent: {start}"
        ))
    }

    fn run<'a>(
        &'a self,
        name: &'a str,
        args: &'a Value,
        at: &'a ToolContext,
    ) -> BoxFuture<'a, ToolOutput> {
        Box::pin(self.carried_out(name, args, at))
    }
}

impl McpServers for McpHub {
    /// Returns the tools to offer; unchanged until [`McpServers::apply_tool_changes`] returns a sentence.
    fn offered_tools(&self) -> Vec<ToolDefinition> {
        let names: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
        base::sync::lock(&self.offer).specs(&names)
    }

    /// Applies tool changes that servers reported since the session or its last turn started.
    /// Returns a sentence for the user if the offered tools changed.
    fn apply_tool_changes(&self) -> Option<String> {
        let changed: Vec<&ConfiguredServer> =
            self.servers.iter().filter(|server| server.has_changed()).map(Arc::as_ref).collect();
        if changed.is_empty() {
            return None;
        }
        let each: Vec<&ConfiguredServer> = self.servers.iter().map(Arc::as_ref).collect();
        let mut offer = base::sync::lock(&self.offer);
        let after = offer.after_changes(&each, &changed);
        if after == *offer {
            return None;
        }
        let part = |word: &str, names: Vec<String>| match names.is_empty() {
            true => String::new(),
            false => format!("; {word}: {}", names.join(", ")),
        };
        let (new, gone) = (part("new", after.beyond(&offer)), part("gone", offer.beyond(&after)));
        *offer = after;
        offer.keep(&self.session_dir);
        let names: Vec<&str> = changed.iter().map(|server| server.name.as_str()).collect();
        Some(format!(
            "the MCP server {} offers other tools from now on{new}{gone}",
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

/// The tool of a call.
struct Target {
    server: Arc<ConfiguredServer>,
    name: String,
    tool: KnownTool,
}

/// Finds a server's tool by its own or its full name.
async fn target(server: &Arc<ConfiguredServer>, wanted: &str) -> Result<Target, ToolError> {
    let tools = server.tools().await.map_err(|why| {
        ToolError::failed(format!("the MCP server `{}` cannot be used: {why}", server.name))
    })?;
    let mut all = server.named(&tools).into_iter();
    match all.find(|(name, tool)| name == wanted || tool.name == wanted) {
        Some((name, tool)) => Ok(Target { server: server.clone(), name, tool }),
        None => {
            let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).take(50).collect();
            Err(ToolError::new(
                ToolErrorKind::UnknownTool,
                format!("`{}` has no tool `{wanted}`; it has: {}", server.name, names.join(", ")),
            ))
        }
    }
}

fn cancelled() -> ToolError {
    ToolError::new(ToolErrorKind::Cancelled, "cancelled by the user")
}
