//! The caches of build tools (`CARGO_HOME`, `npm_config_cache` …): each session has its own, and
//! each check run a new one, so that nothing that one agent writes is executed by another one's
//! build or check. They start with links to the downloads in the user's caches that the lock file
//! names: a sandbox can read them and not write them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};
use base::id::Id;
use base::sandbox::caches::cargo_home;
use base::sandbox::environment::cache_env;

use studio_git::gc;
use studio_git::repo::Repository;

use crate::exec::cargo_downloads;

/// Maximum amount that is copied; the rest is downloaded again.
const COPY_LIMITS: CopyBudget = CopyBudget { files: 100_000, bytes: 4 << 30 };
/// Directories of a cache whose directories are quickly rebuilt from its downloads.
const UNPACKED: &[&str] = &["cargo/registry/src", "cargo/git/checkouts"];

/// Marker files: the cache is prepared, and the agent has its copy.
const PREPARED_MARKER: &str = "begun";
const COPIED_MARKER: &str = "handed-over";

/// The build caches of a session.
#[derive(Clone, Debug)]
pub(crate) struct BuildCaches {
    dir: PathBuf,
}

/// The remaining amount to copy.
#[derive(Clone, Copy, Debug)]
struct CopyBudget {
    files: u64,
    bytes: u64,
}

impl BuildCaches {
    /// Returns the build caches of a session.
    pub(crate) fn of(repository: &Repository, id: &Id) -> BuildCaches {
        BuildCaches { dir: repository.session_dir(id).join("caches") }
    }

    /// Returns the cache that the configured setup writes; agents and checks cannot. Without a setup
    /// it does not exist.
    pub(crate) fn setup(&self) -> PathBuf {
        self.dir.join("setup")
    }

    /// Returns the cache of the agent.
    pub(crate) fn agent(&self) -> PathBuf {
        self.dir.join("agent")
    }

    /// Returns the cache of the running checks.
    pub(crate) fn checks(&self) -> PathBuf {
        self.dir.join("checks")
    }

    /// Prepares the caches for a new worktree. The downloads are linked in the setup's, which the others
    /// are copied from; without a setup, in the agent's.
    pub(crate) fn prepare(&self, worktree: &Path, home: &Path, setup: &[String]) -> Result<()> {
        let first = if setup.is_empty() { self.agent() } else { self.setup() };
        recreate(&first, home)?;
        cargo_downloads::link(&first, worktree, home)?;
        base::files::replace_cache(&self.dir.join(PREPARED_MARKER), b"")
            .or_fail(|| "cannot fill the build caches")
    }

    /// Returns whether [`BuildCaches::prepare`] must be called: `studio gc` removes unused caches,
    /// and sessions of earlier versions have none.
    pub(crate) fn are_missing(&self) -> bool {
        !self.dir.join(PREPARED_MARKER).exists()
    }

    /// Copies the setup's downloads to the agent's cache, once.
    pub(crate) fn copy_to_agent(&self) -> Result<()> {
        let marker = self.dir.join(COPIED_MARKER);
        if marker.exists() {
            return Ok(());
        }
        copy(&self.setup(), &self.agent())?;
        base::files::replace_cache(&marker, b"").or_fail(|| "cannot fill the build caches")
    }

    /// Prepares a new cache for checks: with the setup's downloads and the user's, without anything of
    /// the agent or of earlier checks.
    pub(crate) fn renew_checks(&self, worktree: &Path, home: &Path) -> Result<()> {
        recreate(&self.checks(), home)?;
        copy(&self.setup(), &self.checks())?;
        cargo_downloads::link(&self.checks(), worktree, home)
    }

    /// Removes the cache of the last checks.
    pub(crate) fn remove_checks(&self) {
        if self.checks().symlink_metadata().is_ok() {
            gc::remove(&self.checks());
        }
    }
}

/// Creates an empty cache directory with the tools' subdirectories.
pub(crate) fn recreate(cache: &Path, home: &Path) -> Result<()> {
    if cache.symlink_metadata().is_ok() {
        gc::remove(cache);
    }
    cache_env(cache, &cargo_home(home)).or_fail(|| "cannot make the build caches")?;
    Ok(())
}

/// Copies one file within the bounds; a missing file is skipped. Shares the data on file systems
/// that support it.
fn copy_file(from: &Path, to: &Path, remaining: &mut CopyBudget) -> io::Result<()> {
    let Ok(metadata) = from.symlink_metadata() else { return Ok(()) };
    if !metadata.is_file() || remaining.files == 0 || remaining.bytes < metadata.len() {
        return Ok(());
    }
    remaining.files -= 1;
    remaining.bytes -= metadata.len();
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to).map(drop)
}

/// Copies a whole cache, if it exists. Neither side can change during the copy: sandboxes write
/// neither to `setup` nor to a cache that is not theirs yet.
fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.exists() {
        return Ok(());
    }
    let mut remaining = COPY_LIMITS;
    copy_tree(from, to, from, &mut remaining).or_fail(|| "cannot fill the build caches")
}

fn copy_tree(from: &Path, to: &Path, root: &Path, remaining: &mut CopyBudget) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, source, target) = (entry.file_type()?, entry.path(), to.join(entry.file_name()));
        let above = from.parent();
        let is_unpacked = UNPACKED.iter().any(|name| above == Some(&root.join(name)));
        if kind.is_dir() && !is_unpacked {
            copy_tree(&source, &target, root, remaining)?;
        } else if kind.is_symlink() && target.symlink_metadata().is_err() {
            std::os::unix::fs::symlink(fs::read_link(&source)?, &target)?;
        } else if kind.is_file() {
            copy_file(&source, &target, remaining)?;
        }
    }
    Ok(())
}
