//! Keeps the programs of sessions and checks outside of what sessions write: an inherited `PATH`
//! with an entry in a worktree would let an agent replace the tools of a check.

use std::env;
use std::path::{Path, PathBuf};

/// Variables with lists of directories in which programs search for programs and libraries.
const SEARCH_PATHS: &[&str] = &[
    "PATH",
    "PYTHONPATH",
    "NODE_PATH",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "CPATH",
    "PKG_CONFIG_PATH",
    "GOPATH",
    "XDG_DATA_DIRS",
    "XDG_CONFIG_DIRS",
];

/// Removes from inherited variables what leads into these directories, and relative entries of
/// search paths: they lead into the worktree. Variables that studio set itself stay.
pub(super) fn restrict(environment: &mut Vec<(String, String)>, written: &[PathBuf]) {
    let written: Vec<PathBuf> = written
        .iter()
        .flat_map(|dir| [Some(dir.clone()), dir.canonicalize().ok()])
        .flatten()
        .collect();
    environment.retain_mut(|(name, value)| {
        let is_inherited = env::var_os(&*name).is_some_and(|inherited| inherited == **value);
        if !is_inherited {
            return true;
        }
        if SEARCH_PATHS.contains(&name.as_str()) {
            *value = outside(value, &written);
            return true;
        }
        !leads_into(value, &written)
    });
}

/// Adds the last directory in which programs are searched for: that of what a session installed.
pub(super) fn add_last(environment: &mut [(String, String)], directory: &Path) {
    for (_, path) in environment.iter_mut().filter(|(name, _)| name == "PATH") {
        // Fails for a directory whose name contains a colon.
        if let Ok(added) = env::join_paths(env::split_paths(path).chain([directory.to_owned()])) {
            *path = added.to_string_lossy().into_owned();
        }
    }
}

/// Returns the absolute entries of a search path that are in none of the directories.
fn outside(value: &str, written: &[PathBuf]) -> String {
    let is_outside = |entry: &&str| {
        let path = Path::new(entry);
        // A symlink outside may lead inside.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let is_inside = |dir: &PathBuf| path.starts_with(dir) || target.starts_with(dir);
        path.is_absolute() && !written.iter().any(is_inside)
    };
    let entries: Vec<&str> = value.split(':').filter(is_outside).collect();
    entries.join(":")
}

/// Returns whether a value contains a path in one of the directories.
fn leads_into(value: &str, written: &[PathBuf]) -> bool {
    written.iter().any(|dir| {
        let dir = dir.to_string_lossy();
        let ends =
            |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || "-_.".contains(c));
        value.match_indices(&*dir).any(|(index, found)| ends(&value[index + found.len()..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_search_paths_inside_a_session_are_removed() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let worktree = root.join("w");
        std::fs::create_dir_all(worktree.join("bin")).unwrap();
        std::os::unix::fs::symlink(worktree.join("bin"), root.join("link")).unwrap();
        let path = |entries: &[&str]| entries.join(":").replace('~', &root.display().to_string());
        let value = path(&["/usr/bin", "~/w/bin", ".", "node_modules/.bin", "", "~/link", "~/w2"]);
        assert_eq!(outside(&value, std::slice::from_ref(&worktree)), path(&["/usr/bin", "~/w2"]));
    }

    #[test]
    fn a_value_leads_into_a_directory_by_its_whole_name() {
        let written = [PathBuf::from("/r/w")];
        for inside in ["/r/w", "/r/w/bin/wrap", "--require=/r/w/x.js", "a /r/w"] {
            assert!(leads_into(inside, &written), "{inside}");
        }
        for outside in ["/r/w2/bin", "/r/w-1", "/r", "sccache"] {
            assert!(!leads_into(outside, &written), "{outside}");
        }
    }
}
