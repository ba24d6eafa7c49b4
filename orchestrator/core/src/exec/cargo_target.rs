//! Cargo's `target` in a new session: only what cargo compiled from registries and git is of use there.
//! The repository's own packages have other paths, and are compiled again in any case.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The lock file beside a `target`, and its maximum size in bytes.
pub(super) const LOCK_FILE: &str = "Cargo.lock";
const MAX_LOCK_FILE_BYTES: u64 = 64 << 20;
/// The directories of a profile (`debug`, `release`) that hold compiled packages, one entry or more for
/// each.
const FINGERPRINTS: &str = ".fingerprint";
const BUILD_SCRIPTS: &str = "build";
const LIBRARIES: &str = "deps";
/// Directories beside the profiles that hold results for the user.
const RESULTS: &[&str] = &["doc", "package", "tmp"];

/// The compiled dependencies in a `target`.
#[derive(Debug)]
pub(super) struct CompiledDependencies {
    target: PathBuf,
    /// The packages in the lock file that are not the repository's own.
    packages: HashSet<String>,
    /// For each profile, the hashes in the names of their files.
    profiles: HashMap<PathBuf, HashSet<String>>,
}

impl CompiledDependencies {
    /// Finds the dependencies in a directory. Returns `None` if it is no `target` of cargo.
    pub(super) fn find(target: &Path) -> Option<CompiledDependencies> {
        let lock = target.with_file_name(LOCK_FILE);
        let lock = base::files::read_bounded(&lock, MAX_LOCK_FILE_BYTES).ok()?;
        let packages = external_packages(&String::from_utf8_lossy(&lock))?;
        let below = subdirectories(target);
        // With `--target`, the profiles are one directory deeper.
        let deeper = below.iter().flat_map(|directory| subdirectories(directory));
        let mut profiles = HashMap::new();
        for profile in deeper.chain(below.iter().cloned()) {
            let Ok(fingerprints) = fs::read_dir(profile.join(FINGERPRINTS)) else { continue };
            let names =
                fingerprints.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            let hashes = names.filter_map(|name| {
                let (package, hash) = name.rsplit_once('-')?;
                packages.contains(package).then(|| hash.to_owned())
            });
            profiles.insert(profile, hashes.collect());
        }
        let target = target.to_owned();
        (!profiles.is_empty()).then_some(CompiledDependencies { target, packages, profiles })
    }

    /// Returns whether an entry of a directory in the `target` is of no use elsewhere.
    pub(super) fn leaves_out(&self, directory: &Path, name: &str) -> bool {
        if directory == self.target {
            return RESULTS.contains(&name);
        }
        if self.profiles.contains_key(directory) {
            return ![FINGERPRINTS, BUILD_SCRIPTS, LIBRARIES].contains(&name);
        }
        let hashes = directory.parent().and_then(|profile| self.profiles.get(profile));
        let Some(hashes) = hashes else { return false };
        let name = name.split('.').next().unwrap_or_default();
        let Some((package, hash)) = name.rsplit_once('-') else { return true };
        if directory.ends_with(LIBRARIES) {
            !hashes.contains(hash)
        } else {
            !self.packages.contains(package)
        }
    }
}

/// Returns the names of the packages in a lock file that come from a registry or git, without those
/// that the repository has too.
fn external_packages(lock: &str) -> Option<HashSet<String>> {
    let table: toml::Table = lock.parse().ok()?;
    let packages = table.get("package")?.as_array()?;
    let (mut external, mut own) = (HashSet::new(), HashSet::new());
    for package in packages {
        let name = package.get("name")?.as_str()?.to_owned();
        if package.get("source").is_some() {
            external.insert(name)
        } else {
            own.insert(name)
        };
    }
    external.retain(|name| !own.contains(name));
    Some(external)
}

fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}
