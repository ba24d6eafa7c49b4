//! The sandbox: a command in it changes nothing but its own scratch directory, reaches nobody, and
//! uses little. Where the kernel cannot hold all of that, it does not run.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::process::{Command, ResourceLimits};
use base::sandbox::SandboxRules;
use tempfile::TempDir;

use super::confinement;

/// How long a command in the sandbox may take.
pub const TIME: Duration = Duration::from_secs(30);

/// What it may use.
const BOUNDS: ResourceLimits = ResourceLimits {
    memory: 256 << 20,
    addresses: 4 << 30,
    seconds: TIME.as_secs(),
    file: 64 << 20,
    processes: 100,
};

/// The only devices that may be written: they keep nothing.
const SINKS: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/full"];

/// A sandbox for one command. Dropped, its scratch directory is gone.
#[derive(Debug)]
pub struct ScratchSandbox {
    /// What may be read and written.
    pub rules: SandboxRules,
    scratch: TempDir,
}

impl ScratchSandbox {
    /// A sandbox for a command that works in this tree.
    pub(crate) fn new(root: &Path) -> io::Result<ScratchSandbox> {
        let scratch = tempfile::Builder::new().prefix("g3-sandbox-").tempdir()?;
        let path = scratch.path().canonicalize()?;
        // In here its owner may be somebody else than us.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777))?;
        let around = confinement::around()?;
        let mut rules = around.unwrap_or_else(confinement::home_rules);
        let opened = std::mem::take(&mut rules.write);
        rules.read.extend(opened.into_iter().filter(|it| !it.starts_with("/dev")));
        rules.read.extend(["/dev/random", "/dev/urandom"].map(PathBuf::from));
        rules.read.push(root.to_owned());
        rules.write.extend(SINKS.map(PathBuf::from));
        rules.write.push(path);
        Ok(ScratchSandbox { rules, scratch })
    }

    /// Its scratch directory.
    fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// The job as it may run in here, once the kernel's rules for files hold.
    pub(crate) fn bind(&self, job: Command) -> Command {
        let scratch = self.scratch();
        let homes = ["HOME", "TMPDIR", "TMP", "TEMP"];
        homes.iter().fold(job, |job, name| job.env(name, scratch)).bounded(BOUNDS)
    }
}
