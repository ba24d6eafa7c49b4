//! `g3 mcp`: lists and tests the configured servers, logs in to them, and serves g3's own tools
//! over MCP.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use base::config::LoadedConfig;
use base::config::mcp::McpServerConfig;
use base::failure::{Failure, OrFail, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::settings::{directory, load, settings};
use super::trace::{self, TraceArgs};
use super::{AgentArgs, GlobalArgs, in_runtime};
use crate::modes::mcp;
use crate::ui;
use agent_core::run::root_of;
use base::text::cut_columns;
use mcp_client::connect::ServerPaths;
use mcp_client::name::servers as parts;
use mcp_client::server::ConfiguredServer;
use mcp_client::{login, servers};
use tools::exec::confinement::CommandSandbox;
use tools::services::Toolset;

/// `g3 mcp …`.
#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    command: McpCommand,
}

#[derive(Debug, Subcommand)]
enum McpCommand {
    /// List the configured servers without starting them
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: ConfigScope,
    },
    /// Start a server and list its tools
    Test {
        /// Name of the server in the configuration
        name: String,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: ConfigScope,
    },
    /// Log in to a server in a browser
    Login {
        /// Name of the server in the configuration
        name: String,
        #[command(flatten)]
        place: ConfigScope,
    },
    /// Remove the login to a server
    Logout {
        /// Name of the server in the configuration
        name: String,
        #[command(flatten)]
        place: ConfigScope,
    },
    /// Serve g3's tools over the Model Context Protocol on stdin and stdout
    Serve {
        /// Tool profile: g3, egirl, tools-api, core or all
        #[arg(long)]
        profile: Option<String>,
        #[command(flatten)]
        trace: TraceArgs,
        #[command(flatten)]
        place: ConfigScope,
    },
}

/// Selects the configuration.
#[derive(Debug, Args)]
struct ConfigScope {
    /// Read this file instead of the user's and the repository's configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Run as if started in this directory
    #[arg(short = 'w', long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

impl From<ConfigScope> for GlobalArgs {
    fn from(scope: ConfigScope) -> GlobalArgs {
        GlobalArgs { config: scope.config, workspace: scope.workspace, ..GlobalArgs::default() }
    }
}

/// Runs `g3 mcp …` and returns the exit code.
pub(crate) fn run(args: McpArgs, toolset: &'static dyn Toolset) -> Result<u8> {
    match args.command {
        McpCommand::List { json, place } => list(json, &place.into()).map(|()| 0),
        McpCommand::Test { name, json, place } => in_runtime(test(&name, json, &place.into())),
        McpCommand::Login { name, place } => in_runtime(login(&name, &place.into())).map(|()| 0),
        McpCommand::Logout { name, place } => logout(&name, &place.into()).map(|()| 0),
        McpCommand::Serve { profile, trace, place } => {
            let agent = AgentArgs { profile, ..AgentArgs::default() };
            let common = GlobalArgs { trace, ..place.into() };
            let settings = settings(&common, &agent, toolset)?;
            let trace = trace::begin(&common, &settings.config, "mcp serve")?;
            settings.notices.iter().for_each(|notice| ui::say(&format!("warning: {notice}")));
            trace.finish(in_runtime(mcp::serve(settings)).map(|()| 0))
        }
    }
}

fn list(as_json: bool, common: &GlobalArgs) -> Result<()> {
    let cwd = directory(common)?;
    let LoadedConfig { config, notices, .. } = load(common, &cwd)?;
    let sandbox = CommandSandbox::of(&config.sandbox, &root_of(&cwd));
    let configured = servers(&config.mcp, &ServerPaths { cwd, logs: None, sandbox }, None);
    let rows = config.mcp.iter().map(|(name, definition)| {
        let server = configured.iter().find(|server| server.name == *name);
        row(name, definition, server.map(Arc::as_ref))
    });
    let rows: Vec<Value> = rows.collect();
    let text = if as_json {
        format!("{:#}\n", Value::Array(rows))
    } else if rows.is_empty() {
        "no MCP servers are configured; docs/mcp.md shows how\n".to_owned()
    } else {
        rows.iter().map(line).collect()
    };
    ui::print(&text)?;
    notices.iter().for_each(|notice| ui::say(&format!("warning: {notice}")));
    Ok(())
}

fn row(name: &str, definition: &McpServerConfig, server: Option<&ConfiguredServer>) -> Value {
    let (state, tools) = match server.map(|server| (server, server.known_tools())) {
        None => ("off", Vec::new()),
        Some((_, None)) => ("not started yet", Vec::new()),
        Some((server, Some(tools))) => {
            ("known", server.tools_by_name(&tools).into_keys().collect())
        }
    };
    let reach = definition.url.clone().unwrap_or_else(|| definition.command.join(" "));
    json!({
        "name": name,
        "enabled": definition.enabled,
        "transport": if definition.url.is_some() { "http" } else { "stdio" },
        "reach": reach,
        "calls": definition.calls,
        "state": state,
        "tools": tools,
    })
}

fn line(row: &Value) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or_default();
    let count = row["tools"].as_array().map_or(0, Vec::len);
    let count = if text("state") == "known" { format!(", {count} tools") } else { String::new() };
    let reach = base::text::printable(text("reach"));
    format!("{:20}  {:5}  {}{count}  {reach}\n", text("name"), text("transport"), text("state"))
}

/// Returns the configuration of a server; the error names the configured servers.
fn definition(name: &str, common: &GlobalArgs, cwd: &Path) -> Result<McpServerConfig> {
    let mut config = load(common, cwd)?.config;
    if let Some(definition) = config.mcp.remove(name) {
        return Ok(definition);
    }
    let known: Vec<&str> = config.mcp.keys().map(String::as_str).collect();
    let failure = Failure::usage(format!("no such MCP server: `{name}`"));
    Err(match known.as_slice() {
        [] => failure.hint(format!("add [mcp.{name}] to ~/.config/g3/config.toml")),
        known => failure.hint(format!("use one of: {}", known.join(", "))),
    })
}

async fn login(name: &str, common: &GlobalArgs) -> Result<()> {
    let server = definition(name, common, &directory(common)?)?;
    if server.url.is_none() {
        return Err(Failure::usage(format!("`{name}` is a local program and needs no login")));
    }
    let failed =
        |reason: String| Failure::failed(format!("cannot log in to `{name}`")).because(reason);
    let login = login::begin(&server).await.map_err(failed)?;
    ui::print(&format!("open this in a browser:\n{}\n", base::text::printable(login.address())))?;
    login.finish().await.map_err(failed)?;
    ui::print(&format!("logged in to `{name}`\n"))
}

fn logout(name: &str, common: &GlobalArgs) -> Result<()> {
    let server = definition(name, common, &directory(common)?)?;
    let was_removed =
        login::forget(&server).or_fail(|| format!("cannot forget the login at `{name}`"))?;
    let result = if was_removed { "removed" } else { "not found" };
    ui::print(&format!("login to `{name}`: {result}\n"))
}

async fn test(name: &str, as_json: bool, common: &GlobalArgs) -> Result<u8> {
    let cwd = directory(common)?;
    let definition = McpServerConfig { enabled: true, ..definition(name, common, &cwd)? };
    let sandbox = CommandSandbox::of(&load(common, &cwd)?.config.sandbox, &root_of(&cwd));
    let paths = ServerPaths { cwd, logs: None, sandbox };
    let part = parts([name]).remove(0);
    let server = ConfiguredServer::new(name, &part, &definition, &paths);
    let start = Instant::now();
    let started = server.start().await;
    let ms = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let tools = server.known_tools().filter(|_| started.is_ok()).unwrap_or_default();
    server.close().await;
    if as_json {
        let described: Vec<Value> = server
            .tools_by_name(&tools)
            .into_iter()
            .map(|(full_name, tool)| {
                json!({"name": full_name, "tool": tool.name, "description": tool.description,
                       "parameters": tool.parameters})
            })
            .collect();
        let error = started.as_ref().err();
        let report = json!({"name": name, "ok": started.is_ok(), "ms": ms, "tools": described, "error": error});
        ui::print(&format!("{report:#}\n"))?;
        return Ok(u8::from(started.is_err()));
    }
    started.map_err(|error| Failure::failed(format!("`{name}` cannot be used")).because(error))?;
    let mut text = format!("`{name}` started in {ms} ms and has {} tools\n", tools.len());
    for (full_name, tool) in server.tools_by_name(&tools) {
        let first_line = tool.description.lines().next().unwrap_or_default();
        text.push_str(&format!(
            "{full_name}  {}\n",
            cut_columns(&base::text::printable(first_line), 80)
        ));
    }
    ui::print(&text).map(|()| 0)
}
