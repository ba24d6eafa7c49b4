//! Undoes a write: restores all of its files, or changes nothing.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::lock::Lock;

use super::{Backup, UNDONE_SUFFIX, WrittenFile, content, hash, list, undo_dir};
use crate::fs::open;

/// The result for one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreOutcome {
    /// The file was restored.
    Restored,
    /// The file was removed, since it did not exist before.
    Removed,
    /// The file already had its previous content.
    Unchanged,
}

/// A write that was undone.
#[derive(Debug)]
pub struct UndoneWrite {
    /// The write.
    pub backup: Backup,
    /// Its files.
    pub files: Vec<(PathBuf, RestoreOutcome)>,
}

impl UndoneWrite {
    /// Whether the write had any effect.
    pub fn had_effect(&self) -> bool {
        self.files.iter().any(|(_, outcome)| *outcome != RestoreOutcome::Unchanged)
    }
}

/// Undoes the last write of a session. Returns `None` if there is none.
pub fn undo_last(session_dir: &Path) -> Result<Option<UndoneWrite>> {
    let failed = || "cannot take the last write back";
    if !undo_dir(session_dir).is_dir() {
        return Ok(None);
    }
    let _one = Lock::take(&undo_dir(session_dir).join("lock")).or_fail(failed)?;
    let Some(backup) = list(session_dir).or_fail(failed)?.pop() else { return Ok(None) };
    let files = plan_restores(&backup)?;
    // Keeps the current content, which would be lost otherwise.
    for (index, (file, outcome)) in backup.record.files.iter().zip(&files).enumerate() {
        if *outcome != RestoreOutcome::Unchanged && file.after.is_some() {
            let bytes = open::read(&file.to_path()).or_fail(failed)?.bytes;
            base::files::replace(&content(&backup.dir, index, "after"), &bytes).or_fail(failed)?;
        }
    }
    restore(&backup, &files).or_fail(failed)?;
    base::files::step("g3.undo.restored");
    let mut undone_dir = backup.dir.clone().into_os_string();
    undone_dir.push(UNDONE_SUFFIX);
    fs::rename(&backup.dir, PathBuf::from(undone_dir)).or_fail(failed)?;
    let paths = backup.record.files.iter().map(WrittenFile::to_path);
    Ok(Some(UndoneWrite { files: paths.zip(files).collect(), backup }))
}

/// Determines what to do with each file. Fails if one of them was changed since.
fn plan_restores(backup: &Backup) -> Result<Vec<RestoreOutcome>> {
    let mut conflicts = Vec::new();
    let mut all = Vec::new();
    for file in &backup.record.files {
        match plan_restore(file) {
            Ok(outcome) => all.push(outcome),
            Err(error) => conflicts.push(format!("{} ({error})", file.path)),
        }
    }
    if conflicts.is_empty() {
        return Ok(all);
    }
    let tool = &backup.record.tool;
    Err(Failure::refused(format!("files were changed after `{tool}` wrote them"))
        .because(conflicts.join(", "))
        .hint("restore or move them, then try again: nothing was changed"))
}

fn plan_restore(file: &WrittenFile) -> std::result::Result<RestoreOutcome, String> {
    let current = match open::read(&file.to_path()) {
        Ok(content) => Some(hash(&content.bytes)),
        Err(e) if is_missing(&e) => None,
        Err(e) => return Err(e.to_string()),
    };
    let before = file.before.as_ref().map(|version| version.hash.clone());
    match current {
        current if current == before => Ok(RestoreOutcome::Unchanged),
        current if current == file.after => Ok(match before {
            Some(_) => RestoreOutcome::Restored,
            None => RestoreOutcome::Removed,
        }),
        Some(_) => Err("it has another content".to_owned()),
        None => Err("it is gone".to_owned()),
    }
}

/// Whether the file does not exist, or a component of its path is not a directory.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn restore(backup: &Backup, files: &[RestoreOutcome]) -> io::Result<()> {
    let each = || backup.record.files.iter().zip(files).enumerate();
    // New files are removed first, since their directory may have replaced a file.
    for (_, (file, outcome)) in each() {
        if *outcome == RestoreOutcome::Removed {
            fs::remove_file(file.to_path())?;
            base::files::step("g3.undo.file");
        }
    }
    for dir in backup.record.created_dirs.iter().rev() {
        // Directories that are not empty are kept.
        let _ = fs::remove_dir(dir);
    }
    for (index, (file, outcome)) in each() {
        if let (RestoreOutcome::Restored, Some(before)) = (outcome, &file.before) {
            let path = file.to_path();
            let bytes = fs::read(content(&backup.dir, index, "before"))?;
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            open::replace(&path, &bytes)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(before.mode))?;
            base::files::step("g3.undo.file");
        }
    }
    Ok(())
}
