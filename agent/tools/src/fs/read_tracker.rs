//! Tracks what this session last saw of each file, so that changes by others are not overwritten
//! unseen. A rejection shows the change and counts as having seen it, so that the next attempt can
//! succeed.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use base::text::head;
use sha2::{Digest, Sha256};

use crate::output::ToolError;
use crate::text_diff::difference;

/// Maximum size in bytes of content stored in addition to its hash, so that a later change can be
/// shown.
const MAX_STORED: usize = 1 << 20;
/// Maximum number of bytes and lines shown of a change.
const MAX_SHOWN: (usize, usize) = (4 << 10, 80);

/// Separates the hash from the content in a record.
const SEPARATOR: u8 = b'\n';

/// How an edit matched the text of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditFit {
    /// It matched exactly.
    Exact,
    /// It matched with deviations.
    Loose,
}

/// A file that has changed since the session last saw it.
#[derive(Debug)]
pub struct ChangedFile {
    /// The change, for the model.
    change: String,
}

/// Records the content that the session saw or wrote. Errors are ignored: the file then counts as
/// never seen.
pub fn record(session_dir: &Path, path: &Path, bytes: &[u8]) {
    let file = file(session_dir, path);
    let Some(parent) = file.parent() else { return };
    let mut text = hash(bytes).into_bytes();
    if bytes.len() <= MAX_STORED {
        text.push(SEPARATOR);
        text.extend_from_slice(bytes);
    }
    let _ = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)
        .and_then(|()| base::files::replace(&file, &text));
}

/// Records what a search showed of a file, if the session has seen that file before.
pub fn refresh(session_dir: &Path, path: &Path) {
    if !file(session_dir, path).exists() {
        return;
    }
    if let Ok(content) = super::open::read(path) {
        record(session_dir, path, &content.bytes);
    }
}

/// Returns the change of a file that the session has seen and whose content is different now.
pub fn changed(
    session_dir: &Path,
    path: &Path,
    bytes: &[u8],
) -> Result<Option<ChangedFile>, ToolError> {
    let record = match base::files::read(&file(session_dir, path)) {
        Ok(record) => record,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(ToolError::io("cannot read the notes of this session", &e)),
    };
    let mut parts = record.splitn(2, |byte| *byte == SEPARATOR);
    if parts.next() == Some(hash(bytes).as_bytes()) {
        return Ok(None);
    }
    let before = parts.next().and_then(|bytes| std::str::from_utf8(bytes).ok());
    let change = match (before, std::str::from_utf8(bytes)) {
        (Some(before), Ok(current)) => truncate_diff(&difference(before, current).unified),
        (None, Ok(current)) => {
            format!("It has {} bytes in {} lines now", current.len(), current.lines().count())
        }
        (_, Err(_)) => format!("It has {} bytes now, not all of them UTF-8 text", bytes.len()),
    };
    Ok(Some(ChangedFile { change }))
}

/// Fails if the session has seen the file and its content is different now. Records the current
/// content as seen.
pub fn check(session_dir: &Path, path: &Path, bytes: &[u8]) -> Result<(), ToolError> {
    match changed(session_dir, path, bytes)? {
        None => Ok(()),
        Some(change) => {
            record(session_dir, path, bytes);
            Err(change.refusal(path))
        }
    }
}

/// Like [`check`], for an edit that is located by existing text. An exact match cannot overwrite
/// another change, so it is allowed, with a note.
pub fn check_edit(
    session_dir: &Path,
    path: &Path,
    before: (&[u8], Option<&ChangedFile>),
    fit: EditFit,
) -> Result<Option<String>, ToolError> {
    match (before, fit) {
        ((_, None), _) => Ok(None),
        ((_, Some(change)), EditFit::Exact) => Ok(Some(change.note())),
        ((bytes, Some(change)), EditFit::Loose) => {
            record(session_dir, path, bytes);
            Err(change.refusal(path))
        }
    }
}

impl ChangedFile {
    /// Explains that an edit did not match: shows the change, which may be the reason, and records
    /// it as seen.
    pub fn explain(&self, session_dir: &Path, path: &Path, bytes: &[u8], reason: &str) -> String {
        record(session_dir, path, bytes);
        format!("{reason}\n[note: {}]", self.note())
    }

    /// Returns the error: nothing was written, what changed, and what to do.
    pub fn refusal(&self, path: &Path) -> ToolError {
        ToolError::failed(format!(
            "{} has changed since this session last read it; nothing was written. What changed:\n\
             {}\nTake that into account, then repeat the call",
            path.display(),
            self.change.trim_end()
        ))
    }

    /// Returns a note that the edit was made despite the change.
    fn note(&self) -> String {
        format!("the file had changed since this session last read it:\n{}", self.change.trim_end())
    }
}

/// Truncates a diff.
fn truncate_diff(diff: &str) -> String {
    let (bytes, lines) = MAX_SHOWN;
    let first: usize = diff.split_inclusive('\n').take(lines).map(str::len).sum();
    let shortened = head(&diff[..first], bytes);
    match diff[shortened.len()..].lines().count() {
        0 => shortened.to_owned(),
        more => format!("{shortened}\n[{more} more lines of the difference are not shown]"),
    }
}

fn file(session_dir: &Path, path: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    session_dir.join("tools/seen").join(&hash(path.as_os_str().as_bytes())[..32])
}

fn hash(bytes: &[u8]) -> String {
    base::text::hex(&Sha256::digest(bytes))
}
