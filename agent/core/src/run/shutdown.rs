//! Shuts down a session: runs the hooks for its end and stops its servers.

use std::sync::Arc;

use super::AgentSession;
use crate::hooks::Hooks;
use tools::services::{LanguageServers, McpServers};

/// What must be shut down after a session.
pub struct ShutdownHandle {
    hooks: Arc<Hooks>,
    servers: Option<Arc<dyn McpServers>>,
    lsp: Option<Arc<dyn LanguageServers>>,
}

impl AgentSession {
    /// Ends the session. The returned handle must be finished; everything else may be dropped.
    pub fn shutdown(&mut self) -> ShutdownHandle {
        let (hooks, lsp) = (self.hooks.clone(), self.context.services.lsp.clone());
        ShutdownHandle { hooks, servers: self.context.mcp.take(), lsp }
    }
}

impl ShutdownHandle {
    /// Runs the hooks and stops the servers.
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
