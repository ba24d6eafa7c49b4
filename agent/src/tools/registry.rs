//! A list of tools, found by their kind.

use super::kind::{Effect, ToolKind};
use super::tool::Tool;

/// The tools that a call can mean.
pub struct Registry {
    tools: &'static [&'static dyn Tool],
}

impl Registry {
    /// A registry of these tools.
    pub const fn new(tools: &'static [&'static dyn Tool]) -> Registry {
        Registry { tools }
    }

    /// The tool of a kind.
    pub fn tool(&self, kind: ToolKind) -> Option<&'static dyn Tool> {
        self.tools.iter().copied().find(|tool| tool.spec().kind == kind)
    }

    /// What calls of a kind do to the world.
    pub fn effect(&self, kind: ToolKind) -> Option<Effect> {
        self.tool(kind).map(|tool| tool.spec().effect)
    }
}
