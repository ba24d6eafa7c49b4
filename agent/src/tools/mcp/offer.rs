//! What of the servers' tools a session offers to its model: decided once, kept with the session,
//! never changed, so that every request begins with the same bytes.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::server::Server;
use crate::provider::ToolSpec;

/// With more tools than this, the model searches for them.
const MANY: usize = 20;
/// The tool that finds tools.
pub const SEARCH: &str = "mcp_search";
/// The tool that calls what was found.
pub const CALL: &str = "mcp_call";

/// What is offered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The definitions that it was made from, as hashes.
    from: Vec<String>,
    /// Tools that are offered by name.
    pub direct: Vec<Direct>,
    /// Whether tools are searched for.
    pub search: bool,
}

/// A tool that is offered by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Direct {
    name: String,
    description: String,
    parameters: serde_json::Value,
}

impl Offer {
    /// The offer of a session that began with these servers, or a new one.
    pub fn of(servers: &[&Server], session_dir: &Path) -> Offer {
        let file = session_dir.join("mcp/offered.json");
        let from: Vec<String> = servers.iter().map(|server| mark(server)).collect();
        let kept = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if let Some(kept) = kept.filter(|kept: &Offer| kept.from == from) {
            return kept;
        }
        let offer = Offer { from, ..decide(servers) };
        let written = std::fs::create_dir_all(session_dir.join("mcp"));
        // A session whose offer is not kept decides anew when it is taken up.
        let _ = written.and_then(|()| base::files::replace_json(&file, &offer));
        offer
    }

    /// As the model sees it.
    pub fn specs(&self, servers: &[&str]) -> Vec<ToolSpec> {
        let direct = self.direct.iter().map(|tool| ToolSpec {
            name: tool.name.clone(),
            description: tool.description.clone(),
            parameters: tool.parameters.clone(),
        });
        let search = self.search.then(|| pair(servers)).into_iter().flatten();
        direct.chain(search).collect()
    }
}

/// A server's definition and what of it may be used, as a hash.
fn mark(server: &Server) -> String {
    let all = format!(
        "{} {:?} {}",
        server.part,
        server.definition.tools,
        server.definition.fingerprint()
    );
    base::config::trust::hash(all.as_bytes())
}

fn decide(servers: &[&Server]) -> Offer {
    let known: Vec<_> = servers.iter().map(|server| (server, server.known())).collect();
    let all_known = known.iter().all(|(_, tools)| tools.is_some());
    let count: usize = known.iter().flat_map(|(_, tools)| tools).map(Vec::len).sum();
    if count > MANY {
        return Offer { search: true, ..Offer::default() };
    }
    let mut direct = Vec::new();
    for (server, tools) in known {
        for (name, tool) in server.named(&tools.unwrap_or_default()) {
            let (description, parameters) = (tool.description, tool.parameters);
            direct.push(Direct { name, description, parameters });
        }
    }
    Offer { direct, search: !all_known, ..Offer::default() }
}

fn pair(servers: &[&str]) -> [ToolSpec; 2] {
    let names = servers.join(", ");
    let text = |about: &str| json!({ "type": "string", "description": about });
    [
        ToolSpec {
            name: SEARCH.to_owned(),
            description: format!(
                "Finds tools of the MCP servers {names}: names, descriptions and parameters. \
                 Without a query it lists them all. Call what you find with {CALL}."
            ),
            parameters: json!({
                "type": "object",
                "properties": { "query": text("Words that say what the tool should do.") },
            }),
        },
        ToolSpec {
            name: CALL.to_owned(),
            description: format!("Calls a tool that {SEARCH} found."),
            parameters: json!({
                "type": "object",
                "properties": {
                    "server": text("The server's name."),
                    "tool": text("The tool's name."),
                    "args": { "type": "object", "description": "Its arguments." },
                },
                "required": ["server", "tool"],
            }),
        },
    ]
}
