//! `[lsp.NAME]`: language servers, as the user's configuration changes the table of known ones.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// One language server: a known one with other values, or a new one. What is absent is as known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LspServerConfig {
    /// Whether it may be started.
    pub enabled: Option<bool>,
    /// The identifier of its language in the protocol, e.g. `rust`.
    pub language: Option<String>,
    /// The program; `~/` is the home directory.
    pub command: Option<String>,
    /// Its arguments.
    pub args: Option<Vec<String>>,
    /// Endings (`.rs`) or names (`Dockerfile`) of its files.
    pub extensions: Option<Vec<String>>,
    /// Files that mark the root of a project; the nearest one above a file counts.
    pub root_patterns: Option<Vec<String>>,
    /// Variables that the program gets besides the harmless ones; `${NAME}` is one of ours.
    pub env: BTreeMap<String, Secret>,
    /// Seconds that its start, and each answer, may take.
    pub timeout_seconds: Option<u64>,
}

/// `[tools.lsp]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LspToolConfig {
    /// Which servers tell of errors after an edit.
    pub diagnostics: Diagnostics,
}

/// Which servers tell of errors after an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Diagnostics {
    /// Those that run already.
    #[default]
    Running,
    /// Those that are installed: the first edit starts them.
    Start,
    /// None.
    Off,
}
