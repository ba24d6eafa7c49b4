//! The sandbox: which files a process and its children may read and write, enforced by the kernel.

pub mod borrowed_objects;
pub mod caches;
pub(crate) mod cgroup;
mod confinement;
pub mod environment;
mod features;
pub mod git_dirs;
mod gpu;
pub mod guarded_paths;
pub mod home;
mod home_paths;
mod landlock;
#[cfg(target_os = "linux")]
mod mount_plan;
mod namespace;
pub mod network;
#[cfg(target_os = "linux")]
mod process_namespace;
pub mod seatbelt;
#[cfg(target_os = "linux")]
mod seccomp;
mod socket_filter;
#[cfg(target_os = "linux")]
mod system_calls;
#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use confinement::{ClosedScope, Confinement};
pub use features::{KernelFeature, kernel_features};
pub use guarded_paths::GuardedPath;
pub use landlock::{check_landlock, enter, missing_features};
pub use namespace::{
    are_possible as namespaces_are_possible, assume_possible as assume_namespaces,
};

/// How long the processes that remain after a program may take to exit after SIGTERM, before SIGKILL.
pub const GRACE: Duration = Duration::from_millis(300);

/// The readable and writable trees; everything else is closed. Paths that do not exist are skipped,
/// so they cannot be created either.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxRules {
    /// Trees and files that may be read and executed.
    pub read: Vec<PathBuf>,
    /// Trees and files that may also be changed. Where each tree is a mount, a rename between two of
    /// them fails with `EXDEV`, and programs copy.
    pub write: Vec<PathBuf>,
    /// Files and directories below the writable ones that stay read-only. Like all fields below, it
    /// has an effect in a [`Confinement`] only, and only if the kernel supports mount namespaces
    /// for this user ([`namespaces_are_possible`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<PathBuf>,
    /// Paths below the writable ones that are put back when a program ends ([`guarded_paths`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guarded: Vec<GuardedPath>,
    /// Files and directories that programs see in place of others: the path, and what they see there.
    /// They are writable only where `write` contains them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<(PathBuf, PathBuf)>,
    /// Directories that show only what the rules open: the home directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private: Vec<PathBuf>,
    /// Sockets, and directories of sockets, that programs may connect to. Others with a path in
    /// `/run`, the home directory and the temporary directories are hidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<PathBuf>,
    /// The directory that programs see as `/tmp` and `/var/tmp`, unless the rules open these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temp: Option<PathBuf>,
    /// The terminal that programs inherit, if any: they see it as `/dev/console`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<PathBuf>,
    /// Whether programs use GPUs. Then the files of their own processes in `/proc` are writable: CUDA
    /// does not start if it cannot name its threads there. [`SandboxRules::open_gpus`] sets it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gpu: bool,
}

/// Set by studio for a sandboxed agent: the file (JSON of [`SandboxRules`]) with the rules for the
/// agent's commands. They allow less than the agent's own: not its configuration, not its login. An
/// agent cannot make such rules itself, because nothing in a sandbox can list the root.
pub const COMMAND_RULES_VAR: &str = "STUDIO_COMMAND_RULES";

/// Set by studio for processes whose network is limited: the policy, `allow-list` or `off`. With
/// `allow-list`, hosts are reached through the proxy of the environment only, which checks their
/// addresses.
pub const NETWORK_VAR: &str = "STUDIO_NETWORK";

/// Set by studio for an agent whose keys stay outside of its sandbox: one line for each model
/// service, with the URL of studio's proxy, a space, and the base URL of the service.
pub const MODEL_SERVICES_VAR: &str = "STUDIO_MODEL_SERVICES";

/// How much of the rules the kernel enforces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforced {
    /// What this kernel does not support, one sentence each; empty if the sandbox is complete.
    pub missing: Vec<String>,
}
