//! `g3 mcp`: the servers that are configured, a look at one, and g3 as a server itself.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use base::config::Loaded;
use base::config::mcp::McpServer;
use base::failure::{Failure, OrFail, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::settings::{directory, load, settings};
use super::{AgentArgs, Common, in_runtime};
use crate::modes::mcp;
use crate::tools::mcp::connect::Place;
use crate::tools::mcp::name::servers as parts;
use crate::tools::mcp::server::{Known, Server, named};
use crate::tools::mcp::{login, servers};
use crate::ui;

/// `g3 mcp …`.
#[derive(Debug, Args)]
pub struct McpArgs {
    #[command(subcommand)]
    command: McpCommand,
}

#[derive(Debug, Subcommand)]
enum McpCommand {
    /// List the configured servers; starts none of them
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Start a server and show its tools
    Test {
        /// Its name in the configuration
        name: String,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Log in at a server that wants it, in a browser
    Login {
        /// Its name in the configuration
        name: String,
        #[command(flatten)]
        common: Common,
    },
    /// Forget the login at a server
    Logout {
        /// Its name in the configuration
        name: String,
        #[command(flatten)]
        common: Common,
    },
    /// Serve g3's own tools to another agent: the Model Context Protocol on stdin and stdout
    Serve {
        /// The names that tools have: g3, egirl, tools-api, core or all
        #[arg(long)]
        profile: Option<String>,
        #[command(flatten)]
        common: Common,
    },
}

/// Runs `g3 mcp …`; gives the exit code.
pub fn run(args: McpArgs) -> Result<u8> {
    match args.command {
        McpCommand::List { json, common } => list(json, &common).map(|()| 0),
        McpCommand::Test { name, json, common } => in_runtime(test(&name, json, &common)),
        McpCommand::Login { name, common } => in_runtime(login(&name, &common)).map(|()| 0),
        McpCommand::Logout { name, common } => logout(&name, &common).map(|()| 0),
        McpCommand::Serve { profile, common } => {
            let agent = AgentArgs { profile, ..AgentArgs::default() };
            in_runtime(mcp::serve(settings(&common, &agent)?)).map(|()| 0)
        }
    }
}

fn list(as_json: bool, common: &Common) -> Result<()> {
    let cwd = directory(common)?;
    let Loaded { config, notices, .. } = load(common, &cwd)?;
    let place = Place { cwd, logs: None };
    let on: BTreeMap<String, Arc<Server>> =
        servers(&config.mcp, &place).into_iter().map(|it| (it.name.clone(), it)).collect();
    let mut rows = Vec::new();
    for (name, definition) in &config.mcp {
        let known = on.get(name).map(|server| server.known());
        let state = match &known {
            None => "off",
            Some(None) => "not started yet",
            Some(Some(_)) => "known",
        };
        let tools = known.flatten().unwrap_or_default();
        let tools: Vec<String> = on.get(name).map_or_else(Vec::new, |it| names(it, &tools));
        let reach = definition.url.clone().unwrap_or_else(|| definition.command.join(" "));
        rows.push(json!({
            "name": name,
            "enabled": definition.enabled,
            "transport": if definition.url.is_some() { "http" } else { "stdio" },
            "reach": reach,
            "calls": definition.calls,
            "state": state,
            "tools": tools,
        }));
    }
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

fn line(row: &Value) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or_default();
    let count = row["tools"].as_array().map_or(0, Vec::len);
    let count = if text("state") == "known" { format!(", {count} tools") } else { String::new() };
    let reach = base::text::printable(text("reach"));
    format!("{:20}  {:5}  {}{count}  {reach}\n", text("name"), text("transport"), text("state"))
}

fn names(server: &Server, tools: &[Known]) -> Vec<String> {
    named(server, tools).into_keys().collect()
}

/// What the configuration says about a server.
fn definition(name: &str, common: &Common, cwd: &Path) -> Result<McpServer> {
    let mut config = load(common, cwd)?.config;
    if let Some(definition) = config.mcp.remove(name) {
        return Ok(definition);
    }
    let known: Vec<&str> = config.mcp.keys().map(String::as_str).collect();
    let failure = Failure::usage(format!("there is no MCP server `{name}`"));
    Err(match known.as_slice() {
        [] => failure.next(format!("add [mcp.{name}] to ~/.config/g3/config.toml")),
        known => failure.next(format!("use one of {}", known.join(", "))),
    })
}

async fn login(name: &str, common: &Common) -> Result<()> {
    let server = definition(name, common, &directory(common)?)?;
    if server.url.is_none() {
        return Err(Failure::usage(format!("`{name}` is a program; it needs no login")));
    }
    let failed = |why: String| Failure::failed(format!("no login at `{name}`")).because(why);
    let login = login::begin(&server).await.map_err(failed)?;
    ui::print(&format!("open this in a browser:\n{}\n", base::text::printable(login.address())))?;
    login.finish().await.map_err(failed)?;
    ui::print(&format!("logged in at `{name}`\n"))
}

fn logout(name: &str, common: &Common) -> Result<()> {
    let server = definition(name, common, &directory(common)?)?;
    let was = login::forget(&server).or_fail(|| format!("cannot forget the login at `{name}`"))?;
    let said = if was { "is forgotten" } else { "was not known" };
    ui::print(&format!("the login at `{name}` {said}\n"))
}

async fn test(name: &str, as_json: bool, common: &Common) -> Result<u8> {
    let cwd = directory(common)?;
    let definition = McpServer { enabled: true, ..definition(name, common, &cwd)? };
    let place = Place { cwd, logs: None };
    let part = parts([name]).remove(0);
    let server = Server::new(name, &part, &definition, &place);
    let since = Instant::now();
    let started = server.start().await;
    let ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    let tools = server.known().filter(|_| started.is_ok()).unwrap_or_default();
    server.close().await;
    if as_json {
        let told: Vec<Value> = named(&server, &tools)
            .into_iter()
            .map(|(full, tool)| {
                json!({"name": full, "tool": tool.name, "description": tool.description,
                       "parameters": tool.parameters})
            })
            .collect();
        let error = started.as_ref().err();
        let all =
            json!({"name": name, "ok": started.is_ok(), "ms": ms, "tools": told, "error": error});
        ui::print(&format!("{all:#}\n"))?;
        return Ok(u8::from(started.is_err()));
    }
    started.map_err(|why| Failure::failed(format!("`{name}` cannot be used")).because(why))?;
    let mut text = format!("`{name}` started in {ms} ms and has {} tools\n", tools.len());
    for (full, tool) in named(&server, &tools) {
        let first = tool.description.lines().next().unwrap_or_default();
        text.push_str(&format!("{full}  {}\n", ui::cut_to(&base::text::printable(first), 80)));
    }
    ui::print(&text).map(|()| 0)
}
