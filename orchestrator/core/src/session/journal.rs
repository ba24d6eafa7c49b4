//! The journal of a session: written by the holder of the session's lock, readable by all.

use std::io;
use std::path::{Path, PathBuf};

use base::clock::Clock;
use base::files::PendingSync;
use base::id::Id;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session::record::RunLimits;

/// The reason of a turn that was cancelled, by the user or by a limit.
pub const TURN_CANCELLED: &str = "the turn was cancelled";

/// Describes the end of a turn.
pub fn turn_end_text(turn: u32, why: Option<&str>) -> String {
    match why {
        None => format!("turn {turn} ended"),
        Some(TURN_CANCELLED) => format!("turn {turn} cancelled"),
        Some(why) => format!("turn {turn} failed: {why}"),
    }
}

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalLine {
    /// The time, RFC 3339 in UTC.
    pub time: String,
    /// The entry.
    #[serde(flatten)]
    pub entry: JournalEntry,
}

/// An event of a session. A reader that does not know an entry cannot determine the session's state
/// and reports that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum JournalEntry {
    /// The session is waiting for a job slot.
    Queued {
        /// The next prompt, from `send` or `resume`; the task when absent.
        prompt: Option<String>,
    },
    /// A supervisor started.
    Spawned {
        /// The supervisor's process id.
        pid: u32,
    },
    /// A line of the setup runs.
    Setup {
        /// The line.
        line: String,
    },
    /// The worktree is ready.
    Worktree,
    /// The agent is running.
    Agent {
        /// The id of its conversation, if the agent can load it again.
        #[serde(rename = "talk")]
        conversation_id: Option<String>,
    },
    /// The agent got a prompt.
    Turn {
        /// The number of the turn, starting at 1, over all runs.
        n: u32,
        /// The prompt.
        text: String,
        /// The length of the agent's log before the turn, in bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log_bytes: Option<u64>,
    },
    /// An event in g3's wire format (`base::event`), unchanged.
    Event {
        /// The event.
        event: Value,
    },
    /// The agent requests a permission.
    Asked {
        /// The number of the request, starting at 1, over all runs.
        n: u32,
        /// The agent's description.
        what: String,
        /// The kind: requests with the same text are of one kind; `what` when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// The host that it wants to reach, if it is a connection of the sandbox.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
    },
    /// A request was answered.
    Answered {
        /// The number of the request.
        n: u32,
        /// Whether it is allowed.
        allow: bool,
        /// Whether the answer also applies to further requests of its kind.
        #[serde(default, skip_serializing_if = "is_false")]
        always: bool,
        /// `user`, or `studio` without asking the user.
        by: String,
        /// Why studio decided it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The user changed the settings of the session; absent ones are unchanged.
    Settings {
        /// The new limits.
        limits: RunLimits,
        /// Whether permission requests wait for the user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attended: Option<bool>,
    },
    /// A message for the agent that waits for the end of its turn.
    Sent {
        /// The message.
        text: String,
    },
    /// The agent ended its turn.
    TurnEnd {
        /// The number of the turn.
        n: u32,
        /// The error; `None` if the turn ended normally.
        why: Option<String>,
    },
    /// The collected work of the session, after import and snapshot.
    Work(WorkSummary),
    /// The checks started.
    Checking,
    /// The checks ran.
    Checked {
        /// The result of each command.
        results: Vec<CheckResult>,
    },
    /// The user changed the checks.
    Checks {
        /// One `sh -c` line each.
        commands: Vec<String>,
    },
    /// The session was asked to stop.
    StopRequested {
        /// Why, as a clause; absent if the user asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// A limit was reached.
    Limit {
        /// The limit, in words.
        what: String,
    },
    /// Another session changes the same lines. Each file is told once.
    SameLines {
        /// The other session.
        id: Id,
        /// The conflicting files.
        files: Vec<String>,
    },
    /// The account of the agent is rate limited: the turn was cancelled, or does not begin yet.
    Parked {
        /// When the limit ends, RFC 3339 in UTC.
        until: String,
        /// The message of the agent that reported it.
        why: String,
    },
    /// The rate limit has ended.
    Unparked,
    /// The agent counts as stuck.
    Stalled {
        /// Why, as a clause.
        why: String,
    },
    /// The agent makes progress again.
    StallEnded,
    /// A note that does not change the state.
    Note {
        /// One sentence.
        text: String,
    },
    /// The last entry of a supervised run.
    Exit {
        /// The outcome.
        outcome: SessionOutcome,
        /// The duration of the run in milliseconds; derived from the times of its lines when
        /// absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ms: Option<u64>,
    },
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The work of a session, compared with its base.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkSummary {
    /// The commit to compare with: the merge base with the branch that it would land on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The tip of the session's branch.
    pub head: String,
    /// The snapshot of uncommitted changes, if there are any.
    pub snapshot: Option<String>,
    /// The number of commits since the base.
    pub commits: u64,
    /// The number of files that differ from the base, including uncommitted ones.
    pub files_changed: u64,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Whether there are uncommitted changes.
    pub dirty: bool,
    /// Excluded paths: too large, or too many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "left_out")]
    pub omitted: Vec<String>,
    /// Notes about anomalies and omissions, one sentence each.
    pub notes: Vec<String>,
}

impl WorkSummary {
    /// Returns the commit that contains all of the work.
    pub fn commit(&self) -> &str {
        self.snapshot.as_ref().unwrap_or(&self.head)
    }

    /// Returns whether anything differs from the base.
    pub fn is_changed(&self) -> bool {
        self.commits > 0 || self.files_changed > 0
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// The `sh -c` line.
    pub command: String,
    /// Whether it passed.
    pub ok: bool,
    /// Its exit code.
    pub exit: i32,
    /// The duration in milliseconds.
    pub ms: u64,
    /// The end of its output.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tail: String,
    /// A likely cause of the failure that the output does not name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The limit that it reached, and what the user can do, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The branch on whose tip the check fails as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fails_on: Option<String>,
    /// Whether it failed first and passed when it was repeated on the same files.
    #[serde(default, skip_serializing_if = "is_false")]
    pub flaky: bool,
}

impl CheckResult {
    /// Describes the failure of a check in one line.
    pub fn failure(&self) -> String {
        let failed = format!("check `{}` failed with exit code {}", self.command, self.exit);
        match self.limit.as_ref().or(self.hint.as_ref()) {
            Some(hint) => format!("{failed}: {hint}"),
            None => failed,
        }
    }
}

/// Describes that another session changes the same lines.
pub fn same_lines_text(id: &Id, files: &[String]) -> String {
    format!("{id} changes the same lines: {}", files.join(", "))
}

/// The outcome of a supervised run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SessionOutcome {
    /// All checks passed, or none is configured.
    Ready,
    /// The agent or a check failed.
    Failed {
        /// One sentence.
        why: String,
    },
    /// The agent finished without changes.
    Empty,
    /// The user stopped it.
    Stopped,
}

/// Returns the content of a new journal with one entry.
pub(crate) fn first_line(entry: JournalEntry, clock: Clock) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(&JournalLine { time: clock.stamp(), entry })?;
    line.push(b'\n');
    Ok(line)
}

/// An open journal, with the clock for its timestamps.
#[derive(Debug)]
pub struct JournalWriter {
    journal: base::files::Journal,
    clock: Clock,
}

impl JournalWriter {
    /// Opens a session's journal.
    pub(crate) fn open(path: &Path, clock: Clock) -> io::Result<JournalWriter> {
        Ok(JournalWriter { journal: base::files::Journal::open(path)?, clock })
    }

    /// Appends one entry.
    pub fn write(&mut self, entry: JournalEntry) -> io::Result<()> {
        self.journal.append(&JournalLine { time: self.clock.stamp(), entry })
    }

    /// Makes written entries durable.
    pub fn sync(&mut self) -> io::Result<()> {
        self.journal.sync()
    }

    /// Begins to make written entries durable.
    pub(crate) fn start_sync(&self) -> io::Result<PendingSync> {
        self.journal.start_sync()
    }
}

/// Reads a growing journal: each call returns the complete lines since the last one.
#[derive(Debug)]
pub struct JournalTail {
    path: PathBuf,
    offset: u64,
    unreadable: usize,
}

impl JournalTail {
    /// Creates a reader that starts at the first line.
    pub fn from_start(path: PathBuf) -> JournalTail {
        JournalTail { path, offset: 0, unreadable: 0 }
    }

    /// Creates a reader that starts at the line with this offset.
    pub(crate) fn from_offset(path: PathBuf, offset: u64) -> JournalTail {
        JournalTail { path, offset, unreadable: 0 }
    }

    /// Creates a reader that starts at the first line within the last `max` bytes.
    pub fn from_last(path: PathBuf, max: u64) -> JournalTail {
        let offset = last_line_start(&path, max).unwrap_or(0);
        JournalTail { path, offset, unreadable: 0 }
    }

    /// Returns the number of complete lines that could not be read so far.
    pub(crate) fn unreadable(&self) -> usize {
        self.unreadable
    }

    /// Returns the lines since the last call.
    pub fn read_new(&mut self) -> io::Result<Vec<JournalLine>> {
        use std::os::unix::fs::FileExt;
        let file = match std::fs::File::open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let length = file.metadata()?.len();
        if length <= self.offset {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; usize::try_from(length - self.offset).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, self.offset)?;
        let complete = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |index| index + 1);
        self.offset += complete as u64;
        Ok(self.parse_lines(&bytes[..complete]))
    }

    fn parse_lines(&mut self, bytes: &[u8]) -> Vec<JournalLine> {
        let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        let parsed = lines.map(serde_json::from_slice);
        let readable = parsed.filter_map(|line| line.inspect_err(|_| self.unreadable += 1).ok());
        readable.collect()
    }
}

/// Returns the offset of the first line that starts within the last `max` bytes of a file.
fn last_line_start(path: &Path, max: u64) -> io::Result<u64> {
    use std::io::BufRead;
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open(path)?;
    let Some(start) = file.metadata()?.len().checked_sub(max).filter(|start| *start > 0) else {
        return Ok(0);
    };
    // A line also starts at `start` if the byte before it ends one.
    let mut before = [0];
    file.read_exact_at(&mut before, start - 1)?;
    if before == *b"\n" {
        return Ok(start);
    }
    let mut reader = io::BufReader::new(file);
    io::Seek::seek(&mut reader, io::SeekFrom::Start(start))?;
    let skipped = reader.skip_until(b'\n')?;
    Ok(start + skipped as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_can_start_at_the_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.jsonl");
        let mut writer = JournalWriter::open(&path, Clock::from_env()).unwrap();
        for n in 0..4 {
            writer.write(JournalEntry::Note { text: n.to_string() }).unwrap();
        }
        let line = std::fs::metadata(&path).unwrap().len() / 4;
        let notes = |max: u64| -> Vec<String> {
            let lines = JournalTail::from_last(path.clone(), max).read_new().unwrap();
            let text = |line| match line {
                JournalLine { entry: JournalEntry::Note { text }, .. } => text,
                other => panic!("{other:?}"),
            };
            lines.into_iter().map(text).collect()
        };
        assert_eq!(notes(line * 4), ["0", "1", "2", "3"]);
        assert_eq!(notes(line * 2), ["2", "3"]);
        assert_eq!(notes(line * 2 + 3), ["2", "3"]);
        assert_eq!(notes(line * 2 - 1), ["3"]);
        assert_eq!(notes(1 << 20), ["0", "1", "2", "3"]);
    }

    #[test]
    fn a_tail_returns_each_complete_line_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.jsonl");
        let mut tail = JournalTail::from_start(path.clone());
        assert!(tail.read_new().unwrap().is_empty());
        let mut writer = JournalWriter::open(&path, Clock::from_env()).unwrap();
        writer.write(JournalEntry::Queued { prompt: None }).unwrap();
        assert_eq!(tail.read_new().unwrap()[0].entry, JournalEntry::Queued { prompt: None });
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .map(|mut f| std::io::Write::write_all(&mut f, b"{\"time\":\"t\",\"entry\":\"che"))
            .unwrap()
            .unwrap();
        assert!(tail.read_new().unwrap().is_empty(), "half a line is not a line");
        JournalWriter::open(&path, Clock::from_env())
            .unwrap()
            .write(JournalEntry::Checking)
            .unwrap();
        let entries: Vec<_> = tail.read_new().unwrap().into_iter().map(|line| line.entry).collect();
        assert_eq!(entries, [JournalEntry::Checking], "a torn line is skipped");
    }
}
