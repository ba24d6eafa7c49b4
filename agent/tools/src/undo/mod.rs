//! Records of files before a tool writes them, so that the write can be undone: one directory per
//! write, created before the write.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub mod record;
pub mod restore;

/// A write of a tool: all files that it changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteRecord {
    /// The time, in RFC 3339.
    pub time: String,
    /// The tool.
    pub tool: String,
    /// The changed files.
    pub files: Vec<WrittenFile>,
    /// Directories that were created, outer ones first.
    #[serde(rename = "made", default)]
    pub created_dirs: Vec<String>,
}

/// A written file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// The path, for display.
    pub path: String,
    /// The path as bytes, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Vec<u8>>,
    /// The version before the write; `None` if the file did not exist.
    pub before: Option<FileVersion>,
    /// The hash of the content after the write; `None` if the file was deleted.
    pub after: Option<String>,
}

/// A version of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    /// The hash of its content.
    pub hash: String,
    /// Its permission bits.
    pub mode: u32,
}

impl WrittenFile {
    /// Returns the path.
    pub(crate) fn to_path(&self) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        match &self.bytes {
            Some(bytes) => PathBuf::from(std::ffi::OsStr::from_bytes(bytes)),
            None => PathBuf::from(&self.path),
        }
    }
}

/// A record on disk.
#[derive(Clone, Debug)]
pub struct Backup {
    /// The number; later records have higher numbers.
    pub number: u64,
    /// Its directory.
    pub dir: PathBuf,
    /// The record.
    pub record: WriteRecord,
}

/// The suffix of directories of undone writes.
const UNDONE_SUFFIX: &str = ".undone";

/// Returns the writes of a session that can be undone, newest last.
pub fn list(session_dir: &Path) -> io::Result<Vec<Backup>> {
    let mut all = Vec::new();
    for (number, dir) in directories(session_dir)? {
        if dir.to_string_lossy().ends_with(UNDONE_SUFFIX) {
            continue;
        }
        // An unreadable record is an error; otherwise an older write would be treated as the last
        // one.
        let bytes = base::files::read(&dir.join("record.json"))?;
        let record = serde_json::from_slice(&bytes)
            .map_err(|error| io::Error::other(format!("{}: {error}", dir.display())))?;
        all.push(Backup { number, dir, record });
    }
    Ok(all)
}

/// Returns the directories and numbers of all records, newest last.
fn directories(session_dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(undo_dir(session_dir)) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let numbered = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let number = name.to_str()?.split('.').next()?.parse().ok()?;
        Some((number, entry.path()))
    };
    let mut all: Vec<(u64, PathBuf)> = entries.flatten().filter_map(numbered).collect();
    all.sort();
    Ok(all)
}

/// Returns the directory of the records of a session.
fn undo_dir(session_dir: &Path) -> PathBuf {
    session_dir.join("undo")
}

/// Returns the path of a file's content before the write, or before it was undone.
fn content(dir: &Path, index: usize, stage: &str) -> PathBuf {
    dir.join(format!("{index}.{stage}"))
}

fn hash(bytes: &[u8]) -> String {
    base::text::hex(&Sha256::digest(bytes))
}
