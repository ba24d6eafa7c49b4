//! A registry of tools by kind.

use super::kind::ToolKind;
use super::tool::Tool;

/// The tools that a call can refer to.
pub struct Registry {
    families: &'static [&'static [&'static dyn Tool]],
}

impl Registry {
    /// Creates a registry of these families of tools.
    pub const fn new(families: &'static [&'static [&'static dyn Tool]]) -> Registry {
        Registry { families }
    }

    /// Returns the tool of a kind.
    pub fn tool(&self, kind: ToolKind) -> Option<&'static dyn Tool> {
        self.families.iter().copied().flatten().copied().find(|tool| tool.spec().kind == kind)
    }
}
