//! Caches the tool lists of servers across sessions, by the hash of their definitions, so that a
//! first request can offer tools of servers that are still starting.

use std::path::PathBuf;

use base::config::mcp::McpServerConfig;

use super::server::KnownTool;

/// Returns the tools that the server of this definition reported when it last ran.
pub(crate) fn read(definition: &McpServerConfig) -> Option<Vec<KnownTool>> {
    serde_json::from_slice(&std::fs::read(file(definition)?).ok()?).ok()
}

/// Stores the tools. Errors are ignored; the server is queried again then.
pub(crate) fn write(definition: &McpServerConfig, tools: &[KnownTool]) {
    let Some(file) = file(definition) else { return };
    if read(definition).as_deref() == Some(tools) {
        return;
    }
    if let Some(parent) = file.parent()
        && std::fs::create_dir_all(parent).is_ok()
    {
        let _ = base::files::replace_json(&file, &tools);
    }
}

fn file(definition: &McpServerConfig) -> Option<PathBuf> {
    let home = base::user_dirs::home_dir()?;
    Some(home.join(".g3/mcp").join(format!("{}.json", definition.fingerprint())))
}
