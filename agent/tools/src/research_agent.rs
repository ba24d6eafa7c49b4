//! How a research agent that another g3 started is told what it may read: by its environment.

use base::config::agent::{GateAction, GateRule};

/// The hosts that the user allowed a scout to read, as a glob.
pub const HOSTS: &str = "G3_RESEARCH_HOSTS";
/// The tools that read the web, as a glob.
pub const WEB_TOOLS: &str = "{codesearch,webfetch,websearch}";
/// Set for a scout and all that it starts.
pub const SCOUT: &str = "RESEARCH_OF_G3";

/// The rule that a scout works under when the user allowed it to read the whole web.
pub fn scouts_rule() -> Option<GateRule> {
    std::env::var_os(SCOUT)?;
    let host = std::env::var(HOSTS).ok()?;
    let (tool, host) = (Some(WEB_TOOLS.to_owned()), Some(host));
    Some(GateRule { tool, host, path: None, command: None, action: GateAction::Allow })
}
