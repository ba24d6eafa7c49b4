//! What outlives a session for a moment: hooks that want to hear of its end, servers to be ended.

use std::sync::Arc;

use super::AgentSession;
use crate::hooks::Hooks;
use crate::tools::services::{LanguageServers, McpServers};

/// What is to be ended after a session was left.
pub struct ShutdownHandle {
    hooks: Arc<Hooks>,
    servers: Option<Arc<dyn McpServers>>,
    lsp: Option<Arc<dyn LanguageServers>>,
}

impl AgentSession {
    /// Leaves the session. What this gives back is to be closed; the rest may go at once.
    pub fn shutdown(&mut self) -> ShutdownHandle {
        let (hooks, lsp) = (self.hooks.clone(), self.place.others.lsp.clone());
        ShutdownHandle { hooks, servers: self.place.mcp.take(), lsp }
    }
}

impl ShutdownHandle {
    /// Tells the hooks, and ends the servers.
    pub async fn finish(self) {
        self.hooks.end().await;
        if let Some(servers) = self.lsp {
            servers.close().await;
        }
        if let Some(servers) = self.servers {
            servers.close().await;
        }
    }
}
