//! The user's checkouts of a branch: finds them, locks their indexes, and compares the commits that
//! their files move between.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::git::Git;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::names::BranchName;
use crate::repo::Repository;
use crate::sparse::{self, SparsePatterns};
use crate::stored_index::StoredIndex;
use crate::{index, refs, repo, tree_diff, worktree};

/// The start of the content of studio's index locks; the operation's id follows.
const LOCK_PREFIX: &str = "studio ";

/// A working tree of the user: the main checkout or a linked worktree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkout {
    /// The directory of its files.
    pub worktree: PathBuf,
    /// Its own git directory (HEAD and index).
    pub git_dir: PathBuf,
}

impl Checkout {
    /// Returns the checkout of a directory with a `.git`.
    pub(crate) fn at(worktree: &Path) -> Result<Checkout> {
        let repo = repo::open_any(worktree);
        let repo = repo.or_fail(|| format!("cannot open {}", worktree.display()))?;
        Ok(Checkout { worktree: worktree.to_owned(), git_dir: repo.path().to_owned() })
    }

    /// Returns the kind of its repository's object ids.
    pub(crate) fn object_format(&self) -> Result<git2::ObjectFormat> {
        Ok(open_as_is(self)?.object_format())
    }
}

/// A path that a landing changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// Relative to the working tree.
    pub path: PathBuf,
    /// Content and mode before the landing.
    pub before: Option<FileEntry>,
    /// Content and mode after the landing.
    pub after: Option<FileEntry>,
}

impl FileChange {
    /// Returns its path, and its mode after the landing.
    pub(crate) fn path_and_mode(&self) -> (&Path, Option<u32>) {
        (&self.path, self.after.map(|entry| entry.mode))
    }

    /// Returns the change that undoes this one.
    pub(crate) fn reversed(&self) -> FileChange {
        FileChange { path: self.path.clone(), before: self.after, after: self.before }
    }
}

/// The entry of a path in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// The blob (or, for a submodule, the commit).
    pub id: git2::Oid,
    /// The mode, as in a tree.
    pub mode: u32,
}

/// The lock of an index. Dropping it releases the lock, unless the file is no longer the same.
#[derive(Debug)]
pub(crate) struct IndexLock {
    path: PathBuf,
    file: fs::File,
}

impl Drop for IndexLock {
    fn drop(&mut self) {
        let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let own = self.file.metadata().map(identity).ok();
        if own.is_some() && own == self.path.symlink_metadata().map(identity).ok() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns all checkouts of a branch. Refuses (3) if one of them is in the middle of an operation
/// that a moving branch would confuse.
pub(crate) fn of_branch(repository: &Repository, target: &BranchName) -> Result<Vec<Checkout>> {
    let mut checkouts = Vec::new();
    for checkout in all(repository)? {
        refuse_busy(&checkout, target)?;
        if is_head_on(&checkout.git_dir, target) {
            refuse_merging(&checkout, target)?;
            checkouts.push(checkout);
        }
    }
    Ok(checkouts)
}

/// Returns all working trees of the user, without those of sessions.
pub fn all(repository: &Repository) -> Result<Vec<Checkout>> {
    let mut checkouts = Vec::new();
    if let Some(worktree) = &repository.main_checkout {
        let git_dir = repository.common_dir.clone();
        checkouts.push(Checkout { worktree: worktree.clone(), git_dir });
    }
    for git_dir in worktree::admin_dirs(repository)? {
        let worktree = worktree::worktree_of(&git_dir);
        let canonical = git_dir.canonicalize().ok();
        // A git directory that leads elsewhere belongs to a session; one that leads nowhere may be
        // the user's.
        if !worktree.is_dir()
            || worktree::pointer_target(&git_dir)
                .is_some_and(|target_dir| Some(target_dir) != canonical)
        {
            continue;
        }
        checkouts.push(Checkout { worktree, git_dir });
    }
    Ok(checkouts)
}

/// Returns the user's checkout in which the search for the repository started. Refuses (3) a
/// session's worktree and a bare repository.
pub fn current(repository: &Repository) -> Result<Checkout> {
    if let Some(session) = &repository.session {
        return Err(Failure::refused("this is a session's worktree, not a checkout of yours")
            .because(format!("it belongs to `{session}`"))
            .hint("run the command in your own checkout: studio -C DIR …"));
    }
    let worktree = repository.current_checkout().ok_or_else(|| {
        Failure::refused("a bare repository has no checkout")
            .hint("git worktree add ../checkout, then run the command there")
    })?;
    Ok(Checkout { worktree, git_dir: repository.checkout_git_dir.clone() })
}

/// Returns whether the HEAD in a git directory is on a branch.
pub(crate) fn is_head_on(git_dir: &Path, target: &BranchName) -> bool {
    refs::head_branch(git_dir).as_deref() == Some(target.full().as_str())
}

/// Refuses if the checkout is being rebased or bisected: both detach HEAD and return to the branch
/// at their end.
fn refuse_busy(checkout: &Checkout, target: &BranchName) -> Result<()> {
    let is_named_in = |file: &str| {
        let text = fs::read_to_string(checkout.git_dir.join(file)).unwrap_or_default();
        let name = text.trim();
        name == target.as_str() || name == target.full()
    };
    let operation =
        if is_named_in("rebase-merge/head-name") || is_named_in("rebase-apply/head-name") {
            "rebased"
        } else if is_named_in("BISECT_START") {
            "bisected"
        } else {
            return Ok(());
        };
    Err(Failure::refused(format!("`{target}` is being {operation}"))
        .because(format!("in {}", checkout.worktree.display()))
        .hint("finish or abort that first"))
}

fn refuse_merging(checkout: &Checkout, target: &BranchName) -> Result<()> {
    let state_files = ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-apply"];
    let exists = |name: &&&str| refs::has_own_ref(&checkout.git_dir, name);
    let Some(state_file) = state_files.iter().find(exists) else {
        return Ok(());
    };
    Err(Failure::refused(format!("a merge into `{target}` is not finished"))
        .because(format!("{} is there", checkout.git_dir.join(state_file).display()))
        .hint("finish it (`git commit`) or abort it (`git merge --abort`) first"))
}

/// Locks the index of a checkout. Refuses (3) if it is locked.
pub(crate) fn lock_index(checkout: &Checkout, operation: &str) -> Result<IndexLock> {
    let path = checkout.git_dir.join("index.lock");
    match create_lock(&path, format!("{LOCK_PREFIX}{operation}\n").as_bytes()) {
        Ok(file) => Ok(IndexLock { path, file }),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            Err(Failure::refused("another git process is running in the checkout")
                .because(format!("{} exists", path.display()))
                .hint("wait for it, then try again")
                .hint(format!("if no git is running: rm '{}'", path.display())))
        }
        Err(e) => Err(Failure::failed(format!("cannot write {}", path.display())).because(e)),
    }
}

/// Creates a lock file, where the file system can with its content at once: an empty one that a kill
/// left would not be known as studio's. Fails if there is one.
fn create_lock(path: &Path, content: &[u8]) -> io::Result<fs::File> {
    match create_complete(path, content) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o644).open(path)?;
            let written = io::Write::write_all(&mut file, content);
            written.inspect_err(|_| drop(fs::remove_file(path)))?;
            Ok(file)
        }
        result => result,
    }
}

/// Creates a file that has no name until its content is written. Not every file system can.
#[cfg(target_os = "linux")]
fn create_complete(path: &Path, content: &[u8]) -> io::Result<fs::File> {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags};

    let directory = path.parent().ok_or(io::ErrorKind::NotFound)?;
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file = fs::File::from(rustix::fs::open(directory, flags, Mode::from(0o644))?);
    io::Write::write_all(&mut file, content)?;
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
    Ok(file)
}

#[cfg(not(target_os = "linux"))]
fn create_complete(_: &Path, _: &[u8]) -> io::Result<fs::File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Locks the index of a checkout, and replaces a lock that a killed studio left. Only called under
/// the operation lock, which guarantees that no other studio holds it.
pub(crate) fn relock_index(checkout: &Checkout, operation: &str) -> Result<IndexLock> {
    remove_stale_lock(checkout);
    lock_index(checkout, operation)
}

/// Removes an index lock that a killed studio left. Only called under the operation lock.
pub(crate) fn remove_stale_lock(checkout: &Checkout) -> bool {
    let path = checkout.git_dir.join("index.lock");
    let is_ours = fs::read_to_string(&path).is_ok_and(|text| text.starts_with(LOCK_PREFIX));
    is_ours && fs::remove_file(path).is_ok()
}

/// Returns the differences between two commits, one per path.
pub(crate) fn changes(
    repo: &git2::Repository,
    before: &str,
    after: &str,
) -> Result<Vec<FileChange>> {
    tree_changes(repo, &tree_of(repo, before)?, &tree_of(repo, after)?)
}

/// Returns the differences between two trees, one per path.
pub(crate) fn tree_changes(
    repo: &git2::Repository,
    before: &git2::Tree<'_>,
    after: &git2::Tree<'_>,
) -> Result<Vec<FileChange>> {
    let diff = tree_diff::diff_trees(repo, Some(before), Some(after), git2::DiffOptions::new())
        .or_fail(|| "cannot compare the commits")?;
    let mut changes: BTreeMap<PathBuf, FileChange> = BTreeMap::new();
    for delta in diff.deltas() {
        for (file, is_after) in [(delta.old_file(), false), (delta.new_file(), true)] {
            let mode = u32::from(file.mode());
            let Some(bytes) = file.path_bytes().filter(|_| !file.id().is_zero()) else { continue };
            let path = PathBuf::from(OsStr::from_bytes(bytes));
            let entry = Some(FileEntry { id: file.id(), mode });
            let change = changes.entry(path.clone()).or_insert(FileChange {
                path,
                before: None,
                after: None,
            });
            if is_after { change.after = entry } else { change.before = entry }
        }
    }
    Ok(changes.into_values().collect())
}

/// Returns what blocks the way to a path: a file instead of a directory, or a symlink, which may
/// lead to unrelated files.
pub(crate) fn find_obstacle(worktree: &Path, path: &Path) -> Option<PathBuf> {
    let parents = path.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty());
    let is_obstacle = |dir: &&Path| {
        worktree.join(dir).symlink_metadata().is_ok_and(|metadata| !metadata.is_dir())
    };
    parents.filter(is_obstacle).last().map(Path::to_owned)
}

/// Returns the changes that are written as files: all except those outside of a sparse checkout.
pub(crate) fn written_changes(
    checkout: &Checkout,
    index: &git2::Index,
    changes: &[FileChange],
) -> Result<Vec<FileChange>> {
    let patterns = SparsePatterns::of_checkout(&checkout.git_dir)?;
    let is_excluded = |change: &&FileChange| {
        index::is_excluded(index, &checkout.worktree, patterns.as_ref(), change.path_and_mode())
    };
    Ok(changes.iter().filter(|change| !is_excluded(change)).cloned().collect())
}

/// Restricts a checkout to the paths of the changes.
pub(crate) fn limit_paths(builder: &mut git2::build::CheckoutBuilder<'_>, changes: &[FileChange]) {
    builder.disable_pathspec_match(true);
    for change in changes {
        builder.path(change.path.as_os_str().as_bytes());
    }
}

/// Opens a checkout, with an index that libgit2 can read: see [`open_index`].
pub(crate) fn open(checkout: &Checkout) -> Result<git2::Repository> {
    let repo = open_as_is(checkout)?;
    if may_need_rewriting(&checkout.git_dir) {
        repo.set_index(&mut open_index(checkout)?).or_fail(|| cannot_open(checkout))?;
    }
    Ok(repo)
}

fn open_as_is(checkout: &Checkout) -> Result<git2::Repository> {
    repo::open_any(&checkout.worktree).or_fail(|| cannot_open(checkout))
}

fn cannot_open(checkout: &Checkout) -> String {
    format!("cannot open {}", checkout.worktree.display())
}

/// Opens a checkout with its index, which was read before: reading it takes long in a large one.
pub(crate) fn open_with(checkout: &Checkout, index: &mut git2::Index) -> Result<git2::Repository> {
    let repo = open_as_is(checkout)?;
    repo.set_index(index).or_fail(|| cannot_open(checkout))?;
    Ok(repo)
}

/// A working tree opened to write files. libgit2 reads HEAD before it does so: where HEAD is in a
/// reftable, it gets a temporary git directory with HEAD as a file.
pub(crate) struct WritableTree {
    /// The repository, with the index for this.
    pub repo: git2::Repository,
    _directory: Option<TempDir>,
}

impl WritableTree {
    /// Opens the working tree of a git directory, with this index.
    pub(crate) fn open(
        git_dir: &Path,
        worktree: &Path,
        index: &mut git2::Index,
    ) -> Result<WritableTree> {
        let fail = || format!("cannot open {}", worktree.display());
        let directory = directory_with_head(git_dir).or_fail(fail)?;
        let repo = repo::open_any(directory.as_ref().map_or(git_dir, TempDir::path));
        let repo = repo.or_fail(fail)?;
        repo.set_workdir(worktree, false).and_then(|()| repo.set_index(index)).or_fail(fail)?;
        Ok(WritableTree { repo, _directory: directory })
    }
}

/// Makes a git directory as git does for a linked worktree, whose HEAD is a commit; `None` if HEAD
/// of this one is a file.
fn directory_with_head(git_dir: &Path) -> io::Result<Option<TempDir>> {
    if !refs::is_head_in_table(git_dir) {
        return Ok(None);
    }
    let repo = repo::open_any(git_dir).map_err(io::Error::other)?;
    let head = refs::head(&repo).map_err(io::Error::other)?.id;
    let head = head.map_or_else(|| "ref: refs/heads/none".to_owned(), |id| id.to_string());
    let parent = repo.commondir().join("studio/scratch");
    fs::create_dir_all(&parent)?;
    let directory = tempfile::Builder::new().prefix("h").tempdir_in(parent)?;
    fs::write(directory.path().join("HEAD"), format!("{head}\n"))?;
    let common_dir = [repo.commondir().as_os_str().as_bytes(), b"\n"].concat();
    fs::write(directory.path().join("commondir"), common_dir)?;
    fs::create_dir(directory.path().join("info"))?;
    for name in ["config.worktree", sparse::PATTERNS_FILE] {
        match fs::copy(git_dir.join(name), directory.path().join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(Some(directory))
}

/// Opens the index of a checkout. If libgit2 cannot read it (a split index, or one with the directories
/// of a sparse checkout), git rewrites a copy, which is deleted: do not write this one.
pub(crate) fn open_index(checkout: &Checkout) -> Result<git2::Index> {
    let format = checkout.object_format()?;
    if let Ok(index) = git2::Index::open_ext(&checkout.git_dir.join("index"), format) {
        return Ok(index);
    }
    let directory = tempfile::tempdir().or_fail(|| "cannot make a temporary directory")?;
    copy_index(checkout, &directory.path().join("index"))
}

/// Copies the index of a checkout with its modification time, by which git knows which entries it must
/// verify, and opens the copy. Git rewrites it if libgit2 cannot read it. Refuses (3) one that git
/// cannot read either.
pub(crate) fn copy_index(checkout: &Checkout, copy: &Path) -> Result<git2::Index> {
    let path = checkout.git_dir.join("index");
    copy_with_time(&path, copy).or_fail(|| format!("cannot copy {}", path.display()))?;
    let format = checkout.object_format()?;
    if let Ok(index) = git2::Index::open_ext(copy, format) {
        return Ok(index);
    }
    let git = Git::at(&checkout.git_dir).with_work_tree(&checkout.worktree);
    index::rewrite(&git, copy, format).map_err(|failure| {
        let failure = Failure::refused(format!("cannot read the index {}", path.display()))
            .because(failure.into_cause());
        failure.hint("git status    whether git can read it")
    })
}

fn copy_with_time(source: &Path, target: &Path) -> io::Result<()> {
    match fs::copy(source, target) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    let modified = fs::metadata(source)?.modified()?;
    fs::File::options().write(true).open(target)?.set_modified(modified)
}

/// Returns whether the index of a checkout may be one that libgit2 cannot read: it has shared parts, or
/// the checkout is sparse.
fn may_need_rewriting(git_dir: &Path) -> bool {
    let names = fs::read_dir(git_dir).into_iter().flatten().flatten().map(|it| it.file_name());
    let mut names = names.filter(|name| name.as_bytes().starts_with(b"sharedindex."));
    git_dir.join(sparse::PATTERNS_FILE).exists() || names.next().is_some()
}

/// Refuses a repository in which nothing could land on the branch, because the index of the main
/// checkout or of a checkout of the branch cannot be read.
pub fn refuse_unreadable(repository: &Repository, target: Option<&BranchName>) -> Result<()> {
    for checkout in all(repository)? {
        let is_main = checkout.git_dir == repository.common_dir;
        if is_main || target.is_some_and(|target| is_head_on(&checkout.git_dir, target)) {
            let path = checkout.git_dir.join("index");
            if !matches!(StoredIndex::read(&path, checkout.object_format()?), Ok(Some(_)))
                && path.exists()
            {
                open_index(&checkout)?;
            }
        }
    }
    Ok(())
}

/// Returns the tree of a commit.
pub fn tree_of<'repo>(repo: &'repo git2::Repository, commit: &str) -> Result<git2::Tree<'repo>> {
    let id = crate::refs::oid(commit)?;
    repo.find_commit(id).and_then(|commit| commit.tree()).or_fail(|| "cannot read a commit")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_lock_is_never_seen_without_its_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index.lock");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0;
                while !is_over.load(Ordering::Relaxed) {
                    if let Ok(text) = fs::read_to_string(&path) {
                        assert_eq!(text, "studio op1\n");
                        seen += 1;
                    }
                }
                seen
            });
            for _ in 0..5000 {
                let file = create_lock(&path, b"studio op1\n").unwrap();
                let refused = create_lock(&path, b"studio op2\n").unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
                drop(IndexLock { path: path.clone(), file });
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(reader.join().unwrap() > 0);
        });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
