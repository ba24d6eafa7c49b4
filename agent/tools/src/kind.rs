//! The kinds of tools and the effects of their calls.

use serde::{Deserialize, Deserializer};

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Starts processes.
    Runs,
    /// Writes a file.
    Writes,
    /// Moves the mouse, types, or changes windows.
    Acts,
    /// Has no effect outside of the session.
    Looks,
}

/// The kind of a tool: the name by which profiles refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ToolKind(&'static str);

impl ToolKind {
    /// Runs a command line.
    pub const RUN: ToolKind = ToolKind("exec.run");
    /// Reads a file.
    pub const READ: ToolKind = ToolKind("fs.read");
    /// Shows images to the model.
    pub const IMAGE: ToolKind = ToolKind("image.read");
    /// Writes a file.
    pub const WRITE: ToolKind = ToolKind("fs.write");
    /// Replaces a string in a file.
    pub(crate) const REPLACE: ToolKind = ToolKind("edit.replace");
    /// Makes several replacements.
    pub const MULTI_EDIT: ToolKind = ToolKind("edit.multi");
    /// Searches the contents of files.
    pub const GREP: ToolKind = ToolKind("search.text");
    /// Finds files by name.
    pub const GLOB: ToolKind = ToolKind("search.files");
    /// Searches the syntax of files.
    pub const SYNTAX_SEARCH: ToolKind = ToolKind("search.ast");
    /// Shows the todo list.
    pub(crate) const TODO_READ: ToolKind = ToolKind("todo.read");
    /// Replaces the todo list.
    pub(crate) const TODO_WRITE: ToolKind = ToolKind("todo.write");
    /// Shows the completed calls of the session.
    pub(crate) const HISTORY: ToolKind = ToolKind("history");
    /// Loads a skill.
    pub const SKILL: ToolKind = ToolKind("skill");
    /// Starts a subagent.
    pub const TASK: ToolKind = ToolKind("agent.task");
    /// Writes notes about the workspace.
    pub const REMEMBER: ToolKind = ToolKind("memory.notes");
    /// Fetches a web page.
    pub const FETCH: ToolKind = ToolKind("web.fetch");
    /// Searches the web for code and documentation.
    pub const CODE_SEARCH: ToolKind = ToolKind("web.code");
    /// Searches the web.
    pub const WEB_SEARCH: ToolKind = ToolKind("web.search");
    /// Describes the screen.
    pub(crate) const OBSERVE: ToolKind = ToolKind("screen.observe");
    /// Controls mouse and keyboard.
    pub(crate) const GUI: ToolKind = ToolKind("input.gui");
    /// Lists the controls of a window.
    pub const CONTROLS: ToolKind = ToolKind("a11y.query");
    /// Acts on a control by its name.
    pub const CONTROL_ACTION: ToolKind = ToolKind("a11y.act");

    /// Creates a kind with this name.
    pub(crate) const fn new(name: &'static str) -> ToolKind {
        ToolKind(name)
    }

    /// Returns the name used in profiles.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// Returns the family of the tool in one word. Kinds that differ only in form share it.
    pub fn family(self) -> &'static str {
        let shared = ["exec", "edit", "todo", "memory", "browser"];
        let family = self.0.split_once('.').map(|(family, _)| family);
        family.filter(|family| shared.contains(family)).unwrap_or(self.0)
    }
}

impl<'de: 'static> Deserialize<'de> for ToolKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ToolKind, D::Error> {
        <&'static str>::deserialize(deserializer).map(ToolKind)
    }
}
