//! Messages to a running session: files in `inbox/`, which any process may write and which are read
//! before the next model request.
//!
//! A message is `<milliseconds since 1970, 13 digits>_<number, 6 digits>.msg`, UTF-8, at most 64
//! KB. It is written to a temporary file and renamed, so that it is complete or absent. Messages
//! are delivered in the order of their names, each once: the journal records the delivered names.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use base::failure::{Failure, OrFail, Result};

use crate::context::Inbox;

/// Maximum size of a message in bytes.
const MAX_SIZE: u64 = 64 * 1024;

/// A queued message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueuedMessage {
    /// The name of its file.
    pub name: String,
    /// The text.
    pub text: String,
}

/// Adds a message to a session's inbox.
pub fn post(session_dir: &Path, text: &str) -> Result<()> {
    if text.trim().is_empty() {
        return Err(Failure::usage("the message is empty"));
    }
    if text.len() as u64 > MAX_SIZE {
        let what = format!("the message has {} bytes, and {MAX_SIZE} is the most", text.len());
        return Err(Failure::usage(what).hint("put it into a file and send the file's name"));
    }
    let inbox_dir = inbox_dir(session_dir);
    fs::create_dir_all(&inbox_dir).or_fail(|| format!("cannot make {}", inbox_dir.display()))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let file = free_name(&inbox_dir, now).or_fail(|| "cannot find a name for the message")?;
    base::files::replace(&file, text.as_bytes())
        .or_fail(|| format!("cannot write {}", file.display()))
}

/// Returns a name that sorts after all queued messages.
fn free_name(inbox_dir: &Path, now: u128) -> io::Result<PathBuf> {
    let last = names(inbox_dir)?.into_iter().next_back().unwrap_or_default();
    let (time, number) = last.trim_end_matches(".msg").split_once('_').unwrap_or_default();
    let time: u128 = time.parse().unwrap_or_default();
    let number = number.parse::<u32>().unwrap_or_default();
    let (time, number) = if time >= now { (time, number + 1) } else { (now, 0) };
    Ok(inbox_dir.join(format!("{time:013}_{number:06}.msg")))
}

/// Returns the queued messages in order. Other files are ignored and not removed.
fn queued(session_dir: &Path) -> Vec<QueuedMessage> {
    let inbox_dir = inbox_dir(session_dir);
    let messages = names(&inbox_dir).unwrap_or_default().into_iter().filter_map(|name| {
        let file = inbox_dir.join(&name);
        let metadata = fs::symlink_metadata(&file).ok()?;
        if !metadata.is_file() || metadata.len() > MAX_SIZE {
            return None;
        }
        let text = String::from_utf8_lossy(&base::files::read(&file).ok()?).into_owned();
        Some(QueuedMessage { name, text })
    });
    messages.filter(|message| !message.text.trim().is_empty()).collect()
}

/// The inbox in a session's directory.
#[derive(Clone, Debug)]
pub(crate) struct InboxDir(pub PathBuf);

impl Inbox for InboxDir {
    fn queued(&self) -> Vec<(String, String)> {
        queued(&self.0).into_iter().map(|message| (message.name, message.text)).collect()
    }

    fn remove(&self, name: &str) {
        // A file that cannot be removed is known by its name and not delivered again.
        let _ = fs::remove_file(inbox_dir(&self.0).join(name));
    }
}

fn inbox_dir(session_dir: &Path) -> PathBuf {
    session_dir.join("inbox")
}

/// Returns the sorted names of the messages.
fn names(inbox_dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(inbox_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| is_message_name(name));
    names.sort();
    Ok(names)
}

fn is_message_name(name: &str) -> bool {
    let digits = |text: &str, n: usize| text.len() == n && text.bytes().all(|b| b.is_ascii_digit());
    let parts = name.strip_suffix(".msg").and_then(|stem| stem.split_once('_'));
    parts.is_some_and(|(time, number)| digits(time, 13) && digits(number, 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_delivered_in_the_order_they_were_posted() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..5 {
            post(dir.path(), &format!("letter {n}")).unwrap();
        }
        let texts: Vec<String> = queued(dir.path()).into_iter().map(|l| l.text).collect();
        assert_eq!(texts, (0..5).map(|n| format!("letter {n}")).collect::<Vec<_>>());
    }

    #[test]
    fn other_files_in_the_inbox_are_ignored_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        post(dir.path(), "heard").unwrap();
        let inbox_dir = inbox_dir(dir.path());
        for name in ["note.txt", "1_2.msg", "0000000000001_000001.msg.tmp"] {
            fs::write(inbox_dir.join(name), "never").unwrap();
        }
        std::os::unix::fs::symlink("/etc/hostname", inbox_dir.join("0000000000001_000001.msg"))
            .unwrap();
        fs::write(inbox_dir.join("0000000000002_000001.msg"), vec![b'x'; 70_000]).unwrap();
        let texts: Vec<String> = queued(dir.path()).into_iter().map(|l| l.text).collect();
        assert_eq!(texts, ["heard"]);
        assert!(post(dir.path(), &"x".repeat(70_000)).unwrap_err().what.contains("bytes"));
    }
}
