//! Tool changes of MCP servers during a session.

use base::event::{EventKind, NoticeLevel};

use super::AgentSession;

impl AgentSession {
    /// Offers the current tools of the servers. Runs only between user turns: within a turn, each
    /// request starts with the bytes of the previous one.
    pub(super) fn apply_server_changes(&mut self) {
        let Some(hub) = self.context.mcp.clone() else { return };
        if let Some(text) = hub.apply_tool_changes() {
            self.model.replace_tools(|name| hub.owns(name), hub.offered_tools());
            self.bus.emit(EventKind::Notice { level: NoticeLevel::Info, text });
        }
    }
}
