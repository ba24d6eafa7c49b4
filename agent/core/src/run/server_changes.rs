//! MCP servers that have other tools than when the session began.

use base::event::{EventKind, NoticeLevel};

use super::AgentSession;

impl AgentSession {
    /// Offers what the servers have now. Between two turns of the user only: within one, each
    /// request begins with the bytes of the one before it.
    pub(super) fn hear_servers(&mut self) {
        let Some(hub) = self.place.mcp.clone() else { return };
        if let Some(text) = hub.news() {
            self.model.offer_instead(|name| hub.owns(name), hub.offered());
            self.bus.emit(EventKind::Notice { level: NoticeLevel::Info, text });
        }
    }
}
