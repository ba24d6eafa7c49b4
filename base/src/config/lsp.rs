//! `[lsp.NAME]`: language servers, as additions and changes to the built-in table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// A language server: a new one, or changes to a built-in one. Absent fields keep the built-in
/// values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LspServerConfig {
    /// Whether the server may be started.
    pub enabled: Option<bool>,
    /// The language identifier of the protocol, e.g. `rust`.
    pub language: Option<String>,
    /// The program; `~/` is the home directory.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Option<Vec<String>>,
    /// Suffixes (`.rs`) or names (`Dockerfile`) of its files.
    pub extensions: Option<Vec<String>>,
    /// Files that mark the root of a project; the nearest one above a file is used.
    pub root_patterns: Option<Vec<String>>,
    /// Additional variables for the program; `${NAME}` is replaced by that variable of g3.
    pub env: BTreeMap<String, Secret>,
    /// Timeout of the start and of each request, in seconds.
    pub timeout_seconds: Option<u64>,
}

/// `[tools.lsp]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LspToolConfig {
    /// When diagnostics are reported after an edit.
    pub diagnostics: Diagnostics,
}

/// When diagnostics are reported after an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Diagnostics {
    /// From servers that are already running.
    #[default]
    Running,
    /// From all installed servers: the first edit starts them.
    Start,
    /// Never.
    Off,
}
