//! Selects the server tools that a session offers to its model. The selection is made once and
//! stored with the session, so that every request starts with the same bytes; it is updated between
//! user turns if a server's tools changed.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::name;
use super::server::{ConfiguredServer, KnownTool};
use provider::ToolDefinition;

/// With more tools than this, the model searches for tools.
const MAX_DIRECT: usize = 20;
/// The tool that searches for tools.
pub(crate) const SEARCH_TOOL: &str = "mcp_search";
/// The tool that calls a tool that was found.
pub(crate) const CALL_TOOL: &str = "mcp_call";

/// The offered tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolSelection {
    /// Hashes of the definitions from which the selection was made.
    from: Vec<String>,
    /// Tools offered by name.
    pub direct: Vec<DirectTool>,
    /// Whether tools are searched for.
    pub search: bool,
}

/// A tool offered by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DirectTool {
    name: String,
    description: String,
    parameters: serde_json::Value,
}

impl ToolSelection {
    /// Returns the stored selection of a session with these servers, or a new one.
    pub(crate) fn new(servers: &[&ConfiguredServer], session_dir: &Path) -> ToolSelection {
        let file = session_dir.join("mcp/offered.json");
        let from: Vec<String> = servers.iter().map(|server| fingerprint(server)).collect();
        let saved =
            base::files::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(saved) = saved.filter(|saved: &ToolSelection| saved.from == from) {
            return saved;
        }
        let selection = ToolSelection { from, ..decide(servers) };
        selection.save(session_dir);
        selection
    }

    /// Stores the selection. If that fails, the selection is made again when the session is
    /// resumed.
    pub(crate) fn save(&self, session_dir: &Path) {
        let created = std::fs::create_dir_all(session_dir.join("mcp"));
        let file = session_dir.join("mcp/offered.json");
        let _ = created.and_then(|()| base::files::replace_json(&file, self));
    }

    /// Returns the selection after the tools of these servers changed. Searched tools stay
    /// searched; if there are too many tools, new ones are searched as well.
    pub(crate) fn after_changes(
        &self,
        servers: &[&ConfiguredServer],
        changed: &[&ConfiguredServer],
    ) -> ToolSelection {
        let was_direct =
            |tool: &DirectTool| self.direct.iter().any(|known| known.name == tool.name);
        let total: usize =
            servers.iter().filter_map(|server| server.known_tools()).map(|t| t.len()).sum();
        let search = self.search || total > MAX_DIRECT;
        let direct_tools_of = |server: &&ConfiguredServer| -> Vec<DirectTool> {
            if changed.iter().any(|other| other.part == server.part) {
                let now = direct(server).into_iter();
                return now.filter(|tool| !search || was_direct(tool)).collect();
            }
            let is_of_server = |tool: &&DirectTool| name::part_of(&tool.name) == Some(&server.part);
            self.direct.iter().filter(is_of_server).cloned().collect()
        };
        ToolSelection {
            from: self.from.clone(),
            direct: servers.iter().flat_map(direct_tools_of).collect(),
            search,
        }
    }

    /// Returns the names of its tools that another selection does not have.
    pub(crate) fn added_since(&self, other: &ToolSelection) -> Vec<String> {
        let is_known =
            |tool: &&DirectTool| other.direct.iter().any(|known| known.name == tool.name);
        let new = self.direct.iter().filter(|tool| !is_known(tool));
        new.map(|tool| tool.name.clone()).collect()
    }

    /// Returns the definitions for the model.
    pub(crate) fn specs(&self, servers: &[&str]) -> Vec<ToolDefinition> {
        let direct = self.direct.iter().map(|tool| ToolDefinition {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
        });
        let search = self.search.then(|| search_tools(servers)).into_iter().flatten();
        direct.chain(search).collect()
    }
}

/// Returns a hash of a server's definition and its permitted tools.
fn fingerprint(server: &ConfiguredServer) -> String {
    let definitions = format!(
        "{} {:?} {}",
        server.part,
        server.definition.tools,
        server.definition.fingerprint()
    );
    base::config::trust::hash(definitions.as_bytes())
}

fn decide(servers: &[&ConfiguredServer]) -> ToolSelection {
    let known: Vec<_> = servers.iter().map(|server| (server, server.known_tools())).collect();
    let is_complete = known.iter().all(|(_, tools)| tools.is_some());
    let count: usize = known.iter().flat_map(|(_, tools)| tools).map(Vec::len).sum();
    if count > MAX_DIRECT {
        return ToolSelection { search: true, ..ToolSelection::default() };
    }
    let mut direct = Vec::new();
    for (server, tools) in known {
        direct.extend(named_tools(server, &tools.unwrap_or_default()));
    }
    ToolSelection { direct, search: !is_complete, ..ToolSelection::default() }
}

fn direct(server: &ConfiguredServer) -> Vec<DirectTool> {
    named_tools(server, &server.known_tools().unwrap_or_default())
}

fn named_tools(server: &ConfiguredServer, tools: &[KnownTool]) -> Vec<DirectTool> {
    let named = server.tools_by_name(tools).into_iter();
    named
        .map(|(name, KnownTool { description, parameters, .. })| DirectTool {
            name,
            description,
            parameters,
        })
        .collect()
}

fn search_tools(servers: &[&str]) -> [ToolDefinition; 2] {
    let names = servers.join(", ");
    let text = |about: &str| json!({ "type": "string", "description": about });
    [
        ToolDefinition {
            name: SEARCH_TOOL.to_owned(),
            description: format!(
                "Searches the tools of the MCP servers {names}; returns names, descriptions and \
                 parameters. Without a query, lists all tools. Call a tool that you found with {CALL_TOOL}."
            ),
            parameters: json!({
                "type": "object",
                "properties": { "query": text("Words that describe what the tool should do.") },
            }),
        },
        ToolDefinition {
            name: CALL_TOOL.to_owned(),
            description: format!("Calls a tool found by {SEARCH_TOOL}."),
            parameters: json!({
                "type": "object",
                "properties": {
                    "server": text("The name of the server."),
                    "tool": text("The name of the tool."),
                    "args": { "type": "object", "description": "The arguments of the tool." },
                },
                "required": ["server", "tool"],
            }),
        },
    ]
}
