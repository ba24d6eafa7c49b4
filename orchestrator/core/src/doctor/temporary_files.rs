//! Temporary files that a kill left behind: a file is replaced by writing a temporary one beside it
//! and renaming that.

use std::fs::{self, File};
use std::io::{Read, Take};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::files::TEMPORARY_PREFIX;
use rustix::fs::{Mode, OFlags};

use crate::project::Project;
use crate::session_view::SessionView;

/// The minimum age: writing one takes milliseconds.
const MIN_AGE: Duration = Duration::from_secs(60);
/// The beginning of the `.git` file of a worktree.
const POINTER: &[u8] = b"gitdir: ";
/// Maximum length of such a file that is read.
const MAX_POINTER_BYTES: u64 = 8192;

/// Directories of a session with files that studio replaces; the empty path is the session's own.
const SESSION_DIRECTORIES: [&str; 3] = ["", "originals", "caches"];

/// Removes old temporary files from directories that no sandbox can write, and those of `.git` files
/// from worktrees. Returns one sentence for each.
pub(super) fn remove(project: &Project, views: &[SessionView]) -> Vec<String> {
    let root = project.store.root();
    let mut directories = vec![root.to_owned(), root.join("cache")];
    for session in directories_in(&root.join("sessions")) {
        directories.extend(SESSION_DIRECTORIES.iter().map(|name| session.join(name)));
    }
    let common_dir = &project.repository.common_dir;
    directories.push(common_dir.join("info"));
    directories.extend(directories_in(&common_dir.join("worktrees")));
    let mut found: Vec<PathBuf> =
        directories.iter().flat_map(|directory| temporary_files_in(directory)).collect();
    for view in views.iter().filter(|view| !view.state.is_over()) {
        let files = temporary_files_in(&view.record.session_repo.worktree).into_iter();
        found.extend(files.filter(|path| is_pointer(path)));
    }
    let removed = found.into_iter().filter(|path| match path.is_dir() {
        true => fs::remove_dir_all(path).is_ok(),
        false => fs::remove_file(path).is_ok(),
    });
    removed.map(|path| format!("removed the temporary {}", path.display())).collect()
}

fn directories_in(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).map(|entry| entry.path()).collect()
}

/// Returns the old temporary files directly in a directory, and directories that were being made.
fn temporary_files_in(dir: &Path) -> Vec<PathBuf> {
    let is_temporary = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Ok(metadata) = path.symlink_metadata() else { return false };
        let is_known = match metadata.is_dir() {
            true => name.starts_with(".new-"),
            false => metadata.is_file() && name.starts_with(TEMPORARY_PREFIX),
        };
        let age = metadata.modified().ok().and_then(|time| time.elapsed().ok());
        is_known && age.is_some_and(|age| age >= MIN_AGE)
    };
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(is_temporary).collect()
}

/// Returns whether a file in a worktree is a `.git` file, possibly cut off or empty: an agent may have
/// files of its own with such names.
fn is_pointer(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened: Result<OwnedFd, _> = rustix::fs::open(path, flags, Mode::empty());
    let Ok(descriptor) = opened else { return false };
    let mut reader: Take<File> = File::from(descriptor).take(MAX_POINTER_BYTES);
    let mut content = Vec::new();
    reader.read_to_end(&mut content).is_ok()
        && (content.starts_with(POINTER) || content.is_empty())
        && content.iter().filter(|byte| **byte == b'\n').count() <= 1
}
