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
use crate::{gc, worktree, worktreeinclude};

/// Maximum number of check worktrees in use at the same time.
const MOST: u32 = 64;
/// The file that records the worktree of a slot; studio may remove that path.
const MADE: &str = "worktree";
/// The directories of a slot, besides the worktree, that its checks may write.
const WRITABLE: [&str; 3] = ["git", "tmp", "cache"];

/// A check worktree that is reserved until this value is dropped.
#[derive(Debug)]
pub struct CheckWorktree {
    /// Its paths; id and branch belong to no session.
    pub place: SessionRepo,
    /// The temporary directory of its checks; not created yet.
    pub temporary: PathBuf,
    /// The build caches of its checks; not created yet.
    pub caches: PathBuf,
    /// Files that `.worktreeinclude` names and that were not copied, as relative paths.
    pub withheld: Vec<PathBuf>,
    removal: Option<JoinHandle<()>>,
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

/// Parses the value of `[studio] check_caches`: ignored directories that are kept between check
/// runs. Paths that could lead out of the worktree are refused (2).
pub fn kept_paths(listed: &[String]) -> Result<Vec<PathBuf>> {
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
            return Err(Failure::usage(format!("invalid `[studio] check_caches`: `{text}`"))
                .because("it must be the relative path of a directory in the worktree")
                .hint("check_caches = [\"target\"]"));
        }
        Ok(path)
    };
    listed.iter().map(parse).collect()
}

/// Prepares a free check worktree with exactly the files of a commit, those that `.worktreeinclude`
/// names, and the caches at the `kept` paths. The commit must be in the repository.
pub fn prepare(
    repository: &Repository,
    worktrees: &WorktreeTemplate,
    branches: &BranchTemplate,
    kept: &[PathBuf],
    commit: &str,
) -> Result<CheckWorktree> {
    let (slot, lock) = free_slot(repository)?;
    let dir = repository.studio_dir()?.join(format!("checks/{slot}"));
    let place = SessionRepo {
        id: Id::parse(&format!("check-{slot}")).or_fail(cannot)?,
        worktree: worktrees.check_worktree(repository, slot),
        git_dir: dir.join("git"),
        branch: BranchName::parse("studio-check")?,
        base: commit.to_owned(),
    };
    let top = worktrees.parent(repository);
    let old = put_aside(repository, &top, &place, &dir)?;
    step("check.aside");
    base::files::replace(&dir.join(MADE), place.worktree.as_os_str().as_bytes()).or_fail(cannot)?;
    std::fs::create_dir(&place.worktree).or_fail(cannot)?;
    let originals = Originals::for_place(repository, &place)?;
    session_repo::make(repository, &place, &originals, branches)?;
    let write = || -> io::Result<()> {
        SafeDir::open(&place.git_dir)?.write("HEAD", format!("{commit}\n").as_bytes())?;
        SafeDir::open(&place.worktree)?.write(".git", &originals.pointer)
    };
    write().or_fail(cannot)?;
    worktree::check_out(&place, commit)?;
    for path in kept {
        keep(&old.worktree, &place.worktree, path)
            .or_fail(|| format!("cannot keep {} for the checks", path.display()))?;
    }
    let included = match &repository.main_checkout {
        Some(checkout) => worktreeinclude::copy(checkout, &place.worktree)?,
        None => worktreeinclude::IncludedFiles::default(),
    };
    Ok(CheckWorktree {
        place,
        temporary: dir.join("tmp"),
        caches: dir.join("cache"),
        withheld: included.withheld,
        removal: Some(std::thread::spawn(move || old.remove())),
        _lock: lock,
    })
}

/// Returns all existing check worktrees.
pub fn all(repository: &Repository) -> Vec<PathBuf> {
    let slots = std::fs::read_dir(repository.common_dir.join("studio/checks"));
    let made = slots.into_iter().flatten().flatten().filter_map(|slot| {
        let path = std::fs::read(slot.path().join(MADE)).ok()?;
        Some(PathBuf::from(OsStr::from_bytes(&path)))
    });
    made.filter(|path| path.is_absolute()).collect()
}

/// Renames the remains of an earlier use. Nothing in them is opened, because checks could have
/// placed links there.
fn put_aside(
    repository: &Repository,
    top: &Path,
    place: &SessionRepo,
    dir: &Path,
) -> Result<StaleWorktree> {
    let parent = place.worktree.parent().unwrap_or(top);
    worktree::refuse_symlink(top)?;
    worktree::refuse_symlink(parent)?;
    std::fs::create_dir_all(parent).or_fail(cannot)?;
    if names::is_for_worktrees(repository, top) {
        let real = parent.canonicalize().or_fail(cannot)?;
        if real != parent {
            return Err(Failure::refused(format!("{} points elsewhere", parent.display()))
                .because(format!("it is a symlink to {}", real.display())));
        }
    }
    let trash = names::trash_of(repository, top);
    worktree::refuse_symlink(&trash)?;
    let old = StaleWorktree {
        worktree: aside(&trash, place.id.as_str()),
        writable: WRITABLE.iter().map(|name| aside(dir, name)).collect(),
    };
    if let Ok(found) = place.worktree.symlink_metadata() {
        let made = std::fs::read(dir.join(MADE)).unwrap_or_default();
        let is_ours = made == place.worktree.as_os_str().as_bytes()
            || names::is_for_worktrees(repository, top);
        if !is_ours || !found.is_dir() {
            return Err(Failure::refused(format!("{} exists", place.worktree.display()))
                .because("studio runs the checks of merged work there, and did not create it")
                .hint("move it away, or set `[studio] worktree`"));
        }
        std::fs::create_dir_all(&trash).or_fail(cannot)?;
        std::fs::rename(&place.worktree, &old.worktree).or_fail(cannot)?;
    }
    for (name, aside) in WRITABLE.iter().zip(&old.writable) {
        let found = dir.join(name);
        if found.symlink_metadata().is_ok() {
            std::fs::rename(&found, aside).or_fail(cannot)?;
        }
    }
    Ok(old)
}

/// Returns a name for a renamed directory, after removing the remains of an interrupted removal.
fn aside(dir: &Path, name: &str) -> PathBuf {
    let begin = format!("{name}.");
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let found = entry.file_name().to_string_lossy().into_owned();
        if found.starts_with(&begin) && found.ends_with(gc::EMPTIED) {
            gc::remove(&entry.path());
        }
    }
    // A directory that cannot be removed keeps its name and blocks nothing.
    let mut names = (0..).map(|n| dir.join(format!("{begin}{n}{}", gc::EMPTIED)));
    names.find(|path| path.symlink_metadata().is_err()).expect("numbers do not end")
}

impl StaleWorktree {
    fn remove(&self) {
        let all = self.writable.iter().chain([&self.worktree]);
        for path in all.filter(|path| path.symlink_metadata().is_ok()) {
            gc::remove(path);
        }
    }
}

/// Moves a directory from the old worktree to the new one, unless the commit has something at its
/// path. Follows no symlink on either side.
fn keep(old: &Path, new: &Path, path: &Path) -> io::Result<()> {
    if old.symlink_metadata().is_err() {
        return Ok(());
    }
    let (mut from, mut to) = (SafeDir::open(old)?, SafeDir::open(new)?);
    let parts: Vec<&OsStr> = path.iter().collect();
    let Some((last, parents)) = parts.split_last() else { return Ok(()) };
    for part in parents {
        let name = part.to_string_lossy();
        let Some(inner) = from.existing(&name)? else { return Ok(()) };
        let Some(made) = to.existing_or_made(&name)? else { return Ok(()) };
        (from, to) = (inner, made);
    }
    let name = last.to_string_lossy();
    match from.existing(&name)? {
        Some(_) => from.move_to(&name, &to),
        None => Ok(()),
    }
}

fn free_slot(repository: &Repository) -> Result<(u32, Lock)> {
    for slot in 1..=MOST {
        let dir = repository.studio_dir()?.join(format!("checks/{slot}"));
        std::fs::create_dir_all(&dir).or_fail(cannot)?;
        if let Some(lock) = Lock::try_take(&dir.join("lock")).or_fail(cannot)? {
            return Ok((slot, lock));
        }
    }
    Err(Failure::refused(format!("{MOST} checks are running at the same time")).hint("try again"))
}

fn cannot() -> &'static str {
    "cannot prepare the worktree for the checks"
}
