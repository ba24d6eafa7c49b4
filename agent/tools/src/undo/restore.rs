//! Undoes a write: restores all of its files, or changes nothing.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::lock::Lock;

use super::{Backup, DONE, WrittenFile, content, hash, list, place};
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
    pub kept: Backup,
    /// Its files.
    pub files: Vec<(PathBuf, RestoreOutcome)>,
}

impl UndoneWrite {
    /// Whether the write had any effect.
    pub fn was_made(&self) -> bool {
        self.files.iter().any(|(_, became)| *became != RestoreOutcome::Unchanged)
    }
}

/// Undoes the last write of a session. Returns `None` if there is none.
pub fn last(session_dir: &Path) -> Result<Option<UndoneWrite>> {
    let failed = || "cannot take the last write back";
    if !place(session_dir).is_dir() {
        return Ok(None);
    }
    let _one = Lock::take(&place(session_dir).join("lock")).or_fail(failed)?;
    let Some(kept) = list(session_dir).or_fail(failed)?.pop() else { return Ok(None) };
    let files = judged(&kept)?;
    // Keeps the current content, which would be lost otherwise.
    for (at, (file, became)) in kept.record.files.iter().zip(&files).enumerate() {
        if *became != RestoreOutcome::Unchanged && file.after.is_some() {
            let bytes = open::read(&file.place()).or_fail(failed)?.bytes;
            base::files::replace(&content(&kept.dir, at, "after"), &bytes).or_fail(failed)?;
        }
    }
    restore(&kept, &files).or_fail(failed)?;
    base::files::step("g3.undo.restored");
    let mut done = kept.dir.clone().into_os_string();
    done.push(DONE);
    fs::rename(&kept.dir, PathBuf::from(done)).or_fail(failed)?;
    let places = kept.record.files.iter().map(WrittenFile::place);
    Ok(Some(UndoneWrite { files: places.zip(files).collect(), kept }))
}

/// Determines what to do with each file. Fails if one of them was changed since.
fn judged(kept: &Backup) -> Result<Vec<RestoreOutcome>> {
    let mut wrong = Vec::new();
    let mut all = Vec::new();
    for file in &kept.record.files {
        match judge(file) {
            Ok(became) => all.push(became),
            Err(why) => wrong.push(format!("{} ({why})", file.path)),
        }
    }
    if wrong.is_empty() {
        return Ok(all);
    }
    let tool = &kept.record.tool;
    Err(Failure::refused(format!("files were changed after `{tool}` wrote them"))
        .because(wrong.join(", "))
        .hint("restore or move them, then try again: nothing was changed"))
}

fn judge(file: &WrittenFile) -> std::result::Result<RestoreOutcome, String> {
    let now = match open::read(&file.place()) {
        Ok(content) => Some(hash(&content.bytes)),
        Err(e) if gone(&e) => None,
        Err(e) => return Err(e.to_string()),
    };
    let before = file.before.as_ref().map(|version| version.hash.clone());
    match now {
        now if now == before => Ok(RestoreOutcome::Unchanged),
        now if now == file.after => Ok(match before {
            Some(_) => RestoreOutcome::Restored,
            None => RestoreOutcome::Removed,
        }),
        Some(_) => Err("it has another content".to_owned()),
        None => Err("it is gone".to_owned()),
    }
}

/// Whether the file does not exist, or a component of its path is not a directory.
fn gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn restore(kept: &Backup, files: &[RestoreOutcome]) -> io::Result<()> {
    let each = || kept.record.files.iter().zip(files).enumerate();
    // New files are removed first, since their directory may have replaced a file.
    for (_, (file, became)) in each() {
        if *became == RestoreOutcome::Removed {
            fs::remove_file(file.place())?;
            base::files::step("g3.undo.file");
        }
    }
    for dir in kept.record.made.iter().rev() {
        // Directories that are not empty are kept.
        let _ = fs::remove_dir(dir);
    }
    for (at, (file, became)) in each() {
        if let (RestoreOutcome::Restored, Some(before)) = (became, &file.before) {
            let path = file.place();
            let bytes = fs::read(content(&kept.dir, at, "before"))?;
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            open::replace(&path, &bytes)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(before.mode))?;
            base::files::step("g3.undo.file");
        }
    }
    Ok(())
}
