//! Files that survive a crash: replaced by rename, journals by whole lines, durable steps by name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Replaces a file with new content in one step; readers see the old or the new, never a half.
/// State files are readable by their owner only.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_with_mode(path, content, 0o600)
}

/// As [`replace`], with the given permission bits.
pub fn replace_with_mode(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let parent = parent_of(path);
    let mut temp = tempfile::Builder::new().prefix(".tmp-").tempfile_in(parent)?;
    temp.write_all(content)?;
    temp.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    temp.as_file().sync_data()?;
    temp.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// What keeps git away from what g3 writes into a working directory, and lets skills be versioned.
const GITIGNORE: &str = "/*\n!/skills/\n";

/// Makes `.g3` in a working directory; in a git work tree it tells git by itself not to look at it.
pub fn keep_out_of_git(cwd: &Path) -> io::Result<()> {
    let dir = cwd.join(".g3");
    if fs::symlink_metadata(&dir).is_ok_and(|meta| meta.is_symlink()) {
        return Err(io::Error::other(format!("{} is a symbolic link", dir.display())));
    }
    fs::create_dir_all(&dir)?;
    let file = dir.join(".gitignore");
    let in_git = cwd.ancestors().any(|dir| dir.join(".git").exists());
    if !in_git || file.exists() {
        return Ok(());
    }
    replace_with_mode(&file, GITIGNORE.as_bytes(), 0o644)
}

/// Replaces a file with a value as pretty JSON.
pub fn replace_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    replace(path, &text)
}

/// Makes the names in a directory durable.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// A place beside a file, taken on disk before the content is known: for what must not be lost
/// once it came. When it is dropped unfilled the file stays as it was.
#[derive(Debug)]
pub struct Reserved {
    temp: tempfile::NamedTempFile,
    path: PathBuf,
}

impl Reserved {
    /// Takes place for so many bytes; fails where they could not be written.
    pub fn beside(path: &Path, bytes: usize) -> io::Result<Reserved> {
        let mut temp = tempfile::Builder::new().prefix(".tmp-").tempfile_in(parent_of(path))?;
        temp.write_all(&vec![b' '; bytes])?;
        temp.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
        temp.as_file().sync_data()?;
        Ok(Reserved { temp, path: path.to_owned() })
    }

    /// Replaces the file by this content in one step.
    pub fn fill(mut self, content: &[u8]) -> io::Result<()> {
        self.temp.rewind()?;
        self.temp.write_all(content)?;
        self.temp.as_file().set_len(content.len() as u64)?;
        self.temp.as_file().sync_data()?;
        self.temp.persist(&self.path).map_err(|e| e.error)?;
        Ok(())
    }
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// An append-only file of JSON lines. One write per line, so that a crash tears at most the last.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Whether the last line may be half: a write failed on it.
    torn: bool,
}

impl Journal {
    /// Opens or makes a journal; a torn last line of an earlier crash is ended first.
    pub fn open(path: &Path) -> io::Result<Journal> {
        let file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let mut journal = Journal { path: path.to_owned(), file, torn: false };
        if journal.is_torn()? {
            journal.file.write_all(b"\n")?;
        }
        Ok(journal)
    }

    fn is_torn(&self) -> io::Result<bool> {
        use std::os::unix::fs::FileExt;
        let length = self.file.metadata()?.len();
        if length == 0 {
            return Ok(false);
        }
        let mut last = [0u8];
        self.file.read_exact_at(&mut last, length - 1)?;
        Ok(last != *b"\n")
    }

    /// Appends one line.
    pub fn append(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        if self.torn {
            line.insert(0, b'\n');
        }
        self.torn = true;
        self.file.write_all(&line)?;
        self.torn = false;
        Ok(())
    }

    /// Makes what was appended durable (about 4 ms: once a turn, and before every git action).
    pub fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads a journal: every line that parses, in order. A missing file has no lines; a torn or
/// unknown line is skipped.
pub fn read_journal<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// Marks a durable step. With `G3_TEST_KILL_AT=NAME` in the environment the process kills itself
/// here with SIGKILL (`NAME:N`: at the N-th pass); with `G3_TEST_STEPS=FILE` the name is appended
/// to that file, which is how the crash tests learn every name there is.
pub fn step(name: &str) {
    if let Some(file) = std::env::var_os("G3_TEST_STEPS")
        && let Ok(mut file) = OpenOptions::new().append(true).create(true).open(file)
    {
        let _ = file.write_all(format!("{name}\n").as_bytes());
    }
    let Ok(at) = std::env::var("G3_TEST_KILL_AT") else { return };
    let (wanted, pass) = at
        .split_once(':')
        .map_or((at.as_str(), 1), |(name, n)| (name, n.parse::<u32>().unwrap_or(1)));
    if wanted == name && passes(name) >= pass {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

fn passes(name: &str) -> u32 {
    use std::collections::HashMap;
    use std::sync::Mutex;
    static PASSES: Mutex<Option<HashMap<String, u32>>> = Mutex::new(None);
    let mut passes = PASSES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let count = passes.get_or_insert_default().entry(name.to_owned()).or_insert(0);
    *count += 1;
    *count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_survives_a_torn_last_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j.jsonl");
        Journal::open(&path).unwrap().append(&1).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"[2, ").unwrap();
        Journal::open(&path).unwrap().append(&3).unwrap();
        assert_eq!(read_journal::<u32>(&path).unwrap(), vec![1, 3]);
    }

    #[test]
    fn a_replaced_file_is_private_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
