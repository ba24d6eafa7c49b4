//! Keeps what files are before a write: durable before the first of them is touched.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::clock::Clock;

use super::{FileVersion, WriteRecord, WrittenFile, content, directories, hash, place};
use crate::fs::open;

/// How many records a session keeps.
const KEPT: usize = 200;

/// The record of one call, made with its first write.
#[derive(Default)]
pub(crate) struct WriteRecorder(Mutex<State>);

#[derive(Default)]
struct State {
    dir: Option<PathBuf>,
    /// Directories that were made before the record.
    made: Vec<PathBuf>,
}

/// A file and what it is to become; nothing when it goes.
pub type PlannedWrite<'a> = (&'a Path, Option<&'a [u8]>);

impl WriteRecorder {
    /// Makes the directories of a file that is to be written.
    pub(crate) fn make_room(&self, file: &Path) -> io::Result<()> {
        let Some(parent) = file.parent() else { return Ok(()) };
        self.state().made.extend(missing_above(file));
        fs::create_dir_all(parent)
    }

    /// Keeps what these files are, unless the call has its record already. Tells whether it is a
    /// new one.
    pub(crate) fn keep(
        &self,
        session: &Path,
        tool: &str,
        wishes: &[PlannedWrite<'_>],
    ) -> io::Result<bool> {
        let mut state = self.state();
        if state.dir.is_some() {
            return Ok(false);
        }
        let mut made = std::mem::take(&mut state.made);
        let written = wishes.iter().filter(|(_, after)| after.is_some());
        made.extend(written.flat_map(|(path, _)| missing_above(path)));
        made.sort();
        made.dedup();
        let unkept = |e: io::Error| {
            io::Error::new(e.kind(), format!("cannot keep what it was, for an undo: {e}"))
        };
        state.dir = write(session, tool, wishes, &made).map_err(unkept)?;
        base::files::step("g3.write.recorded");
        Ok(state.dir.is_some())
    }

    /// Drops the record: nothing was written, or all of it was put back.
    pub(crate) fn forget(&self) {
        if let Some(dir) = self.state().dir.take() {
            // What stays says of itself that its write was never made.
            let _ = fs::remove_dir_all(dir);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Directories above a file that are not there, the outer ones first.
fn missing_above(file: &Path) -> Vec<PathBuf> {
    let above = file.ancestors().skip(1);
    let mut missing: Vec<PathBuf> =
        above.take_while(|dir| fs::symlink_metadata(dir).is_err()).map(Path::to_owned).collect();
    missing.reverse();
    missing
}

/// Writes the record; gives its directory, or nothing where nothing changes.
fn write(
    session: &Path,
    tool: &str,
    wishes: &[PlannedWrite<'_>],
    made: &[PathBuf],
) -> io::Result<Option<PathBuf>> {
    let all = place(session);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&all)?;
    let new = tempfile::Builder::new().prefix(".new-").tempdir_in(&all)?;
    let mut files = Vec::new();
    for (path, after) in wishes {
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
    let made = made.iter().filter_map(|dir| dir.to_str().map(str::to_owned)).collect();
    let record =
        WriteRecord { time: Clock::from_env().stamp(), tool: tool.to_owned(), files, made };
    base::files::replace_json(&new.path().join("record.json"), &record)?;
    number(new, &all).map(Some)
}

/// Gives the new record the next free number, and drops what is too old.
fn number(new: tempfile::TempDir, all: &Path) -> io::Result<PathBuf> {
    let session = all.parent().unwrap_or(all);
    loop {
        let known = directories(session)?;
        let next = known.last().map_or(1, |(number, _)| number + 1);
        let dir = all.join(format!("{next:06}"));
        match fs::rename(new.path(), &dir) {
            Ok(()) => {
                let _ = new.keep();
                let old = (known.len() + 1).saturating_sub(KEPT);
                known.iter().take(old).for_each(|(_, dir)| drop(fs::remove_dir_all(dir)));
                return Ok(dir);
            }
            // Somebody else's write was faster.
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            Err(e) => return Err(e),
        }
    }
}
