//! Cargo's home directory in a session. The paths of the sources are part of what cargo compiled: a
//! `target` that was built elsewhere is used again only if the downloads are at the same path. So
//! programs see the session's own directory at the path of the user's, with the user's programs in it,
//! and the user's downloads at another path.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use base::sandbox::SandboxRules;
use base::sandbox::caches::cargo_home;

/// The directory of installed programs in cargo's home, e.g. cargo itself.
const PROGRAMS: &str = "bin";

/// Directories of downloads in cargo's home.
const DOWNLOADS: [&str; 2] = ["registry", "git"];

/// Returns the directory in which programs read the user's downloads. In a cache, links lead there.
pub(crate) fn users_downloads(cache: &Path) -> PathBuf {
    cache.with_file_name("cargo-downloads")
}

/// Shows the user's downloads to programs, and the session's directory at the path of the user's; returns
/// that path. `None` if it cannot be shown there. The cache is that of
/// [`base::sandbox::environment::cache_env`].
pub(super) fn show(
    rules: &mut SandboxRules,
    cache: &Path,
    home: &Path,
    has_mounts: bool,
) -> io::Result<Option<PathBuf>> {
    let users = cargo_home(home);
    let Ok(place) = users.canonicalize() else { return Ok(None) };
    for name in DOWNLOADS {
        if let Ok(directory) = place.join(name).canonicalize() {
            fs::create_dir_all(users_downloads(cache))?;
            show_downloads(rules, directory, users_downloads(cache).join(name), has_mounts)?;
        }
    }
    let own = cache.join("cargo");
    if !has_mounts || !is_free(&place, rules, home) || !is_directory(&own) {
        return Ok(None);
    }
    rules.replaced.push((place.clone(), own));
    let programs = place.join(PROGRAMS);
    if programs.is_dir() {
        rules.replaced.push((programs.clone(), programs));
    }
    Ok(Some(users))
}

/// Shows downloads at a path: as a mount, or as a link where sandboxes have none.
fn show_downloads(
    rules: &mut SandboxRules,
    directory: PathBuf,
    shown: PathBuf,
    has_mounts: bool,
) -> io::Result<()> {
    if !has_mounts {
        if fs::read_link(&shown).ok().as_ref() != Some(&directory) {
            let _ = fs::remove_dir(&shown).or_else(|_| fs::remove_file(&shown));
            symlink(directory, shown)?;
        }
        return Ok(());
    }
    if !is_directory(&shown) {
        let _ = fs::remove_file(&shown);
        fs::create_dir(&shown)?;
    }
    // A sandbox inside this one sees them at the second path only.
    rules.read.extend([directory.clone(), shown.clone()]);
    rules.replaced.push((shown, directory));
    Ok(())
}

/// Returns whether the user's directory can be replaced: programs may read it, and nothing else that
/// they need is in it.
fn is_free(place: &Path, rules: &SandboxRules, home: &Path) -> bool {
    let toolchains = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let is_read = |path: &Path| rules.read.iter().any(|tree| path.starts_with(tree));
    let is_written =
        rules.write.iter().any(|tree| place.starts_with(tree) || tree.starts_with(place));
    let holds_others = [Some(home.to_owned()), toolchains].into_iter().flatten();
    let mut holds_others = holds_others.filter_map(|path| path.canonicalize().ok());
    let is_readable = is_read(place) || is_read(&place.join(PROGRAMS));
    is_readable && !is_written && !holds_others.any(|path| path.starts_with(place))
}

/// Returns whether a path is a directory, and no link to one.
fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}
