//! The git directories of a working tree in a sandbox: commits are possible, but what git runs or
//! obeys (its configuration, its hooks) is read-only.

use std::fs;
use std::path::{Path, PathBuf};

/// The directory of studio's sessions in a git directory.
pub const STUDIO: &str = "studio";
/// The maximum size of a `.git` file that is read, in bytes.
const POINTER: u64 = 8 << 10;

/// The git directories of a working tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitDirs {
    /// The writable paths.
    pub write: Vec<PathBuf>,
    /// The paths below them that stay read-only.
    pub fixed: Vec<PathBuf>,
}

/// Returns the git directories of the working tree at `root`; none outside of git, or if its `.git`
/// file refers to a directory that does not point back. Runs no git.
pub fn of(root: &Path) -> GitDirs {
    let pointer = root.join(".git");
    let Ok(meta) = fs::symlink_metadata(&pointer) else { return GitDirs::default() };
    if meta.is_dir() {
        return around(&pointer, Vec::new());
    }
    let Some(own) = meta.is_file().then(|| target(&pointer)).flatten() else {
        return GitDirs::default();
    };
    let fixed = ["commondir", "gitdir", "config.worktree"].map(|name| own.join(name));
    match common(&own) {
        Some(common) if points_back(&own, &pointer) => {
            around(&common, fixed.into_iter().chain([pointer]).collect())
        }
        None if holds_worktree(&own, root) => around(&own, vec![pointer]),
        Some(_) | None => GitDirs::default(),
    }
}

/// Returns a git directory and those of its submodules.
fn around(git: &Path, more: Vec<PathBuf>) -> GitDirs {
    // A missing path could be created by the sandboxed process.
    let _ = fs::create_dir(git.join("hooks"));
    let mut fixed = more;
    fixed.extend(["config", "config.worktree", "hooks", STUDIO].map(|name| git.join(name)));
    let modules = fs::read_dir(git.join("modules")).into_iter().flatten().flatten();
    for module in modules.filter(|entry| entry.path().join("HEAD").is_file()) {
        fixed.extend(["config", "hooks"].map(|name| module.path().join(name)));
    }
    fixed.retain(|path| path.exists());
    GitDirs { write: vec![git.to_owned()], fixed }
}

/// Returns the target of a `.git` file.
fn target(pointer: &Path) -> Option<PathBuf> {
    let text = line(pointer)?;
    let named = text.strip_prefix("gitdir:")?.trim();
    pointer.parent()?.join(named).canonicalize().ok().filter(|dir| dir.join("HEAD").is_file())
}

/// Returns the common directory of a linked working tree's git directory.
fn common(own: &Path) -> Option<PathBuf> {
    let common = own.join(line(&own.join("commondir"))?).canonicalize().ok()?;
    (common.join("objects").is_dir() && own.starts_with(common.join("worktrees"))).then_some(common)
}

/// Returns whether a linked working tree's git directory names this `.git` file.
fn points_back(own: &Path, pointer: &Path) -> bool {
    let named = line(&own.join("gitdir")).map(|text| own.join(text));
    let (named, pointer) =
        (named.and_then(|path| path.canonicalize().ok()), pointer.canonicalize());
    named.is_some() && named == pointer.ok()
}

/// Returns whether a submodule's git directory has this working tree.
fn holds_worktree(own: &Path, root: &Path) -> bool {
    let config = fs::read_to_string(own.join("config")).unwrap_or_default();
    let named = config.lines().find_map(|line| {
        let (key, value) = line.trim().split_once('=')?;
        (key.trim() == "worktree").then(|| own.join(value.trim()))
    });
    let named = named.and_then(|path| path.canonicalize().ok());
    named.is_some() && named == root.canonicalize().ok()
}

/// Returns the only line of a small file.
fn line(file: &Path) -> Option<String> {
    let small = fs::symlink_metadata(file).is_ok_and(|it| it.is_file() && it.len() < POINTER);
    let text = small.then(|| fs::read_to_string(file).ok()).flatten()?;
    Some(text.trim_end_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git_dir(path: &Path) {
        fs::create_dir_all(path.join("objects")).unwrap();
        fs::write(path.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(path.join("config"), "").unwrap();
    }

    #[test]
    fn the_directories_of_a_repository_a_worktree_and_a_submodule_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        let (main, linked, part) = (at.join("main"), at.join("linked"), at.join("main/part"));
        git_dir(&main.join(".git"));
        let own = main.join(".git/worktrees/linked");
        git_dir(&own);
        fs::create_dir_all(&linked).unwrap();
        fs::write(linked.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
        fs::write(own.join("gitdir"), format!("{}\n", linked.join(".git").display())).unwrap();
        fs::write(own.join("commondir"), "../..\n").unwrap();
        let module = main.join(".git/modules/part");
        git_dir(&module);
        fs::write(module.join("config"), "[core]\n\tworktree = ../../../part\n").unwrap();
        fs::create_dir_all(&part).unwrap();
        fs::write(part.join(".git"), "gitdir: ../.git/modules/part\n").unwrap();

        let found = of(&main);
        assert_eq!(found.write, [main.join(".git")]);
        for name in ["config", "hooks", "modules/part/config"] {
            assert!(found.fixed.contains(&main.join(".git").join(name)), "{name}: {found:?}");
        }
        let found = of(&linked);
        assert_eq!(found.write, [main.join(".git")]);
        for path in [own.join("commondir"), linked.join(".git"), main.join(".git/config")] {
            assert!(found.fixed.contains(&path), "{}: {found:?}", path.display());
        }
        assert_eq!(of(&part).write, [module]);
        assert_eq!(of(&at), GitDirs::default());
    }

    #[test]
    fn a_git_directory_that_does_not_point_back_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        git_dir(&at.join("victim/.git"));
        fs::create_dir_all(at.join("work")).unwrap();
        for to in ["victim/.git", "victim", "nowhere"] {
            fs::write(at.join("work/.git"), format!("gitdir: {}\n", at.join(to).display()))
                .unwrap();
            assert_eq!(of(&at.join("work")), GitDirs::default(), "{to}");
        }
    }
}
