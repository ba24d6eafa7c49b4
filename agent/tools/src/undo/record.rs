//! Records the content of files before a write; durable before the first file is changed.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::clock::Clock;

use super::{FileVersion, WriteRecord, WrittenFile, content, directories, hash, undo_dir};
use crate::fs::open;

/// Maximum number of records of a session.
const MAX_RECORDS: usize = 200;

/// The record of a call, created with its first write.
#[derive(Default)]
pub(crate) struct WriteRecorder(Mutex<State>);

#[derive(Default)]
struct State {
    dir: Option<PathBuf>,
    /// Directories created before the record.
    created_dirs: Vec<PathBuf>,
}

/// A file and its new content; `None` to delete it.
pub type PlannedWrite<'a> = (&'a Path, Option<&'a [u8]>);

impl WriteRecorder {
    /// Creates the parent directories of a file to be written.
    pub(crate) fn create_parents(&self, file: &Path) -> io::Result<()> {
        let Some(parent) = file.parent() else { return Ok(()) };
        self.state().created_dirs.extend(missing_parents(file));
        fs::create_dir_all(parent)
    }

    /// Records the current content of these files, unless the call already has a record. Returns
    /// whether a record was created.
    pub(crate) fn record(
        &self,
        session: &Path,
        tool: &str,
        writes: &[PlannedWrite<'_>],
    ) -> io::Result<bool> {
        let mut state = self.state();
        if state.dir.is_some() {
            return Ok(false);
        }
        let mut created_dirs = std::mem::take(&mut state.created_dirs);
        let written = writes.iter().filter(|(_, after)| after.is_some());
        created_dirs.extend(written.flat_map(|(path, _)| missing_parents(path)));
        created_dirs.sort();
        created_dirs.dedup();
        let failed = |e: io::Error| {
            io::Error::new(e.kind(), format!("cannot keep what it was, for an undo: {e}"))
        };
        state.dir = write(session, tool, writes, &created_dirs).map_err(failed)?;
        base::files::step("g3.write.recorded");
        Ok(state.dir.is_some())
    }

    /// Drops the record, because nothing was written or everything was restored.
    pub(crate) fn discard(&self) {
        if let Some(dir) = self.state().dir.take() {
            // A record that remains shows by its hashes that its write was not made.
            let _ = fs::remove_dir_all(dir);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the missing parent directories of a file, outer ones first.
fn missing_parents(file: &Path) -> Vec<PathBuf> {
    let ancestors = file.ancestors().skip(1);
    let mut missing: Vec<PathBuf> = ancestors
        .take_while(|dir| fs::symlink_metadata(dir).is_err())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    missing
}

/// Writes the record and returns its directory, or `None` if nothing changes.
fn write(
    session: &Path,
    tool: &str,
    writes: &[PlannedWrite<'_>],
    created_dirs: &[PathBuf],
) -> io::Result<Option<PathBuf>> {
    let undo_dir = undo_dir(session);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&undo_dir)?;
    let new = tempfile::Builder::new().prefix(".new-").tempdir_in(&undo_dir)?;
    let mut files = Vec::new();
    for (path, after) in writes {
        let before = match open::read(path) {
            Ok(content) => Some(content),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        if before.as_ref().map(|content| content.bytes.as_slice()) == *after {
            continue;
        }
        if let Some(before) = &before {
            base::files::replace(&content(new.path(), files.len(), "before"), &before.bytes)?;
        }
        let version = |content: &open::FileContent| FileVersion {
            hash: hash(&content.bytes),
            mode: content.mode,
        };
        files.push(WrittenFile {
            path: path.to_string_lossy().into_owned(),
            bytes: path.to_str().is_none().then(|| path.as_os_str().as_bytes().to_vec()),
            before: before.as_ref().map(version),
            after: after.map(hash),
        });
    }
    if files.is_empty() {
        return Ok(None);
    }
    let created_dirs =
        created_dirs.iter().filter_map(|dir| dir.to_str().map(str::to_owned)).collect();
    let record =
        WriteRecord { time: Clock::from_env().stamp(), tool: tool.to_owned(), files, created_dirs };
    base::files::replace_json(&new.path().join("record.json"), &record)?;
    assign_number(new, &undo_dir).map(Some)
}

/// Gives the new record the next free number, and deletes the oldest ones.
fn assign_number(new: tempfile::TempDir, undo_dir: &Path) -> io::Result<PathBuf> {
    let session = undo_dir.parent().unwrap_or(undo_dir);
    loop {
        let existing = directories(session)?;
        let next = existing.last().map_or(1, |(number, _)| number + 1);
        let dir = undo_dir.join(format!("{next:06}"));
        match fs::rename(new.path(), &dir) {
            Ok(()) => {
                let _ = new.keep();
                let excess = (existing.len() + 1).saturating_sub(MAX_RECORDS);
                existing.iter().take(excess).for_each(|(_, dir)| drop(fs::remove_dir_all(dir)));
                return Ok(dir);
            }
            // Another write took the number.
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(e) => return Err(e),
        }
    }
}
