//! The raw output of an agent: limited, rotated once (`agent.log`, `agent.log.1`).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A log of limited size: two files of half of the limit.
#[derive(Debug)]
pub(crate) struct OutputLog {
    path: PathBuf,
    file: File,
    length: u64,
    file_limit: u64,
    total_bytes: u64,
}

impl OutputLog {
    /// Opens a log with a limit in bytes.
    pub(crate) fn open(path: &Path, max_bytes: u64) -> io::Result<OutputLog> {
        let file = open(path)?;
        let length = file.metadata()?.len();
        Ok(OutputLog {
            path: path.to_owned(),
            file,
            length,
            file_limit: (max_bytes / 2).max(1),
            total_bytes: 0,
        })
    }

    /// Appends to the log and rotates it if necessary. Returns the number of bytes written since
    /// the start.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<u64> {
        if self.length + bytes.len() as u64 > self.file_limit && self.length > 0 {
            let mut rotated = self.path.clone().into_os_string();
            rotated.push(".1");
            std::fs::rename(&self.path, rotated)?;
            self.file = open(&self.path)?;
            self.length = 0;
        }
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        self.total_bytes += bytes.len() as u64;
        Ok(self.total_bytes)
    }
}

/// Reads a growing log, also across a rotation.
#[derive(Debug)]
pub struct RawTail {
    path: PathBuf,
    file: Option<File>,
    start: u64,
    /// The incomplete last character.
    incomplete: Vec<u8>,
}

impl RawTail {
    /// Creates a reader that starts at the first byte.
    pub fn from_start(path: PathBuf) -> RawTail {
        RawTail { path, file: None, start: 0, incomplete: Vec::new() }
    }

    /// Continues at this byte of the log; at its end if the log is shorter.
    pub fn skip_to(&mut self, offset: u64) {
        self.file = None;
        self.start = offset;
        self.incomplete.clear();
    }

    /// Returns the text since the last call.
    pub fn read_more(&mut self) -> io::Result<String> {
        let mut bytes = std::mem::take(&mut self.incomplete);
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut bytes)?;
        }
        if !self.is_current()? {
            let mut file = match File::open(&self.path) {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
                Err(e) => return Err(e),
            };
            let offset = std::mem::take(&mut self.start).min(file.metadata()?.len());
            file.seek(io::SeekFrom::Start(offset))?;
            file.read_to_end(&mut bytes)?;
            self.file = Some(file);
        }
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            self.incomplete = bytes.split_off(error.valid_up_to());
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns whether the open file is still the one at the path.
    fn is_current(&self) -> io::Result<bool> {
        let Some(file) = &self.file else { return Ok(false) };
        match std::fs::metadata(&self.path) {
            Ok(metadata) => Ok(metadata.ino() == file.metadata()?.ino()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(e) => Err(e),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_reads_everything_once_across_a_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.log");
        let mut tail = RawTail::from_start(path.clone());
        assert_eq!(tail.read_more().unwrap(), "");
        let mut log = OutputLog::open(&path, 40).unwrap();
        log.write("first é".as_bytes()).unwrap();
        log.write(&"é".as_bytes()[..1]).unwrap();
        assert_eq!(tail.read_more().unwrap(), "first é");
        log.write(&"é".as_bytes()[1..]).unwrap();
        log.write(b"before").unwrap();
        log.write(b"after the rotation").unwrap();
        assert!(dir.path().join("agent.log.1").exists());
        assert_eq!(tail.read_more().unwrap(), "ébeforeafter the rotation");
        assert_eq!(tail.read_more().unwrap(), "");
        tail.skip_to(6);
        assert_eq!(tail.read_more().unwrap(), "the rotation");
    }

    #[test]
    fn a_log_stays_within_its_limit_and_keeps_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.log");
        let mut log = OutputLog::open(&path, 1000).unwrap();
        for n in 0..100 {
            log.write(format!("line {n:04}\n").repeat(5).as_bytes()).unwrap();
        }
        let current = std::fs::read_to_string(&path).unwrap();
        let rotated = std::fs::read_to_string(dir.path().join("agent.log.1")).unwrap();
        assert!(current.ends_with("line 0099\n") && current.len() + rotated.len() <= 1000);
    }
}
