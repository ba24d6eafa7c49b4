//! The git directories of a working tree in a sandbox: commits are possible, but what git runs or
//! obeys (its configuration, its hooks) is read-only.

use std::fs;
use std::path::{Path, PathBuf};

/// The directory of studio's sessions in a git directory.
pub const STUDIO: &str = "studio";
/// The maximum size of a `.git` file that is read, in bytes.
const MAX_POINTER_BYTES: u64 = 8 << 10;

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
        return rules_for(&pointer, Vec::new());
    }
    let Some(git_dir) = meta.is_file().then(|| resolve_pointer(&pointer)).flatten() else {
        return GitDirs::default();
    };
    let fixed = ["commondir", "gitdir", "config.worktree"].map(|name| git_dir.join(name));
    match common(&git_dir) {
        Some(common) if points_back(&git_dir, &pointer) => {
            rules_for(&common, fixed.into_iter().chain([pointer]).collect())
        }
        None if holds_worktree(&git_dir, root) => rules_for(&git_dir, vec![pointer]),
        Some(_) | None => GitDirs::default(),
    }
}

/// Returns a git directory and those of its submodules.
fn rules_for(git: &Path, more: Vec<PathBuf>) -> GitDirs {
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
fn resolve_pointer(pointer: &Path) -> Option<PathBuf> {
    let text = line(pointer)?;
    let target = text.strip_prefix("gitdir:")?.trim();
    pointer.parent()?.join(target).canonicalize().ok().filter(|dir| dir.join("HEAD").is_file())
}

/// Returns the common directory of a linked working tree's git directory.
fn common(git_dir: &Path) -> Option<PathBuf> {
    let common = git_dir.join(line(&git_dir.join("commondir"))?).canonicalize().ok()?;
    (common.join("objects").is_dir() && git_dir.starts_with(common.join("worktrees")))
        .then_some(common)
}

/// Returns whether a linked working tree's git directory names this `.git` file.
fn points_back(git_dir: &Path, pointer: &Path) -> bool {
    let target = line(&git_dir.join("gitdir")).map(|text| git_dir.join(text));
    let (target, pointer) =
        (target.and_then(|path| path.canonicalize().ok()), pointer.canonicalize());
    target.is_some() && target == pointer.ok()
}

/// Returns whether a submodule's git directory has this working tree.
fn holds_worktree(git_dir: &Path, root: &Path) -> bool {
    let config = fs::read_to_string(git_dir.join("config")).unwrap_or_default();
    let target = config.lines().find_map(|line| {
        let (key, value) = line.trim().split_once('=')?;
        (key.trim() == "worktree").then(|| git_dir.join(value.trim()))
    });
    let target = target.and_then(|path| path.canonicalize().ok());
    target.is_some() && target == root.canonicalize().ok()
}

/// Returns the only line of a small file.
fn line(file: &Path) -> Option<String> {
    let is_small =
        fs::symlink_metadata(file).is_ok_and(|it| it.is_file() && it.len() < MAX_POINTER_BYTES);
    let text = is_small.then(|| fs::read_to_string(file).ok()).flatten()?;
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
        let root = dir.path().canonicalize().unwrap();
        let (main, linked, part) = (root.join("main"), root.join("linked"), root.join("main/part"));
        git_dir(&main.join(".git"));
        let linked_git_dir = main.join(".git/worktrees/linked");
        git_dir(&linked_git_dir);
        fs::create_dir_all(&linked).unwrap();
        fs::write(linked.join(".git"), format!("gitdir: {}\n", linked_git_dir.display())).unwrap();
        fs::write(linked_git_dir.join("gitdir"), format!("{}\n", linked.join(".git").display()))
            .unwrap();
        fs::write(linked_git_dir.join("commondir"), "../..\n").unwrap();
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
        for path in
            [linked_git_dir.join("commondir"), linked.join(".git"), main.join(".git/config")]
        {
            assert!(found.fixed.contains(&path), "{}: {found:?}", path.display());
        }
        assert_eq!(of(&part).write, [module]);
        assert_eq!(of(&root), GitDirs::default());
    }

    #[test]
    fn a_git_directory_that_does_not_point_back_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        git_dir(&root.join("victim/.git"));
        fs::create_dir_all(root.join("work")).unwrap();
        for to in ["victim/.git", "victim", "nowhere"] {
            fs::write(root.join("work/.git"), format!("gitdir: {}\n", root.join(to).display()))
                .unwrap();
            assert_eq!(of(&root.join("work")), GitDirs::default(), "{to}");
        }
    }
}
