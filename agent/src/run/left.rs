//! What outlives a session for a moment: hooks that want to hear of its end, servers to be ended.

use std::sync::Arc;

use super::Work;
use crate::hooks::Hooks;
use tools::services::{LanguageServers, McpServers};

/// What is to be ended after a session was left.
pub struct Left {
    hooks: Arc<Hooks>,
    servers: Option<Arc<dyn McpServers>>,
    lsp: Option<Arc<dyn LanguageServers>>,
}

impl Work {
    /// Leaves the session. What this gives back is to be closed; the rest may go at once.
    pub fn leave(&mut self) -> Left {
        let (hooks, lsp) = (self.hooks.clone(), self.place.others.lsp.clone());
        Left { hooks, servers: self.place.mcp.take(), lsp }
    }
}

impl Left {
    /// Tells the hooks, and ends the servers.
    pub async fn close(self) {
        self.hooks.end().await;
        if let Some(servers) = self.lsp {
            servers.close().await;
        }
        if let Some(servers) = self.servers {
            servers.close().await;
        }
    }
}
