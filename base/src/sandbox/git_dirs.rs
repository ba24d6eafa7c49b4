//! The git directories of a working tree in a sandbox: commits are possible, but what git runs or
//! obeys (its configuration, its hooks) is read-only.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::{GuardedPath, borrowed_objects};

/// The directory of studio's sessions in a git directory.
pub const STUDIO: &str = "studio";
/// Maximum number of directories that are searched for submodules.
const MAX_SUBMODULE_DIRECTORIES: usize = 10_000;
/// The maximum size of a `.git` file that is read, in bytes.
const MAX_POINTER_BYTES: u64 = 8 << 10;

/// The git directories of a working tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitDirs {
    /// The writable paths.
    pub write: Vec<PathBuf>,
    /// The paths below them that stay read-only.
    pub fixed: Vec<PathBuf>,
    /// The paths that are put back, because they cannot be read-only.
    pub guarded: Vec<GuardedPath>,
    /// The readable object directories of other repositories, from which these borrow.
    pub borrowed: Vec<PathBuf>,
    /// The configuration, which may contain a login.
    pub config: Option<PathBuf>,
}

impl GitDirs {
    /// Writes a copy of the configuration without its logins to this directory; returns the path
    /// and its copy, or `None` if it contains no login.
    pub fn config_without_logins(
        &self,
        directory: &Path,
        root: &Path,
    ) -> io::Result<Option<(PathBuf, PathBuf)>> {
        let Some(config) = &self.config else { return Ok(None) };
        let Some(text) = without_logins(config) else { return Ok(None) };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let copy = directory.join(crate::user_dirs::name_for_path(root));
        crate::files::replace_cache(&copy, text.as_bytes())?;
        Ok(Some((config.clone(), copy)))
    }
}

/// Returns the git directories of the working tree at `root`; none outside of git, or if its `.git`
/// file refers to a directory that does not point back. Runs no git.
pub fn of(root: &Path) -> GitDirs {
    let pointer = root.join(".git");
    let Ok(meta) = fs::symlink_metadata(&pointer) else { return GitDirs::default() };
    if meta.is_dir() {
        return rules_for(&pointer, Vec::new());
    }
    if meta.is_symlink() {
        let Ok(target) = fs::read_link(&pointer) else { return GitDirs::default() };
        let Some(git) = pointer.canonicalize().ok().filter(|git| git.join("HEAD").is_file()) else {
            return GitDirs::default();
        };
        let is_inside = root.canonicalize().is_ok_and(|root| git.starts_with(root));
        let mut dirs = rules_for(&git, Vec::new());
        dirs.write.retain(|_| is_inside || holds_worktree(&git, root));
        dirs.guarded.push(GuardedPath { path: pointer, link: Some(target) });
        return dirs;
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

/// Returns a git directory, those of its submodules, and what leads to them from other working
/// trees.
fn rules_for(git: &Path, more: Vec<PathBuf>) -> GitDirs {
    let mut obeyed = more;
    // A missing path could be created by the sandboxed process.
    let _ = fs::DirBuilder::new().mode(0o700).create(git.join(STUDIO));
    obeyed.push(git.join(STUDIO));
    let mut submodules = Vec::new();
    let mut remaining = MAX_SUBMODULE_DIRECTORIES;
    find_submodules(&git.join("modules"), &mut remaining, &mut submodules);
    let mut borrowed = Vec::new();
    for directory in submodules.iter().map(PathBuf::as_path).chain([git]) {
        let _ = fs::create_dir(directory.join("hooks"));
        let names = ["config", "config.worktree", "hooks", "commondir"];
        obeyed.extend(names.map(|name| directory.join(name)));
        let objects = directory.join("objects");
        borrowed.extend(borrowed_objects::directories(&objects));
        obeyed.push(objects.join(borrowed_objects::ALTERNATES));
    }
    let worktrees = fs::read_dir(git.join("worktrees")).into_iter().flatten().flatten();
    for worktree in worktrees.filter(|entry| entry.path().join("HEAD").is_file()) {
        let names = ["commondir", "gitdir", "config.worktree"];
        obeyed.extend(names.map(|name| worktree.path().join(name)));
    }
    obeyed.sort();
    obeyed.dedup();
    let (fixed, missing): (Vec<PathBuf>, Vec<PathBuf>) =
        obeyed.into_iter().partition(|path| path.exists());
    let guarded = missing.into_iter().map(GuardedPath::missing).collect();
    let config = Some(git.join("config")).filter(|config| config.is_file());
    GitDirs { write: vec![git.to_owned()], fixed, guarded, borrowed, config }
}

/// Finds the git directories of submodules, whose names may contain `/`, and of their submodules.
fn find_submodules(directory: &Path, remaining: &mut usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        *remaining = remaining.saturating_sub(1);
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if *remaining == 0 || !is_directory {
            continue;
        }
        let path = entry.path();
        if path.join("HEAD").is_file() {
            find_submodules(&path.join("modules"), remaining, found);
            found.push(path);
        } else {
            find_submodules(&path, remaining, found);
        }
    }
}

/// Returns a configuration without the logins in it: passwords and tokens in addresses, headers of
/// requests, and lines that name a secret. `None` if it contains none.
pub fn without_logins(config: &Path) -> Option<String> {
    let text = crate::files::read_text(config).ok()?;
    let kept = text.lines().filter_map(|line| {
        let lower = line.to_lowercase();
        let names_secret = ["extraheader", "token", "password", "secret"]
            .iter()
            .any(|word| lower.split_once('=').is_some_and(|(_, value)| value.contains(word)))
            || lower.trim_start().starts_with("extraheader");
        (!names_secret).then(|| without_userinfo(line))
    });
    let mut kept: String = kept.map(|line| line + "\n").collect();
    if !text.ends_with('\n') {
        kept.pop();
    }
    (kept != text).then_some(kept)
}

/// Removes `user:password@` from HTTP addresses.
fn without_userinfo(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some(at) = ["http://", "https://"]
        .iter()
        .filter_map(|scheme| rest.find(scheme).map(|at| at + scheme.len()))
        .min()
    {
        let (scheme, after) = rest.split_at(at);
        kept.push_str(scheme);
        let end = after.find(|c: char| c == '/' || c == '"' || c.is_whitespace());
        let (authority, tail) = after.split_at(end.unwrap_or(after.len()));
        kept.push_str(authority.rsplit_once('@').map_or(authority, |(_, host)| host));
        rest = tail;
    }
    kept + rest
}

/// Returns the git directory of the working tree around a directory, whether or not it is opened.
pub fn nearest(directory: &Path) -> Option<PathBuf> {
    let pointer = directory.ancestors().map(|parent| parent.join(".git"));
    let pointer = pointer.into_iter().find(|path| path.symlink_metadata().is_ok())?;
    if pointer.is_file() { resolve_pointer(&pointer) } else { pointer.canonicalize().ok() }
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

/// Returns whether a git directory, such as a submodule's, names this working tree.
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
    fn what_git_obeys_in_submodules_and_other_worktrees_is_fixed_or_guarded() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let git = root.join(".git");
        let (module, nested) = (git.join("modules/libs/foo"), git.join("modules/a/modules/b"));
        for path in [&git, &module, &nested, &git.join("modules/a")] {
            git_dir(path);
        }
        let other = git.join("worktrees/w");
        git_dir(&other);
        fs::write(other.join("commondir"), "../..\n").unwrap();
        let found = of(&root);
        for path in [module.join("config"), nested.join("hooks"), other.join("commondir")] {
            assert!(found.fixed.contains(&path), "{}: {found:?}", path.display());
        }
        let list = git.join("objects/info/alternates");
        for path in
            [git.join("commondir"), git.join("config.worktree"), nested.join("commondir"), list]
        {
            assert!(found.guarded.iter().any(|it| it.path == path), "{}", path.display());
        }
        assert!(found.fixed.contains(&git.join(STUDIO)));
        fs::rename(&git, root.join(".real")).unwrap();
        std::os::unix::fs::symlink(".real", &git).unwrap();
        let found = of(&root);
        assert!(found.fixed.contains(&root.join(".real/config")));
        let link = GuardedPath { path: git, link: Some(".real".into()) };
        assert!(found.guarded.contains(&link) && found.write == [root.join(".real")]);
    }

    #[test]
    fn logins_are_removed_from_a_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        let cleaned = |text: &str| {
            fs::write(&file, text).unwrap();
            without_logins(&file)
        };
        for text in [
            "[remote \"o\"]\n\turl = https://example.com/a.git\n",
            "[remote \"o\"]\n\turl = git@example.com:a.git\n\tfetch = +refs/*:refs/*\n",
            "[remote \"o\"]\n\turl = ssh://git@example.com/a.git",
        ] {
            assert_eq!(cleaned(text), None, "{text}");
        }
        for (text, kept) in [
            ("\turl = https://me:x@example.com/a.git\n", "\turl = https://example.com/a.git\n"),
            ("\turl = https://tok@a.b/c?x=@y\n", "\turl = https://a.b/c?x=@y\n"),
            ("[url \"http://u:p@h/\"]\n", "[url \"http://h/\"]\n"),
            ("[http]\n\textraHeader = Authorization: Basic eA==\n", "[http]\n"),
            ("a\n\thelper = !echo password=x\nb", "a\nb"),
        ] {
            assert_eq!(cleaned(text).as_deref(), Some(kept), "{text}");
        }
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
