//! The caches of build tools (`CARGO_HOME`, `npm_config_cache` …): each session has its own, and
//! each check run a new one, so that nothing that one agent writes is executed by another one's
//! build or check. They start with links to the downloads in the user's caches that the lock file
//! names: a sandbox can read them and not write them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};
use base::id::Id;
use base::sandbox::caches::cargo_home;
use base::sandbox::environment::cache_env;

use studio_git::gc;
use studio_git::repo::Repository;
use studio_git::safe_open::SafeDir;

use crate::sandbox::cargo_home::users_registry;

/// Maximum size of a lock file that is read, in bytes.
const MAX_LOCK_FILE_BYTES: u64 = 32 << 20;
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

    /// Returns the cache that the configured setup writes; agents and checks cannot.
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
        recreate(&self.setup(), home)?;
        let first = if setup.is_empty() {
            recreate(&self.agent(), home)?;
            self.agent()
        } else {
            self.setup()
        };
        seed(&first, worktree, home)?;
        base::files::replace(&self.dir.join(PREPARED_MARKER), b"")
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
        base::files::replace(&marker, b"").or_fail(|| "cannot fill the build caches")
    }

    /// Prepares a new cache for checks: with the setup's downloads and the user's, without anything of
    /// the agent or of earlier checks.
    pub(crate) fn renew_checks(&self, worktree: &Path, home: &Path) -> Result<()> {
        recreate(&self.checks(), home)?;
        copy(&self.setup(), &self.checks())?;
        seed(&self.checks(), worktree, home)
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

/// Links the downloads that a worktree's lock file names and the user's caches contain. No sandbox
/// may write to them; missing ones are downloaded beside the links.
pub(crate) fn seed(cache: &Path, worktree: &Path, home: &Path) -> Result<()> {
    let lock_file =
        SafeDir::open(worktree).and_then(|dir| dir.read("Cargo.lock", MAX_LOCK_FILE_BYTES));
    let Ok(Some(locked)) = lock_file else { return Ok(()) };
    let crates = crates_of(&String::from_utf8_lossy(&locked));
    let downloads = Downloads {
        from: cargo_home(home).join("registry"),
        shown: users_registry(cache),
        to: cache.join("cargo/registry"),
    };
    downloads.link_all(&crates).or_fail(|| "cannot fill the build caches")
}

/// A registry package in a lock file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Crate {
    name: String,
    version: String,
}

/// Returns the registry packages of a `Cargo.lock`. The text is untrusted: anything that cannot be
/// part of a file name is skipped.
fn crates_of(text: &str) -> BTreeSet<Crate> {
    let Ok(table) = text.parse::<toml::Table>() else { return BTreeSet::new() };
    let packages = table.get("package").and_then(toml::Value::as_array);
    let is_plain = |text: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
        !text.is_empty() && !text.starts_with('.') && text.chars().all(is_plain)
    };
    let crate_of = |package: &toml::Value| {
        let field = |name: &str| package.get(name).and_then(toml::Value::as_str);
        let source = field("source")?;
        ["registry+", "sparse+"].iter().any(|kind| source.starts_with(kind)).then_some(())?;
        let (name, version) = (field("name")?, field("version")?);
        (is_plain(name) && is_plain(version))
            .then(|| Crate { name: name.to_owned(), version: version.to_owned() })
    };
    packages.into_iter().flatten().filter_map(crate_of).collect()
}

/// The user's downloads that a cache links to.
#[derive(Debug)]
struct Downloads {
    /// The user's `registry`.
    from: PathBuf,
    /// Where programs see it.
    shown: PathBuf,
    /// The `registry` of the cache.
    to: PathBuf,
}

impl Downloads {
    /// Links cargo's files, whose layout is `cache/REGISTRY/NAME-VERSION.crate`,
    /// `src/REGISTRY/NAME-VERSION` (unpacked) and `index/REGISTRY/.cache/…/NAME`.
    fn link_all(&self, crates: &BTreeSet<Crate>) -> io::Result<()> {
        for registry in names_in(&self.from.join("cache")) {
            for Crate { name, version } in crates {
                self.link(&format!("cache/{registry}/{name}-{version}.crate"))?;
            }
        }
        for registry in names_in(&self.from.join("src")) {
            for Crate { name, version } in crates {
                let unpacked = format!("src/{registry}/{name}-{version}");
                // Cargo creates this file last.
                if self.from.join(&unpacked).join(".cargo-ok").is_file() {
                    self.link(&unpacked)?;
                }
            }
        }
        for registry in names_in(&self.from.join("index")) {
            self.link(&format!("index/{registry}/config.json"))?;
            let names: BTreeSet<&str> =
                crates.iter().map(|package| package.name.as_str()).collect();
            for name in names {
                self.link(&format!("index/{registry}/.cache/{}", index_path(name)))?;
            }
        }
        Ok(())
    }

    /// Links a path if it exists.
    fn link(&self, path: &str) -> io::Result<()> {
        let to = self.to.join(path);
        if !self.from.join(path).exists() || to.symlink_metadata().is_ok() {
            return Ok(());
        }
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        std::os::unix::fs::symlink(self.shown.join(path), to)
    }
}

/// Returns the path of a package in the index of a registry
/// (<https://doc.rust-lang.org/cargo/reference/registry-index.html>).
fn index_path(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    match name.len() {
        1 | 2 => format!("{}/{name}", name.len()),
        3 => format!("3/{}/{name}", &name[..1]),
        _ => format!("{}/{}/{name}", &name[..2], &name[2..4]),
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
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

/// Copies a whole cache. Neither side can change during the copy: sandboxes write neither to
/// `setup` nor to a cache that is not theirs yet.
fn copy(from: &Path, to: &Path) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_cache_contains_only_what_the_lock_file_names() {
        let temp = tempfile::tempdir().unwrap();
        let directory = |name: &str| temp.path().join(name);
        let (from, to) = (directory("from"), directory("to"));
        let write = |path: &str| {
            let path = from.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        };
        for path in [
            "cache/r-1/serde-1.0.0.crate",
            "cache/r-1/serde-2.0.0.crate",
            "index/r-1/.cache/se/rd/serde",
            "index/r-1/.cache/3/s/syn",
            "index/r-1/config.json",
            "src/r-1/serde-1.0.0/.cargo-ok",
            "secret.crate",
        ] {
            write(path);
        }
        let lock = "
            [[package]]\nname = \"serde\"\nversion = \"1.0.0\"\nsource = \"registry+https://x\"
            [[package]]\nname = \"../../secret\"\nversion = \"1\"\nsource = \"registry+https://x\"
            [[package]]\nname = \"own\"\nversion = \"0.1.0\"
        ";
        let crates = crates_of(lock);
        assert_eq!(crates.len(), 1);
        std::os::unix::fs::symlink("from", directory("shown")).unwrap();
        let downloads = Downloads { from, shown: directory("shown"), to: to.clone() };
        downloads.link_all(&crates).unwrap();
        let exists = |path: &str| to.join(path).exists();
        assert!(exists("cache/r-1/serde-1.0.0.crate") && exists("index/r-1/.cache/se/rd/serde"));
        assert!(exists("index/r-1/config.json") && exists("src/r-1/serde-1.0.0/.cargo-ok"));
        assert!(!exists("cache/r-1/serde-2.0.0.crate") && !exists("index/r-1/.cache/3/s/syn"));
    }
}
