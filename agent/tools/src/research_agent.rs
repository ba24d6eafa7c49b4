//! Permissions of a research agent that another g3 process started, passed in its environment.

use base::config::agent::{GateAction, GateRule};

/// A glob over the hosts that the user allowed the research agent to read.
pub const HOSTS: &str = "G3_RESEARCH_HOSTS";
/// A glob over the tools that read the web.
pub const WEB_TOOLS: &str = "{codesearch,webfetch,websearch}";
/// Set for a research agent and all processes that it starts.
pub const RESEARCH_AGENT: &str = "RESEARCH_OF_G3";

/// Returns the rule for a research agent that may read the whole web.
pub fn allow_rule() -> Option<GateRule> {
    std::env::var_os(RESEARCH_AGENT)?;
    let host = std::env::var(HOSTS).ok()?;
    let (tool, host) = (Some(WEB_TOOLS.to_owned()), Some(host));
    Some(GateRule { tool, host, path: None, command: None, action: GateAction::Allow })
}
