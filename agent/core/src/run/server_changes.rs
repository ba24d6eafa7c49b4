//! Tool changes of MCP servers during a session.

use base::event::{EventKind, NoticeLevel};

use super::AgentSession;

impl AgentSession {
    /// Offers the current tools of the servers. Runs only between user turns: within a turn, each
    /// request starts with the bytes of the previous one.
    pub(super) fn hear_servers(&mut self) {
        let Some(hub) = self.place.mcp.clone() else { return };
        if let Some(text) = hub.news() {
            self.model.offer_instead(|name| hub.owns(name), hub.offered());
            self.bus.emit(EventKind::Notice { level: NoticeLevel::Info, text });
        }
    }
}
