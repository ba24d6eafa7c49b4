//! The user's cargo downloads in a session's cache: links to the crates that the lock file names, and
//! repositories that share the objects of the user's. A sandbox can read them and not write them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};
use base::sandbox::caches::cargo_home;
use studio_git::safe_open::SafeDir;

use crate::sandbox::cargo_home::users_downloads;

/// Maximum size of a lock file that is read, in bytes.
const MAX_LOCK_FILE_BYTES: u64 = 32 << 20;
/// The file that cargo creates last when it unpacks something.
const UNPACKED_MARKER: &str = ".cargo-ok";

/// Links the downloads that a worktree's lock file names and the user has. No sandbox may write to
/// them; missing ones are downloaded beside the links. The cache must not contain anything of a
/// sandbox yet.
pub(crate) fn link(cache: &Path, worktree: &Path, home: &Path) -> Result<()> {
    let lock_file =
        SafeDir::open(worktree).and_then(|dir| dir.read("Cargo.lock", MAX_LOCK_FILE_BYTES));
    let Ok(Some(locked)) = lock_file else { return Ok(()) };
    let locked = Locked::parse(&String::from_utf8_lossy(&locked));
    let downloads = Downloads {
        from: cargo_home(home),
        shown: users_downloads(cache),
        to: cache.join("cargo"),
    };
    downloads.link_all(&locked).or_fail(|| "cannot fill the build caches")
}

/// What a `Cargo.lock` names. The text is untrusted: anything that cannot be part of a file name is
/// skipped.
#[derive(Debug, Default)]
struct Locked {
    /// The packages of registries.
    crates: BTreeSet<Crate>,
    /// The commits of git repositories.
    commits: BTreeSet<String>,
}

/// A registry package in a lock file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Crate {
    name: String,
    version: String,
}

impl Locked {
    fn parse(text: &str) -> Locked {
        let mut locked = Locked::default();
        let Ok(table) = text.parse::<toml::Table>() else { return locked };
        let packages = table.get("package").and_then(toml::Value::as_array);
        for package in packages.into_iter().flatten() {
            let field = |name: &str| package.get(name).and_then(toml::Value::as_str);
            let [Some(source), Some(name), Some(version)] =
                ["source", "name", "version"].map(field)
            else {
                continue;
            };
            if let Some(("git", repository)) = source.split_once('+') {
                locked.commits.extend(repository.rsplit_once('#').map(|(_, id)| id.to_owned()));
            } else if is_plain(name) && is_plain(version) {
                locked.crates.insert(Crate { name: name.to_owned(), version: version.to_owned() });
            }
        }
        locked
    }
}

/// Returns whether a text is part of a file name.
fn is_plain(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    !text.is_empty() && !text.starts_with('.') && text.chars().all(is_plain)
}

/// The user's downloads that a cache links to.
#[derive(Debug)]
struct Downloads {
    /// The user's cargo home.
    from: PathBuf,
    /// Where programs see its downloads.
    shown: PathBuf,
    /// That of the cache.
    to: PathBuf,
}

impl Downloads {
    /// Links cargo's files (<https://doc.rust-lang.org/cargo/guide/cargo-home.html>):
    /// `cache/REGISTRY/NAME-VERSION.crate`, `src/REGISTRY/NAME-VERSION` (unpacked) and
    /// `index/REGISTRY/.cache/…/NAME` of registries; `db/REPOSITORY` and
    /// `checkouts/REPOSITORY/COMMIT` of git.
    fn link_all(&self, locked: &Locked) -> io::Result<()> {
        for registry in self.names_in("registry/cache") {
            for Crate { name, version } in &locked.crates {
                self.link(&format!("registry/cache/{registry}/{name}-{version}.crate"))?;
            }
        }
        for registry in self.names_in("registry/src") {
            for Crate { name, version } in &locked.crates {
                self.link_unpacked(&format!("registry/src/{registry}/{name}-{version}"))?;
            }
        }
        for registry in self.names_in("registry/index") {
            self.link(&format!("registry/index/{registry}/config.json"))?;
            let names: BTreeSet<&str> =
                locked.crates.iter().map(|package| package.name.as_str()).collect();
            for name in names {
                self.link(&format!("registry/index/{registry}/.cache/{}", index_path(name)))?;
            }
        }
        if locked.commits.is_empty() {
            return Ok(());
        }
        for repository in self.names_in("git/checkouts") {
            let checkouts = self.names_in(&format!("git/checkouts/{repository}"));
            let is_named = |short: &str| {
                !short.is_empty() && locked.commits.iter().any(|id| id.starts_with(short))
            };
            for short in checkouts.iter().filter(|short| is_named(short)) {
                self.link_unpacked(&format!("git/checkouts/{repository}/{short}"))?;
                self.share_objects(&format!("git/db/{repository}"))?;
            }
        }
        Ok(())
    }

    fn names_in(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.from.join(directory)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Links what cargo unpacked completely.
    fn link_unpacked(&self, path: &str) -> io::Result<()> {
        let is_complete = self.from.join(path).join(UNPACKED_MARKER).is_file();
        if is_complete { self.link(path) } else { Ok(()) }
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
        symlink(self.shown.join(path), to)
    }

    /// Creates a git repository with the references of the user's, which reads the objects there. New
    /// ones are its own.
    fn share_objects(&self, path: &str) -> io::Result<()> {
        let (from, to) = (self.from.join(path), self.to.join(path));
        if !from.join("HEAD").is_file() || to.symlink_metadata().is_ok() {
            return Ok(());
        }
        fs::create_dir_all(to.join("objects/info"))?;
        fs::create_dir_all(to.join("refs"))?;
        fs::write(to.join("config"), "[core]\n\trepositoryformatversion = 0\n\tbare = true\n")?;
        for name in ["HEAD", "packed-refs", "shallow"] {
            let file = from.join(name);
            if file.is_file() {
                fs::copy(file, to.join(name))?;
            }
        }
        copy_references(&from.join("refs"), &to.join("refs"))?;
        let objects = self.shown.join(path).join("objects");
        fs::write(to.join("objects/info/alternates"), format!("{}\n", objects.display()))
    }
}

fn copy_references(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let (entry, kind) = entry.and_then(|entry| entry.file_type().map(|kind| (entry, kind)))?;
        let copy = to.join(entry.file_name());
        if kind.is_dir() {
            fs::create_dir_all(&copy)?;
            copy_references(&entry.path(), &copy)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), copy)?;
        }
    }
    Ok(())
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
            "registry/cache/r-1/serde-1.0.0.crate",
            "registry/cache/r-1/serde-2.0.0.crate",
            "registry/index/r-1/.cache/se/rd/serde",
            "registry/index/r-1/.cache/3/s/syn",
            "registry/index/r-1/config.json",
            "registry/src/r-1/serde-1.0.0/.cargo-ok",
            "git/checkouts/lib-1/0123abc/.cargo-ok",
            "git/checkouts/lib-1/4567def/.cargo-ok",
            "git/checkouts/other-1/89ab/.cargo-ok",
            "git/db/lib-1/HEAD",
            "git/db/lib-1/refs/remotes/origin/main",
            "git/db/lib-1/objects/pack/large",
            "git/db/other-1/HEAD",
            "secret.crate",
        ] {
            write(path);
        }
        let lock = "
            [[package]]\nname = \"serde\"\nversion = \"1.0.0\"\nsource = \"registry+https://x\"
            [[package]]\nname = \"../../secret\"\nversion = \"1\"\nsource = \"registry+https://x\"
            [[package]]\nname = \"lib\"\nversion = \"1.0.0\"\nsource = \"git+https://x/lib#0123abcdef\"
            [[package]]\nname = \"own\"\nversion = \"0.1.0\"
        ";
        let locked = Locked::parse(lock);
        assert_eq!((locked.crates.len(), locked.commits.len()), (1, 1));
        symlink("from", directory("shown")).unwrap();
        let downloads = Downloads { from, shown: directory("shown"), to: to.clone() };
        downloads.link_all(&locked).unwrap();
        let exists = |path: &str| to.join(path).exists();
        for path in [
            "registry/cache/r-1/serde-1.0.0.crate",
            "registry/index/r-1/.cache/se/rd/serde",
            "registry/index/r-1/config.json",
            "registry/src/r-1/serde-1.0.0/.cargo-ok",
            "git/checkouts/lib-1/0123abc/.cargo-ok",
            "git/db/lib-1/refs/remotes/origin/main",
            "git/db/lib-1/objects/info/alternates",
        ] {
            assert!(exists(path), "{path}");
        }
        for path in [
            "registry/cache/r-1/serde-2.0.0.crate",
            "registry/index/r-1/.cache/3/s/syn",
            "git/checkouts/lib-1/4567def",
            "git/checkouts/other-1",
            "git/db/lib-1/objects/pack",
            "git/db/other-1",
        ] {
            assert!(!exists(path), "{path}");
        }
    }
}
