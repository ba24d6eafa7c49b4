//! The files of a trial: the user's files as they were before, byte for byte, and each version of
//! the session's files that was written. A file in the checkout is replaced only while it is one of
//! these.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::files::step;

use crate::checkout::{self, Checkout, FileChange, FileEntry, find_obstacle};
use crate::oplog::OperationLog;
use crate::repo::Repository;
use crate::{commit_attributes, filters};

/// The bits of a mode that make a file executable.
const EXECUTABLE: u32 = 0o111;

/// The saved files of a trial, in `<common directory>/studio/trials/<operation>`.
#[derive(Clone, Debug)]
pub(crate) struct TrialFiles {
    root: PathBuf,
    operation: String,
}

/// A file of a trial that the user changed, and how.
pub(crate) type ChangedPaths = BTreeMap<PathBuf, &'static str>;

/// The content of a path.
#[derive(Clone, Debug)]
enum FileState {
    /// Nothing, or a directory.
    Absent,
    Regular {
        content: Vec<u8>,
        mode: u32,
    },
    Symlink(PathBuf),
    /// A socket, a pipe or a device.
    Special,
}

/// A version of the session's files.
#[derive(Clone, Debug)]
struct FileVersion {
    number: u32,
    /// The paths that it changes, compared with the user's commit.
    paths: BTreeSet<PathBuf>,
}

impl FileState {
    /// Reads a path. What is reached through a symlink is not at this path.
    fn read(root: &Path, path: &Path) -> Result<FileState> {
        let full = root.join(path);
        let fail = || format!("cannot read {}", full.display());
        if find_obstacle(root, path).is_some() {
            return Ok(FileState::Absent);
        }
        let metadata = match full.symlink_metadata() {
            Ok(metadata) => metadata,
            Err(e) if is_missing(&e) => return Ok(FileState::Absent),
            Err(e) => return Err(e).or_fail(fail),
        };
        if metadata.is_symlink() {
            return fs::read_link(&full).map(FileState::Symlink).or_fail(fail);
        }
        if metadata.is_file() {
            let content = fs::read(&full).or_fail(fail)?;
            let mode = metadata.permissions().mode() & 0o7777;
            return Ok(FileState::Regular { content, mode });
        }
        Ok(if metadata.is_dir() { FileState::Absent } else { FileState::Special })
    }

    /// Returns whether git would see the same file.
    fn is_same(&self, other: &FileState) -> bool {
        match (self, other) {
            (FileState::Absent, FileState::Absent) => true,
            (FileState::Symlink(target), FileState::Symlink(other)) => target == other,
            (
                FileState::Regular { content, mode },
                FileState::Regular { content: other_content, mode: other_mode },
            ) => {
                content == other_content
                    && (mode & EXECUTABLE == 0) == (other_mode & EXECUTABLE == 0)
            }
            _ => false,
        }
    }

    /// Returns this file with the permissions that the user gave to an earlier one.
    fn with_permissions_of(self, earlier: &FileState) -> FileState {
        let FileState::Regular { content, mode } = self else { return self };
        let FileState::Regular { mode: earlier, .. } = earlier else {
            return FileState::Regular { content, mode };
        };
        let executable = if mode & EXECUTABLE == 0 { 0 } else { (earlier & 0o444) >> 2 };
        FileState::Regular { content, mode: (earlier & !EXECUTABLE) | executable }
    }
}

impl TrialFiles {
    /// Returns the files of an operation.
    pub(crate) fn of(repository: &Repository, operation: &str) -> TrialFiles {
        let root = repository.common_dir.join("studio/trials").join(operation);
        TrialFiles { root, operation: operation.to_owned() }
    }

    /// Removes everything that was saved.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.root);
    }

    fn before(&self) -> PathBuf {
        self.root.join("before")
    }

    fn directory(&self, version: u32) -> PathBuf {
        self.root.join(version.to_string())
    }

    fn list(&self, version: u32) -> PathBuf {
        self.root.join(format!("{version}.paths"))
    }

    /// Returns the versions, oldest first. During an update there are two.
    fn versions(&self) -> Result<Vec<FileVersion>> {
        let mut versions = Vec::new();
        for entry in fs::read_dir(&self.root).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".paths")?.parse().ok());
            let Some(number) = number else { continue };
            versions.push(FileVersion { number, paths: read_paths(&self.list(number))? });
        }
        versions.sort_by_key(|version| version.number);
        Ok(versions)
    }

    /// Returns all paths that were written.
    pub(crate) fn paths(&self) -> Result<BTreeSet<PathBuf>> {
        Ok(self.versions()?.into_iter().flat_map(|version| version.paths).collect())
    }

    /// Writes the files of a tree into the directory of a new version, with the attributes of the tree.
    /// `repo` is the checkout, and sees the tree; its working tree is afterwards that directory.
    pub(crate) fn stage(
        &self,
        repo: &git2::Repository,
        tree: &git2::Tree<'_>,
        changes: &[FileChange],
    ) -> Result<u32> {
        let number = self.versions()?.last().map_or(1, |version| version.number + 1);
        let fail = || format!("cannot write in {}", self.root.display());
        let directory = self.directory(number);
        // It may be left from a killed process.
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).or_fail(fail)?;
        let written: Vec<FileChange> =
            changes.iter().filter(|change| change.after.is_some()).cloned().collect();
        if !written.is_empty() {
            let _keep_alive = filters::keep_alive();
            commit_attributes::apply_to(repo, tree, &directory).or_fail(fail)?;
            let mut builder = git2::build::CheckoutBuilder::new();
            checkout::limit_paths(&mut builder, &written);
            // The index is not a file.
            builder.force().update_index(false).refresh(false);
            repo.checkout_tree(tree.as_object(), Some(&mut builder))
                .map_err(|error| filters::failure(fail(), &error))?;
        }
        for change in &written {
            if let FileState::Absent = FileState::read(&directory, &change.path)? {
                return Err(Failure::failed(fail())
                    .because(format!("git did not write {}", change.path.display())));
            }
        }
        Ok(number)
    }

    /// Records a version, so that its files count as the trial's. Call it before they are written.
    pub(crate) fn add_version(&self, number: u32, changes: &[FileChange]) -> Result<()> {
        let paths = changes.iter().map(|change| change.path.as_path());
        write_paths(&self.list(number), paths)?;
        step("try.version");
        Ok(())
    }

    /// Saves the user's files at paths that the trial has not written yet.
    pub(crate) fn save(&self, worktree: &Path, changes: &[FileChange]) -> Result<()> {
        let fail = || format!("cannot save your files in {}", self.root.display());
        fs::create_dir_all(self.before()).or_fail(fail)?;
        let created_list = self.root.join("created");
        let mut created = read_paths(&created_list)?;
        for change in changes {
            let state = FileState::read(worktree, &change.path)?;
            let copy = self.before().join(&change.path);
            let _ = fs::remove_file(&copy);
            put(&copy, &state, &copy.with_file_name(self.temporary_name())).or_fail(fail)?;
            if let FileState::Regular { .. } = state {
                fs::File::open(&copy).and_then(|file| file.sync_all()).or_fail(fail)?;
            }
            let parents = change.path.ancestors().skip(1).filter(|dir| *dir != Path::new(""));
            created.extend(
                parents.filter(|dir| !is_directory(&worktree.join(dir))).map(Path::to_owned),
            );
        }
        write_paths(&created_list, created.iter().map(PathBuf::as_path))?;
        step("try.saved");
        Ok(())
    }

    /// Returns the files of the trial that the user changed or staged since they were written.
    pub(crate) fn find_changed(&self, checkout: &Checkout, head: &str) -> Result<ChangedPaths> {
        let mut changed = ChangedPaths::new();
        let versions = self.versions()?;
        let paths: BTreeSet<&PathBuf> =
            versions.iter().flat_map(|version| &version.paths).collect();
        if paths.is_empty() || !checkout.worktree.is_dir() {
            return Ok(changed);
        }
        let repo = checkout::open(checkout)?;
        let tree = checkout::tree_of(&repo, head)?;
        let index = checkout::open_index(checkout)?;
        for path in paths {
            let current = FileState::read(&checkout.worktree, path)?;
            let staged = index.get_path(path, 0);
            let staged = staged.map(|entry| FileEntry { id: entry.id, mode: entry.mode });
            let has_conflict = (1..=3).any(|stage| index.get_path(path, stage).is_some());
            if has_conflict || staged != entry_in(&tree, path) {
                changed.insert(path.clone(), "staged or committed since it was tried");
            } else if !self.is_own(&versions, path, &current)? {
                changed.insert(path.clone(), "changed since it was tried");
            }
        }
        Ok(changed)
    }

    /// Returns whether a file is as the user had it, or as a version wrote it.
    fn is_own(&self, versions: &[FileVersion], path: &Path, current: &FileState) -> Result<bool> {
        if current.is_same(&FileState::read(&self.before(), path)?) {
            return Ok(true);
        }
        for version in versions.iter().filter(|version| version.paths.contains(path)) {
            if current.is_same(&FileState::read(&self.directory(version.number), path)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes a version over the user's files and the versions before it, and drops those. Paths
    /// that it no longer changes are put back. Fails at the first file that the user changed.
    pub(crate) fn apply(&self, log: &OperationLog, worktree: &Path, number: u32) -> Result<()> {
        let versions = self.versions()?;
        let paths_of = |version: &FileVersion| version.paths.clone();
        let all: BTreeSet<PathBuf> = versions.iter().flat_map(paths_of).collect();
        let current = versions.iter().find(|version| version.number == number);
        let mut targets = Vec::new();
        for path in all {
            let before = FileState::read(&self.before(), &path)?;
            let target = match current.is_some_and(|version| version.paths.contains(&path)) {
                true => {
                    FileState::read(&self.directory(number), &path)?.with_permissions_of(&before)
                }
                false => before,
            };
            targets.push((path, target));
        }
        let skipped = self.write_all(log, worktree, &versions, targets)?;
        if let Some((path, reason)) = skipped.first_key_value() {
            return Err(Failure::refused(format!("{} is {reason}", path.display()))
                .because("studio does not write over it"));
        }
        for old in versions.iter().filter(|version| version.number < number) {
            // The paths that it alone has are put back.
            let _ = fs::remove_file(self.list(old.number));
            let _ = fs::remove_dir_all(self.directory(old.number));
        }
        Ok(())
    }

    /// Puts the user's files back, except the given ones. Files that are neither the user's nor a
    /// version are left unchanged and returned.
    pub(crate) fn put_back(
        &self,
        log: &OperationLog,
        worktree: &Path,
        kept: &ChangedPaths,
    ) -> Result<ChangedPaths> {
        let versions = self.versions()?;
        let mut targets = Vec::new();
        for path in self.paths()?.into_iter().filter(|path| !kept.contains_key(path)) {
            let before = FileState::read(&self.before(), &path)?;
            targets.push((path, before));
        }
        if !worktree.is_dir() {
            return Ok(ChangedPaths::new());
        }
        self.write_all(log, worktree, &versions, targets)
    }

    /// Writes files: first the removals, which may make room for the others. Stops if another process
    /// may have taken the operation over.
    fn write_all(
        &self,
        log: &OperationLog,
        worktree: &Path,
        versions: &[FileVersion],
        targets: Vec<(PathBuf, FileState)>,
    ) -> Result<ChangedPaths> {
        let created = read_paths(&self.root.join("created"))?;
        let mut skipped = ChangedPaths::new();
        let (removals, writes): (Vec<_>, Vec<_>) =
            targets.into_iter().partition(|(_, target)| matches!(target, FileState::Absent));
        for (path, target) in removals.into_iter().chain(writes) {
            let temporary = worktree.join(&path).with_file_name(self.temporary_name());
            if find_obstacle(worktree, &path).is_none() {
                // A killed process may have left it.
                let _ = fs::remove_file(&temporary);
            }
            let current = FileState::read(worktree, &path)?;
            if current.is_same(&target) {
                continue;
            }
            if !self.is_own(versions, &path, &current)? || is_blocked(worktree, &path, &target) {
                skipped.insert(path, "changed in the meantime");
                continue;
            }
            put(&worktree.join(&path), &target, &temporary)
                .or_fail(|| format!("cannot write {}", worktree.join(&path).display()))?;
            if let FileState::Absent = target {
                remove_created(worktree, &path, &created);
            }
            step("try.file");
            log.confirm()?;
        }
        Ok(skipped)
    }

    /// Returns the name under which a file is written before it replaces another.
    fn temporary_name(&self) -> String {
        format!(".studio-try-{}", self.operation)
    }
}

/// Returns whether something other than an empty directory is at the path of a new file, or in the
/// way to it.
fn is_blocked(worktree: &Path, path: &Path, target: &FileState) -> bool {
    if matches!(target, FileState::Absent) {
        return false;
    }
    let full = worktree.join(path);
    let has_entries = || fs::read_dir(&full).is_ok_and(|mut entries| entries.next().is_some());
    find_obstacle(worktree, path).is_some() || (is_directory(&full) && has_entries())
}

/// Returns whether a path does not exist; its parent may be a file.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir())
}

/// Replaces a path by a state, through a temporary file beside it.
fn put(path: &Path, state: &FileState, temporary: &Path) -> io::Result<()> {
    match state {
        FileState::Absent => match fs::remove_file(path) {
            Err(e) if is_missing(&e) => return Ok(()),
            result => return result,
        },
        FileState::Special => return Err(io::Error::other("it is not a file")),
        FileState::Regular { content, mode } => {
            fs::create_dir_all(parent(path))?;
            fs::write(temporary, content)?;
            fs::set_permissions(temporary, Permissions::from_mode(*mode))?;
        }
        FileState::Symlink(target) => {
            fs::create_dir_all(parent(path))?;
            symlink(target, temporary)?;
        }
    }
    if is_directory(path) {
        fs::remove_dir(path)?;
    }
    fs::rename(temporary, path).inspect_err(|_| {
        let _ = fs::remove_file(temporary);
    })
}

/// Removes the directories that the trial created for a file, if they are empty.
fn remove_created(worktree: &Path, path: &Path, created: &BTreeSet<PathBuf>) {
    for dir in path.ancestors().skip(1).take_while(|dir| created.contains(*dir)) {
        if fs::remove_dir(worktree.join(dir)).is_err() {
            break;
        }
    }
}

/// Returns the entry of a path in a tree.
fn entry_in(tree: &git2::Tree<'_>, path: &Path) -> Option<FileEntry> {
    let entry = tree.get_path(path).ok()?;
    // A directory in the place of a file has no entry of its own in an index.
    let mode = u32::try_from(entry.filemode()).ok().filter(|mode| *mode != 0o040_000)?;
    Some(FileEntry { id: entry.id(), mode })
}

/// Reads a list of paths, each with a NUL byte after it.
fn read_paths(list: &Path) -> Result<BTreeSet<PathBuf>> {
    let bytes = match fs::read(list) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(e) => return Err(e).or_fail(|| format!("cannot read {}", list.display())),
    };
    let names = bytes.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect())
}

fn write_paths<'p>(list: &Path, paths: impl Iterator<Item = &'p Path>) -> Result<()> {
    let mut bytes = Vec::new();
    for path in paths {
        bytes.extend_from_slice(path.as_os_str().as_bytes());
        bytes.push(0);
    }
    base::files::replace(list, &bytes).or_fail(|| format!("cannot write {}", list.display()))
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
