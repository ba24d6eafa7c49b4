//! What files were before a tool wrote them, so that the write can be taken back: a directory for
//! each write, there before the write is made.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub mod record;
pub mod restore;

/// One write of a tool: all files that it changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteRecord {
    /// When, in RFC 3339.
    pub time: String,
    /// The tool.
    pub tool: String,
    /// What it changed.
    pub files: Vec<WrittenFile>,
    /// Directories that were not there, the outer ones first.
    #[serde(default)]
    pub made: Vec<String>,
}

/// A file that is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// Where, to be shown.
    pub path: String,
    /// Where, when that is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Vec<u8>>,
    /// What it was; nothing when it was not there.
    pub before: Option<FileVersion>,
    /// The hash of what it becomes; nothing when it goes.
    pub after: Option<String>,
}

/// What a file was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    /// The hash of its content.
    pub hash: String,
    /// Its permission bits.
    pub mode: u32,
}

impl WrittenFile {
    /// Where it is.
    pub(crate) fn place(&self) -> PathBuf {
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
    /// Its number; later ones are greater.
    pub number: u64,
    /// Its directory.
    pub dir: PathBuf,
    /// What it says.
    pub record: WriteRecord,
}

/// What was taken back already ends so.
const DONE: &str = ".undone";

/// The writes of a session that can be taken back, the newest last.
pub fn list(session_dir: &Path) -> io::Result<Vec<Backup>> {
    let mut all = Vec::new();
    for (number, dir) in directories(session_dir)? {
        if dir.to_string_lossy().ends_with(DONE) {
            continue;
        }
        // What cannot be read must not let an older write pass for the last one.
        let bytes = fs::read(dir.join("record.json"))?;
        let record = serde_json::from_slice(&bytes)
            .map_err(|why| io::Error::other(format!("{}: {why}", dir.display())))?;
        all.push(Backup { number, dir, record });
    }
    Ok(all)
}

/// Every record's directory and number, the newest last.
fn directories(session_dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(place(session_dir)) {
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

/// Where the records of a session lie.
fn place(session_dir: &Path) -> PathBuf {
    session_dir.join("undo")
}

/// What a file of a record was, and what it was when that was taken back.
fn content(dir: &Path, at: usize, when: &str) -> PathBuf {
    dir.join(format!("{at}.{when}"))
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
