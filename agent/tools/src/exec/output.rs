//! Captures an output stream of a command: streams it, shows a part of it, and saves it to a file
//! if it is long.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// How much of a stream is shown, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct OutputBudget {
    /// Bytes from the start.
    pub head: usize,
    /// Bytes from the end.
    pub tail: usize,
}

impl OutputBudget {
    /// Reduces the budget to `limit` bytes.
    pub fn within(self, limit: usize) -> OutputBudget {
        if self.head + self.tail <= limit {
            return self;
        }
        let tail = self.tail.min(limit / 2);
        OutputBudget { head: self.head.min(limit - tail), tail }
    }
}

/// Maximum size in bytes of a saved output.
const MAX_LOG: u64 = 256 << 20;

/// Captures a stream.
pub struct StreamCapture {
    budget: OutputBudget,
    directory: PathBuf,
    suffix: String,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    log: Option<(File, PathBuf)>,
    /// The first bytes of an incomplete character.
    pending: Vec<u8>,
}

/// A captured stream.
#[derive(Debug, Default)]
pub struct CapturedStream {
    /// The whole text, or its start.
    pub head: String,
    /// The end, if the middle is omitted.
    pub tail: String,
    /// Number of bytes omitted between the two.
    pub omitted: u64,
    /// Total number of bytes.
    pub total: u64,
    /// The file with the complete output, if a part is omitted.
    pub log: Option<PathBuf>,
}

/// Formats a stream with a marker for the omitted part.
pub fn render(stream: &CapturedStream) -> String {
    if stream.omitted == 0 {
        return stream.head.clone();
    }
    let location = stream.log.as_ref().map_or_else(String::new, |log| {
        format!("; all {} bytes are in {}", stream.total, log.display())
    });
    let newline = if stream.head.ends_with('\n') { "" } else { "\n" };
    format!(
        "{}{newline}[truncated {} bytes{location}]\n{}",
        stream.head, stream.omitted, stream.tail
    )
}

impl StreamCapture {
    /// Starts capturing. A long stream is saved to a file in `directory` whose name ends with
    /// `suffix`.
    pub fn new(budget: OutputBudget, directory: &Path, suffix: &str) -> StreamCapture {
        StreamCapture {
            budget,
            directory: directory.to_owned(),
            suffix: suffix.to_owned(),
            head: Vec::new(),
            tail: VecDeque::new(),
            total: 0,
            log: None,
            pending: Vec::new(),
        }
    }

    /// Adds bytes and returns the text that is complete so far.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.save(bytes);
        self.total += bytes.len() as u64;
        let head_len = self.budget.head.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..head_len]);
        self.tail.extend(&bytes[head_len..]);
        let excess = self.tail.len().saturating_sub(self.budget.tail);
        self.tail.drain(..excess);
        self.decode(bytes)
    }

    /// Writes to the file once the output exceeds what is shown.
    fn save(&mut self, bytes: &[u8]) {
        let budget = (self.budget.head + self.budget.tail) as u64;
        if self.log.is_none() && self.total + bytes.len() as u64 > budget {
            self.log = self.start_log();
        }
        let remaining = usize::try_from(MAX_LOG.saturating_sub(self.total)).unwrap_or(usize::MAX);
        if let Some((file, _)) = &mut self.log
            && file.write_all(&bytes[..bytes.len().min(remaining)]).is_err()
        {
            // If the disk is full, the file is dropped, but the command continues.
            self.log = None;
        }
    }

    fn start_log(&self) -> Option<(File, PathBuf)> {
        std::fs::create_dir_all(&self.directory).ok()?;
        let file = tempfile::Builder::new()
            .prefix("output-")
            .suffix(&format!(".{}.txt", self.suffix))
            .tempfile_in(&self.directory)
            .ok()?;
        let (mut file, path) = file.keep().ok()?;
        file.write_all(&self.head).ok()?;
        let (first, second) = self.tail.as_slices();
        file.write_all(first).and_then(|()| file.write_all(second)).ok()?;
        Some((file, path))
    }

    fn decode(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let complete_len = complete_prefix_len(&self.pending);
        let rest = self.pending.split_off(complete_len);
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending = rest;
        text
    }

    /// Returns the last bytes as text, to look for a prompt.
    pub fn last(&self, count: usize) -> String {
        let bytes: Vec<u8> = self.head.iter().chain(&self.tail).copied().collect();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(count)..]).into_owned()
    }

    /// Returns the captured stream.
    pub fn finish(self) -> CapturedStream {
        let mut head = self.head;
        let tail: Vec<u8> = self.tail.into();
        let omitted = self.total - (head.len() + tail.len()) as u64;
        if omitted == 0 {
            head.extend_from_slice(&tail);
            let head = String::from_utf8_lossy(&head).into_owned();
            return CapturedStream { head, total: self.total, ..CapturedStream::default() };
        }
        head.truncate(complete_prefix_len(&head));
        let start = tail.iter().take(3).take_while(|byte| *byte & 0xc0 == 0x80).count();
        CapturedStream {
            head: String::from_utf8_lossy(&head).into_owned(),
            tail: String::from_utf8_lossy(&tail[start..]).into_owned(),
            omitted,
            total: self.total,
            log: self.log.map(|(_, path)| path),
        }
    }
}

/// Returns the number of bytes from the start that end at a character boundary. Invalid UTF-8
/// counts as complete; only a character truncated at the very end does not.
fn complete_prefix_len(bytes: &[u8]) -> usize {
    let from_end = bytes.iter().rev().take(3).position(|byte| *byte & 0xc0 != 0x80);
    let Some(from_end) = from_end else { return bytes.len() };
    let start = bytes.len() - 1 - from_end;
    let length = match bytes[start] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if from_end + 1 < length { start } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_stream_is_shown_in_full_and_creates_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture =
            StreamCapture::new(OutputBudget { head: 4, tail: 4 }, dir.path(), "stdout");
        assert_eq!(capture.push("aé".as_bytes()), "aé");
        capture.push(b"12345");
        let got = capture.finish();
        assert_eq!((got.head.as_str(), got.omitted, got.log), ("aé12345", 0, None));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_long_stream_is_saved_in_full_and_truncated_at_characters() {
        let dir = tempfile::tempdir().unwrap();
        let all: String = "0é1ü2ö3ä".repeat(50);
        for size in 1..7 {
            let mut capture =
                StreamCapture::new(OutputBudget { head: 8, tail: 8 }, dir.path(), "stdout");
            let heard: String = all.as_bytes().chunks(size).map(|c| capture.push(c)).collect();
            assert_eq!(heard, all);
            let got = capture.finish();
            assert_eq!(std::fs::read_to_string(got.log.unwrap()).unwrap(), all);
            assert!(
                all.starts_with(&got.head) && all.ends_with(&got.tail),
                "{got:?}",
                got = got.head
            );
            assert!(got.head.len() >= 6 && got.tail.len() >= 6);
        }
    }

    #[test]
    fn binary_output_is_captured() {
        let dir = tempfile::tempdir().unwrap();
        let mut capture =
            StreamCapture::new(OutputBudget { head: 100, tail: 0 }, dir.path(), "stdout");
        capture.push(&[0xff, b'a', 0xe2, 0x82]);
        assert_eq!(capture.finish().head, "\u{fffd}a\u{fffd}");
    }
}
