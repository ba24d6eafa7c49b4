//! The sandbox: which files a process and its children may read and write, enforced by the kernel.

pub mod caches;
mod confinement;
pub mod environment;
pub mod git_dirs;
pub mod home;
mod landlock;
mod namespace;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use confinement::{ClosedScope, Confinement};
pub use landlock::{check_landlock, enter, missing_features};
pub use namespace::are_possible as namespaces_are_possible;

/// The readable and writable trees; everything else is closed. Paths that do not exist are skipped,
/// so they cannot be created either.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxRules {
    /// Trees and files that may be read and executed.
    pub read: Vec<PathBuf>,
    /// Trees and files that may also be changed; renames between them work.
    pub write: Vec<PathBuf>,
    /// Files and directories below the writable ones that stay read-only, if the kernel supports
    /// mount namespaces for this user ([`namespaces_are_possible`]). Only a [`Confinement`] uses
    /// them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<PathBuf>,
}

/// Set by studio for a sandboxed agent: the file (JSON of [`SandboxRules`]) with the rules for the
/// agent's commands. They allow less than the agent's own: not its configuration, not its login. An
/// agent cannot make such rules itself, because nothing in a sandbox can list the root.
pub const COMMAND_RULES_VAR: &str = "STUDIO_COMMAND_RULES";

/// How much of the rules the kernel enforces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforced {
    /// What this kernel does not support, one sentence each; empty if the sandbox is complete.
    pub missing: Vec<String>,
}
