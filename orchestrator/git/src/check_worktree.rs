//! Worktrees for checking merged work: like a session's, without a branch. Files and git directory
//! are recreated for each use, because earlier checks could write both.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::thread::JoinHandle;

use base::failure::{Failure, OrFail, Result};
use base::files::step;
use base::id::Id;
use base::lock::Lock;

use crate::names::{self, BranchName, BranchTemplate, WorktreeTemplate};
use crate::repo::Repository;
use crate::safe_open::SafeDir;
use crate::session_repo::{self, Originals, SessionRepo};
use crate::{gc, submodules, worktree, worktreeinclude};

/// Maximum number of check worktrees in use at the same time.
const MAX_SLOTS: u32 = 64;
/// The file of a slot that is locked while it is used.
const LOCK_FILE: &str = "lock";
/// The file that records the worktree of a slot; studio may remove that path.
const PATH_FILE: &str = "worktree";
/// The file that names the tree whose checks all passed in the slot's worktree, which is unchanged since.
const PASSED_FILE: &str = "passed";
/// The directories of a slot, besides the worktree, that its checks may write.
const WRITABLE_DIRS: [&str; 3] = ["git", "tmp", "cache"];

/// A check worktree that is reserved until this value is dropped.
#[derive(Debug)]
pub struct CheckWorktree {
    /// Its paths; id and branch belong to no session.
    pub session_repo: SessionRepo,
    /// The temporary directory of its checks; not created yet.
    pub temporary: PathBuf,
    /// The build caches of its checks; not created yet.
    pub caches: PathBuf,
    /// Files that `.worktreeinclude` names and that were not copied, as relative paths.
    pub not_copied: Vec<PathBuf>,
    removal: Option<JoinHandle<()>>,
    _lock: Lock,
}

impl CheckWorktree {
    /// Records that all checks of a tree passed here, so that sessions may copy what they have built.
    /// The processes of the checks must have ended.
    pub fn record_passed(&self, tree: &str) -> io::Result<()> {
        match self.session_repo.git_dir.parent() {
            Some(dir) => base::files::replace(&dir.join(PASSED_FILE), tree.as_bytes()),
            None => Ok(()),
        }
    }
}

/// A check worktree whose checks all passed. It is not used again before this value is dropped.
#[derive(Debug)]
pub struct PassedWorktree {
    /// Its files, with what its setup and its checks have written.
    pub worktree: PathBuf,
    /// The tree that was checked.
    pub tree: String,
    _lock: Lock,
}

impl Drop for CheckWorktree {
    fn drop(&mut self) {
        // If the removal is incomplete, the next use of the slot finishes it.
        let _ = self.removal.take().map(JoinHandle::join);
    }
}

/// The remains of an earlier use of a slot, renamed.
struct StaleWorktree {
    worktree: PathBuf,
    writable: Vec<PathBuf>,
}

/// Parses the value of `[studio] check_caches` or `caches`: ignored directories that are kept between
/// check runs, or copied for sessions. Paths that could lead out of the worktree are refused (2).
pub fn parse_kept_paths(key: &str, configured: &[String]) -> Result<Vec<PathBuf>> {
    let parse = |text: &String| {
        let path = PathBuf::from(text.trim_end_matches('/'));
        let is_plain = |part: Component<'_>| match part {
            Component::Normal(name) => !name.eq_ignore_ascii_case(".git"),
            Component::Prefix(_)
            | Component::RootDir
            | Component::CurDir
            | Component::ParentDir => false,
        };
        if path.as_os_str().is_empty() || !path.components().all(is_plain) {
            return Err(Failure::usage(format!("invalid `[studio] {key}`: `{text}`"))
                .because("it must be the relative path of a directory in the worktree")
                .hint(format!("{key} = [\"target\"]")));
        }
        Ok(path)
    };
    configured.iter().map(parse).collect()
}

/// Prepares a free check worktree with exactly the files of a commit, those that `.worktreeinclude`
/// names, and the caches at the `kept` paths. The commit must be in the repository.
pub fn prepare(
    repository: &Repository,
    worktrees: &WorktreeTemplate,
    branches: &BranchTemplate,
    kept_paths: &[PathBuf],
    commit: &str,
) -> Result<CheckWorktree> {
    let (slot, lock) = free_slot(repository)?;
    let dir = slot_dir(repository, slot)?;
    match std::fs::remove_file(dir.join(PASSED_FILE)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).or_fail(cannot),
        Ok(()) | Err(_) => {}
    }
    let session_repo = SessionRepo {
        id: Id::parse(&format!("check-{slot}")).or_fail(cannot)?,
        worktree: worktrees.check_worktree(repository, slot),
        git_dir: dir.join("git"),
        branch: BranchName::parse("studio-check")?,
        base: commit.to_owned(),
    };
    let parent = worktrees.parent(repository);
    let stale = rename_stale(repository, &parent, &session_repo, &dir)?;
    step("check.aside");
    base::files::replace(&dir.join(PATH_FILE), session_repo.worktree.as_os_str().as_bytes())
        .or_fail(cannot)?;
    std::fs::create_dir(&session_repo.worktree).or_fail(cannot)?;
    let originals = Originals::for_session_repo(repository, &session_repo)?;
    let private = session_repo::create(repository, &session_repo, &originals, branches)?;
    // Not made durable: each use prepares the slot again.
    drop(private);
    let write = || -> io::Result<()> {
        SafeDir::open(&session_repo.git_dir)?.write("HEAD", format!("{commit}\n").as_bytes())?;
        SafeDir::open(&session_repo.worktree)?.write(".git", &originals.pointer)
    };
    write().or_fail(cannot)?;
    worktree::check_out(repository, &session_repo, commit)?;
    submodules::populate(repository, &session_repo)?;
    for path in kept_paths {
        move_kept(&stale.worktree, &session_repo.worktree, path)
            .or_fail(|| format!("cannot keep {} for the checks", path.display()))?;
    }
    let included = match &repository.main_checkout {
        Some(checkout) => worktreeinclude::copy(checkout, &session_repo.worktree)?,
        None => worktreeinclude::IncludedFiles::default(),
    };
    Ok(CheckWorktree {
        session_repo,
        temporary: dir.join("tmp"),
        caches: dir.join("cache"),
        not_copied: included.not_copied,
        removal: Some(std::thread::spawn(move || stale.remove())),
        _lock: lock,
    })
}

/// Returns all existing check worktrees.
pub fn all(repository: &Repository) -> Vec<PathBuf> {
    slot_dirs(repository).filter_map(|slot| recorded_worktree(&slot)).collect()
}

/// Returns the check worktrees with the newest of these trees whose checks passed and that nothing uses
/// but other callers of this function; the trees are in the order of their age, newest first.
pub fn passed(repository: &Repository, trees: &[String]) -> Option<PassedWorktree> {
    let age = |tree: &str| trees.iter().position(|it| it == tree);
    let read = |slot: &Path| std::fs::read_to_string(slot.join(PASSED_FILE)).ok();
    let mut slots: Vec<(usize, PathBuf)> =
        slot_dirs(repository).filter_map(|slot| Some((age(&read(&slot)?)?, slot))).collect();
    slots.sort();
    slots.into_iter().find_map(|(age, slot)| {
        let lock = Lock::try_share(&slot.join(LOCK_FILE)).ok().flatten()?;
        // The slot may have been used since.
        let tree = read(&slot).filter(|tree| *tree == trees[age])?;
        Some(PassedWorktree { worktree: recorded_worktree(&slot)?, tree, _lock: lock })
    })
}

fn slot_dir(repository: &Repository, slot: u32) -> Result<PathBuf> {
    Ok(repository.studio_dir()?.join(format!("checks/{slot}")))
}

/// Returns the directories of all slots that were ever used.
fn slot_dirs(repository: &Repository) -> impl Iterator<Item = PathBuf> {
    let slots = std::fs::read_dir(repository.common_dir.join("studio/checks"));
    slots.into_iter().flatten().flatten().map(|slot| slot.path())
}

fn recorded_worktree(slot: &Path) -> Option<PathBuf> {
    let path = std::fs::read(slot.join(PATH_FILE)).ok()?;
    Some(PathBuf::from(OsStr::from_bytes(&path))).filter(|path| path.is_absolute())
}

/// Renames the remains of an earlier use. Nothing in them is opened, because checks could have
/// placed links there.
fn rename_stale(
    repository: &Repository,
    parent_dir: &Path,
    session_repo: &SessionRepo,
    dir: &Path,
) -> Result<StaleWorktree> {
    let parent = session_repo.worktree.parent().unwrap_or(parent_dir);
    worktree::refuse_symlink(parent_dir)?;
    worktree::refuse_symlink(parent)?;
    std::fs::create_dir_all(parent).or_fail(cannot)?;
    if names::is_for_worktrees(repository, parent_dir) {
        let canonical = parent.canonicalize().or_fail(cannot)?;
        if canonical != parent {
            return Err(Failure::refused(format!("{} points elsewhere", parent.display()))
                .because(format!("it is a symlink to {}", canonical.display())));
        }
    }
    let trash = names::trash_of(repository, parent_dir);
    worktree::refuse_symlink(&trash)?;
    let stale = StaleWorktree {
        worktree: free_name(&trash, session_repo.id.as_str()),
        writable: WRITABLE_DIRS.iter().map(|name| free_name(dir, name)).collect(),
    };
    if let Ok(metadata) = session_repo.worktree.symlink_metadata() {
        let recorded = std::fs::read(dir.join(PATH_FILE)).unwrap_or_default();
        let is_ours = recorded == session_repo.worktree.as_os_str().as_bytes()
            || names::is_for_worktrees(repository, parent_dir);
        if !is_ours || !metadata.is_dir() {
            return Err(Failure::refused(format!("{} exists", session_repo.worktree.display()))
                .because("studio runs the checks of merged work there, and did not create it")
                .hint("move it away, or set `[studio] worktree`"));
        }
        std::fs::create_dir_all(&trash).or_fail(cannot)?;
        std::fs::rename(&session_repo.worktree, &stale.worktree).or_fail(cannot)?;
    }
    for (name, renamed) in WRITABLE_DIRS.iter().zip(&stale.writable) {
        let current = dir.join(name);
        if current.symlink_metadata().is_ok() {
            std::fs::rename(&current, renamed).or_fail(cannot)?;
        }
    }
    Ok(stale)
}

/// Returns a name for a renamed directory, after removing the remains of an interrupted removal.
fn free_name(dir: &Path, name: &str) -> PathBuf {
    let prefix = format!("{name}.");
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name_found = entry.file_name().to_string_lossy().into_owned();
        if name_found.starts_with(&prefix) && name_found.ends_with(gc::EMPTIED_SUFFIX) {
            gc::remove(&entry.path());
        }
    }
    // A directory that cannot be removed keeps its name and blocks nothing.
    let mut names = (0..).map(|n| dir.join(format!("{prefix}{n}{}", gc::EMPTIED_SUFFIX)));
    names.find(|path| path.symlink_metadata().is_err()).expect("numbers do not end")
}

impl StaleWorktree {
    fn remove(&self) {
        let paths = self.writable.iter().chain([&self.worktree]);
        for path in paths.filter(|path| path.symlink_metadata().is_ok()) {
            gc::remove(path);
        }
    }
}

/// Moves a directory from the old worktree to the new one, unless the commit has something at its
/// path. Follows no symlink on either side.
fn move_kept(old: &Path, new: &Path, path: &Path) -> io::Result<()> {
    if old.symlink_metadata().is_err() {
        return Ok(());
    }
    let (mut source, mut target) = (SafeDir::open(old)?, SafeDir::open(new)?);
    let parts: Vec<&OsStr> = path.iter().collect();
    let Some((last, parents)) = parts.split_last() else { return Ok(()) };
    for part in parents {
        let name = part.to_string_lossy();
        let Some(source_dir) = source.open_existing(&name)? else { return Ok(()) };
        let Some(target_dir) = target.open_or_create_if_free(&name)? else { return Ok(()) };
        (source, target) = (source_dir, target_dir);
    }
    let name = last.to_string_lossy();
    match source.open_existing(&name)? {
        Some(_) => source.move_to(&name, &target),
        None => Ok(()),
    }
}

fn free_slot(repository: &Repository) -> Result<(u32, Lock)> {
    for slot in 1..=MAX_SLOTS {
        let dir = slot_dir(repository, slot)?;
        std::fs::create_dir_all(&dir).or_fail(cannot)?;
        if let Some(lock) = Lock::try_take(&dir.join(LOCK_FILE)).or_fail(cannot)? {
            return Ok((slot, lock));
        }
    }
    Err(Failure::refused(format!("{MAX_SLOTS} checks are running at the same time"))
        .hint("try again"))
}

fn cannot() -> &'static str {
    "cannot prepare the worktree for the checks"
}
