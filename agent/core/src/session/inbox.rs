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
const LONGEST: u64 = 64 * 1024;

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
    if text.len() as u64 > LONGEST {
        let what = format!("the message has {} bytes, and {LONGEST} is the most", text.len());
        return Err(Failure::usage(what).hint("put it into a file and send the file's name"));
    }
    let folder = folder(session_dir);
    fs::create_dir_all(&folder).or_fail(|| format!("cannot make {}", folder.display()))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let file = free_name(&folder, now).or_fail(|| "cannot find a name for the message")?;
    base::files::replace(&file, text.as_bytes())
        .or_fail(|| format!("cannot write {}", file.display()))
}

/// Returns a name that sorts after all queued messages.
fn free_name(folder: &Path, now: u128) -> io::Result<PathBuf> {
    let last = names(folder)?.into_iter().next_back().unwrap_or_default();
    let (time, number) = last.trim_end_matches(".msg").split_once('_').unwrap_or_default();
    let time: u128 = time.parse().unwrap_or_default();
    let number = number.parse::<u32>().unwrap_or_default();
    let (time, number) = if time >= now { (time, number + 1) } else { (now, 0) };
    Ok(folder.join(format!("{time:013}_{number:06}.msg")))
}

/// Returns the queued messages in order. Other files are ignored and not removed.
fn waiting(session_dir: &Path) -> Vec<QueuedMessage> {
    let folder = folder(session_dir);
    let letters = names(&folder).unwrap_or_default().into_iter().filter_map(|name| {
        let file = folder.join(&name);
        let whole = fs::symlink_metadata(&file).ok()?;
        if !whole.is_file() || whole.len() > LONGEST {
            return None;
        }
        let text = String::from_utf8_lossy(&fs::read(&file).ok()?).into_owned();
        Some(QueuedMessage { name, text })
    });
    letters.filter(|letter| !letter.text.trim().is_empty()).collect()
}

/// The inbox in a session's directory.
#[derive(Clone, Debug)]
pub(crate) struct InboxDir(pub PathBuf);

impl Inbox for InboxDir {
    fn waiting(&self) -> Vec<(String, String)> {
        waiting(&self.0).into_iter().map(|letter| (letter.name, letter.text)).collect()
    }

    fn heard(&self, name: &str) {
        // A file that cannot be removed is known by its name and not delivered again.
        let _ = fs::remove_file(folder(&self.0).join(name));
    }
}

fn folder(session_dir: &Path) -> PathBuf {
    session_dir.join("inbox")
}

/// Returns the sorted names of the messages.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| is_letter(name));
    names.sort();
    Ok(names)
}

fn is_letter(name: &str) -> bool {
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
        let texts: Vec<String> = waiting(dir.path()).into_iter().map(|l| l.text).collect();
        assert_eq!(texts, (0..5).map(|n| format!("letter {n}")).collect::<Vec<_>>());
    }

    #[test]
    fn other_files_in_the_inbox_are_ignored_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        post(dir.path(), "heard").unwrap();
        let folder = folder(dir.path());
        for name in ["note.txt", "1_2.msg", "0000000000001_000001.msg.tmp"] {
            fs::write(folder.join(name), "never").unwrap();
        }
        std::os::unix::fs::symlink("/etc/hostname", folder.join("0000000000001_000001.msg"))
            .unwrap();
        fs::write(folder.join("0000000000002_000001.msg"), vec![b'x'; 70_000]).unwrap();
        let texts: Vec<String> = waiting(dir.path()).into_iter().map(|l| l.text).collect();
        assert_eq!(texts, ["heard"]);
        assert!(post(dir.path(), &"x".repeat(70_000)).unwrap_err().what.contains("bytes"));
    }
}
