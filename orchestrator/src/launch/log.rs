//! The raw output of an agent: bounded, rotated once (`agent.log`, `agent.log.1`).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A log that never grows past its bound: two files of half of it.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    length: u64,
    half: u64,
    total: u64,
}

impl Log {
    /// Opens a log of at most so many bytes.
    pub fn open(path: &Path, bound: u64) -> io::Result<Log> {
        let file = open(path)?;
        let length = file.metadata()?.len();
        Ok(Log { path: path.to_owned(), file, length, half: (bound / 2).max(1), total: 0 })
    }

    /// Appends; the older half makes room. Gives how many bytes were written since the start.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<u64> {
        if self.length + bytes.len() as u64 > self.half && self.length > 0 {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            std::fs::rename(&self.path, old)?;
            self.file = open(&self.path)?;
            self.length = 0;
        }
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        self.total += bytes.len() as u64;
        Ok(self.total)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_stays_within_its_bound_and_keeps_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.log");
        let mut log = Log::open(&path, 1000).unwrap();
        for n in 0..100 {
            log.write(format!("line {n:04}\n").repeat(5).as_bytes()).unwrap();
        }
        let now = std::fs::read_to_string(&path).unwrap();
        let before = std::fs::read_to_string(dir.path().join("agent.log.1")).unwrap();
        assert!(now.ends_with("line 0099\n") && now.len() + before.len() <= 1000);
    }
}
