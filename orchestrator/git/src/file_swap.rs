//! Replaces the files of a checkout one by one with others that are complete. A file that another
//! program writes between the check of a landing and its replacement, such as an editor that saves
//! it, is noticed: the file is back at its path, and the landing fails.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use rustix::fs::{CWD, RenameFlags};

use crate::checkout::{self, FileChange};
use crate::entry_mode;

/// The files of a checkout before a landing looked at their content, by their paths.
pub(crate) struct SeenFiles(BTreeMap<PathBuf, Option<FileStamp>>);

/// What changes when a program writes to a file or replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    size: u64,
    modified: (i64, i64),
    mode: u32,
}

impl FileStamp {
    /// Returns the stamp of a file or a symbolic link; `None` if the path does not exist.
    fn read(path: &Path) -> io::Result<Option<FileStamp>> {
        match path.symlink_metadata() {
            Ok(metadata) => Ok(Some(FileStamp {
                size: metadata.size(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                mode: metadata.mode(),
            })),
            Err(e) if is_missing(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

impl SeenFiles {
    /// Reads the files of these changes.
    pub(crate) fn read(worktree: &Path, changes: &[FileChange]) -> Result<SeenFiles> {
        let mut seen = BTreeMap::new();
        for change in changes {
            let path = worktree.join(&change.path);
            // What a symbolic link leads to is another file.
            let stamp = match checkout::find_obstacle(worktree, &change.path) {
                Some(_) => None,
                None => FileStamp::read(&path).or_fail(|| cannot_read(&path))?,
            };
            seen.insert(change.path.clone(), stamp);
        }
        Ok(SeenFiles(seen))
    }

    /// Returns whether the files of these changes can change places with files in an empty directory:
    /// all are files or symbolic links, and on its file system.
    pub(crate) fn can_swap(&self, worktree: &Path, empty: &Path, changes: &[FileChange]) -> bool {
        let Ok(device) = empty.metadata().map(|metadata| metadata.dev()) else { return false };
        let is_here = |change: &FileChange| {
            let mut parents = change.path.ancestors().skip(1);
            let parent = parents.find_map(|dir| worktree.join(dir).symlink_metadata().ok());
            parent.is_some_and(|metadata| metadata.dev() == device)
        };
        let is_file = |change: &FileChange| {
            let mut entries = change.before.iter().chain(&change.after);
            let is_submodule = entries.any(|entry| entry.mode == entry_mode::GITLINK);
            let is_directory = self.stamp(&change.path).is_some_and(|stamp| {
                rustix::fs::FileType::from_raw_mode(stamp.mode) == rustix::fs::FileType::Directory
            });
            !is_submodule && !is_directory
        };
        changes.iter().all(|change| is_file(change) && is_here(change))
            && exchanges(empty).unwrap_or(false)
    }

    fn stamp(&self, path: &Path) -> Option<FileStamp> {
        self.0.get(path).copied().flatten()
    }
}

/// Puts the files of a directory in the places of those of a checkout, and removes those that the
/// changes delete. Leaves files that are not as they were seen, and returns them. The previous files
/// are in the directory afterwards.
pub(crate) fn swap(
    worktree: &Path,
    staged: &Path,
    changes: &[FileChange],
    seen: &SeenFiles,
) -> Result<Vec<PathBuf>> {
    let removed = staged.with_extension("removed");
    fs::create_dir(&removed).or_fail(|| format!("cannot create {}", removed.display()))?;
    let (mut swapped, mut changed) = (Vec::new(), Vec::new());
    // A directory can take the place of a deleted file, and the reverse.
    let (deleted, written): (Vec<&FileChange>, Vec<&FileChange>) =
        changes.iter().partition(|change| change.after.is_none());
    for (number, change) in deleted.into_iter().enumerate() {
        let Some(stamp) = seen.stamp(&change.path) else { continue };
        let (path, other) = (worktree.join(&change.path), removed.join(number.to_string()));
        let swap = Swap { path, other, stamp, is_removal: true };
        match swap.make()? {
            true => swapped.push((swap, change)),
            false => changed.push(change.path.clone()),
        }
        remove_empty_parents(worktree, &change.path);
    }
    for change in written {
        let (path, other) = (worktree.join(&change.path), staged.join(&change.path));
        let is_made = match seen.stamp(&change.path) {
            Some(stamp) => {
                let swap = Swap { path, other, stamp, is_removal: false };
                let is_made = swap.make()?;
                swapped.extend(is_made.then_some((swap, change)));
                is_made
            }
            None => create(&other, &path)?,
        };
        changed.extend((!is_made).then(|| change.path.clone()));
    }
    for (swap, change) in swapped {
        // A program that had opened a file may have written to it since.
        changed.extend((!swap.verify()?).then(|| change.path.clone()));
    }
    Ok(changed)
}

/// Puts a file where none was seen; returns `false` if there is one.
fn create(file: &Path, path: &Path) -> Result<bool> {
    path.parent().map_or(Ok(()), fs::create_dir_all).or_fail(|| cannot_write(path))?;
    match rename(file, path, RenameFlags::NOREPLACE) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        result => result.map(|()| true).or_fail(|| cannot_write(path)),
    }
}

/// A file of the checkout that changes places with another one.
struct Swap {
    path: PathBuf,
    other: PathBuf,
    stamp: FileStamp,
    /// Whether nothing comes to its place.
    is_removal: bool,
}

impl Swap {
    /// Returns `false` if the file is not as it was seen: it stays.
    fn make(&self) -> Result<bool> {
        let result = match self.is_removal {
            true => rename(&self.path, &self.other, RenameFlags::NOREPLACE),
            false => rename(&self.path, &self.other, RenameFlags::EXCHANGE),
        };
        match result {
            Err(e) if is_missing(&e) => return Ok(false),
            result => result.or_fail(|| cannot_write(&self.path))?,
        }
        self.verify()
    }

    /// Puts the previous file back if it is not as it was seen; then returns `false`.
    fn verify(&self) -> Result<bool> {
        let stamp = FileStamp::read(&self.other).or_fail(|| cannot_write(&self.path))?;
        if stamp == Some(self.stamp) {
            return Ok(true);
        }
        self.put_back().or_fail(|| cannot_write(&self.path))?;
        Ok(false)
    }

    fn put_back(&self) -> io::Result<()> {
        if !self.is_removal {
            match rename(&self.other, &self.path, RenameFlags::EXCHANGE) {
                // It was deleted since.
                Err(e) if is_missing(&e) => {}
                result => return result,
            }
        }
        self.path.parent().map_or(Ok(()), fs::create_dir_all)?;
        rename(&self.other, &self.path, RenameFlags::NOREPLACE)
    }
}

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(CWD, from, CWD, to, flags)?)
}

/// Returns whether the file system of a directory exchanges files.
fn exchanges(dir: &Path) -> io::Result<bool> {
    let (one, other) = (dir.join("one"), dir.join("other"));
    fs::write(&one, "")?;
    fs::write(&other, "")?;
    let is_possible = rename(&one, &other, RenameFlags::EXCHANGE).is_ok();
    fs::remove_file(one)?;
    fs::remove_file(other)?;
    Ok(is_possible)
}

/// Removes the directories of a path that are empty.
pub(crate) fn remove_empty_parents(worktree: &Path, path: &Path) {
    for dir in path.ancestors().skip(1).filter(|dir| !dir.as_os_str().is_empty()) {
        if fs::remove_dir(worktree.join(dir)).is_err() {
            break;
        }
    }
}

/// Returns the refusal of a landing whose file another program wrote.
pub(crate) fn changed(path: &Path) -> Failure {
    Failure::refused(format!("{} changed during the landing", path.display()))
        .hint("commit, stash or move it, then try again")
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkout::FileEntry;

    /// Returns a change of a file that is there before and after or not.
    fn change(path: &str, [before, after]: [bool; 2]) -> FileChange {
        let entry = FileEntry { id: git2::Oid::ZERO_SHA1, mode: entry_mode::FILE };
        let entry = |is_there: bool| is_there.then_some(entry);
        FileChange { path: path.into(), before: entry(before), after: entry(after) }
    }

    /// Three files of a checkout, of which one is deleted, and one new one.
    fn landing() -> (tempfile::TempDir, PathBuf, PathBuf, Vec<FileChange>) {
        let dir = tempfile::tempdir().unwrap();
        let (worktree, staged) = (dir.path().join("worktree"), dir.path().join("new"));
        fs::create_dir_all(worktree.join("old")).unwrap();
        fs::create_dir_all(staged.join("sub")).unwrap();
        for path in ["a", "b", "old/gone"] {
            fs::write(worktree.join(path), "before\n").unwrap();
        }
        for path in ["a", "b", "sub/new"] {
            fs::write(staged.join(path), "after\n").unwrap();
        }
        let changes = vec![
            change("a", [true, true]),
            change("b", [true, true]),
            change("old/gone", [true, false]),
            change("sub/new", [false, true]),
        ];
        (dir, worktree, staged, changes)
    }

    #[test]
    fn files_are_replaced_removed_and_created() {
        let (_dir, worktree, staged, changes) = landing();
        let seen = SeenFiles::read(&worktree, &changes).unwrap();
        assert_eq!(swap(&worktree, &staged, &changes, &seen).unwrap(), Vec::<PathBuf>::new());
        for path in ["a", "b", "sub/new"] {
            assert_eq!(fs::read_to_string(worktree.join(path)).unwrap(), "after\n");
        }
        assert!(!worktree.join("old").exists());
    }

    #[test]
    fn a_file_that_is_not_as_it_was_seen_is_kept() {
        for path in ["b", "old/gone", "sub/new"] {
            let (_dir, worktree, staged, changes) = landing();
            let seen = SeenFiles::read(&worktree, &changes).unwrap();
            fs::create_dir_all(worktree.join("sub")).unwrap();
            fs::write(worktree.join(path), "of the user\n").unwrap();
            let changed = swap(&worktree, &staged, &changes, &seen).unwrap();
            assert_eq!(changed, [Path::new(path)]);
            assert_eq!(fs::read_to_string(worktree.join(path)).unwrap(), "of the user\n", "{path}");
        }
    }

    #[test]
    fn a_write_to_a_file_that_was_open_is_kept() {
        let (_dir, worktree, staged, changes) = landing();
        let seen = SeenFiles::read(&worktree, &changes).unwrap();
        for (path, other, is_deleted) in
            [("a", "a", false), ("b", "b", true), ("old/gone", "0", false)]
        {
            let is_removal = other == "0";
            let stamp = seen.stamp(Path::new(path)).unwrap();
            let swap =
                Swap { path: worktree.join(path), other: staged.join(other), stamp, is_removal };
            let mut open = fs::File::options().append(true).open(worktree.join(path)).unwrap();
            assert!(swap.make().unwrap());
            if is_removal {
                remove_empty_parents(&worktree, Path::new(path));
            } else {
                assert_eq!(fs::read_to_string(worktree.join(path)).unwrap(), "after\n");
            }
            if is_deleted {
                fs::remove_file(worktree.join(path)).unwrap();
            }
            io::Write::write_all(&mut open, b"of the user\n").unwrap();
            assert!(!swap.verify().unwrap());
            let kept = fs::read_to_string(worktree.join(path)).unwrap();
            assert_eq!(kept, "before\nof the user\n", "{path}");
        }
    }

    #[test]
    fn directories_submodules_and_other_file_systems_are_not_swapped() {
        let (dir, worktree, _, mut changes) = landing();
        let empty = dir.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let can_swap = |changes: &[FileChange], empty: &Path| {
            let seen = SeenFiles::read(&worktree, changes).unwrap();
            seen.can_swap(&worktree, empty, changes)
        };
        assert!(can_swap(&changes, &empty));
        assert!(!can_swap(&changes, Path::new("/proc")));
        changes.push(change("old", [false, true]));
        assert!(!can_swap(&changes, &empty));
        changes.last_mut().unwrap().path = "module".into();
        changes.last_mut().unwrap().after.as_mut().unwrap().mode = entry_mode::GITLINK;
        assert!(!can_swap(&changes, &empty));
    }
}
