//! The scratch sandbox: a command in it can write only its own scratch directory, has no network,
//! and has strict resource limits. If the kernel cannot enforce all of this, the command does not
//! run.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::process::{Command, ResourceLimits};
use base::sandbox::SandboxRules;
use tempfile::TempDir;

use super::confinement;

/// Timeout of a command in the sandbox.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Resource limits.
const LIMITS: ResourceLimits = ResourceLimits {
    memory: 256 << 20,
    addresses: 4 << 30,
    seconds: TIMEOUT.as_secs(),
    file: 64 << 20,
    processes: 100,
};

/// The only writable devices; they store nothing.
const WRITABLE_DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/full"];

/// A sandbox for one command. Dropping it deletes its scratch directory.
#[derive(Debug)]
pub struct ScratchSandbox {
    /// The paths that may be read and written.
    pub rules: SandboxRules,
    scratch: TempDir,
}

impl ScratchSandbox {
    /// Creates a sandbox for a command that works in this tree.
    pub(crate) fn new(root: &Path) -> io::Result<ScratchSandbox> {
        let scratch = tempfile::Builder::new().prefix("g3-sandbox-").tempdir()?;
        let path = scratch.path().canonicalize()?;
        // Inside the sandbox, the command may run as another user.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))?;
        let studio_rules = confinement::studio_rules()?;
        let mut rules = studio_rules.unwrap_or_else(confinement::home_rules);
        let writable = std::mem::take(&mut rules.write);
        rules.read.extend(writable.into_iter().filter(|path| !path.starts_with("/dev")));
        rules.read.extend(["/dev/random", "/dev/urandom"].map(PathBuf::from));
        rules.read.push(root.to_owned());
        rules.write.extend(WRITABLE_DEVICES.map(PathBuf::from));
        rules.write.push(path);
        Ok(ScratchSandbox { rules, scratch })
    }

    /// Returns its scratch directory.
    fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Prepares a command for this sandbox, in addition to the kernel's file rules.
    pub(crate) fn apply(&self, command: Command) -> Command {
        let scratch = self.scratch();
        let variables = ["HOME", "TMPDIR", "TMP", "TEMP"];
        variables.iter().fold(command, |command, name| command.env(name, scratch)).bounded(LIMITS)
    }
}
