//! The journal of a session: who holds the session's lock appends, everybody reads.

use std::io;
use std::path::{Path, PathBuf};

use base::clock::Clock;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session::record::RunLimits;

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalLine {
    /// RFC 3339, UTC.
    pub time: String,
    /// What happened.
    #[serde(flatten)]
    pub entry: JournalEntry,
}

/// What can happen to a session. A reader that does not know an entry cannot tell the session's state
/// and says so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum JournalEntry {
    /// It waits for a free place; `prompt` is what the agent is told then, the task if absent.
    Queued {
        /// What is said beyond the task, by `send` or `resume`.
        prompt: Option<String>,
    },
    /// A supervisor took over.
    Spawned {
        /// Its process id.
        pid: u32,
    },
    /// The worktree stands.
    Worktree,
    /// The agent runs.
    Agent {
        /// The name of its conversation, when the agent can load it again.
        talk: Option<String>,
    },
    /// The agent was given something to do.
    Turn {
        /// Counts from 1 through the life of the session.
        n: u32,
        /// What it was told.
        text: String,
        /// The length of its log before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log_bytes: Option<u64>,
    },
    /// An event in g3's wire form (`base::event`), as it came.
    Event {
        /// The event.
        event: Value,
    },
    /// The agent asks whether it may do something.
    Asked {
        /// The number to answer with. Counts from 1 through the life of the session.
        n: u32,
        /// What it wants, as the agent says it.
        what: String,
        /// Requests with the same text here are of one kind; `what` itself when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
    },
    /// A request was decided.
    Answered {
        /// The number of the request.
        n: u32,
        /// The decision.
        allow: bool,
        /// Whether it holds for further requests of this kind.
        #[serde(default, skip_serializing_if = "is_false")]
        always: bool,
        /// `user`, or `studio` where no person was asked.
        by: String,
        /// Why studio decided it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The user changed how the session is run; what is absent stays as it is.
    Settings {
        /// Limits that replace the earlier ones.
        limits: RunLimits,
        /// Whether permission requests wait for the user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attended: Option<bool>,
    },
    /// Text for the agent that waits for the end of its turn.
    Sent {
        /// What it will be told.
        text: String,
    },
    /// The agent ended its turn.
    TurnEnd {
        /// Which turn.
        n: u32,
        /// What went wrong; absent for a good end.
        why: Option<String>,
    },
    /// What the session holds now, after import and snapshot.
    Work(WorkSummary),
    /// The checks run.
    Checking,
    /// The checks ran.
    Checked {
        /// One result for each command.
        results: Vec<CheckResult>,
    },
    /// The user changed the commands that must pass; the new list.
    Checks {
        /// One `sh -c` line each.
        commands: Vec<String>,
    },
    /// Somebody wants the session to end.
    StopRequested,
    /// A limit was reached.
    Limit {
        /// Which, in words.
        what: String,
    },
    /// Something worth knowing that changes no state.
    Note {
        /// One sentence.
        text: String,
    },
    /// The last line of a supervised run.
    Exit {
        /// How it ended.
        outcome: SessionOutcome,
        /// Milliseconds that the run took; the times of its lines tell it when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ms: Option<u64>,
    },
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What a session holds, compared with its base.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkSummary {
    /// The commit that it is compared with: the merge base with the branch that it would land on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The tip of the session's branch.
    pub head: String,
    /// The snapshot of uncommitted work, when there is any.
    pub snapshot: Option<String>,
    /// Commits since that one.
    pub commits: u64,
    /// Files that differ from the base, uncommitted ones included.
    pub files_changed: u64,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Whether there is uncommitted work.
    pub dirty: bool,
    /// Paths that are too large, or too many, to be in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// What was found strange or left out, one sentence each.
    pub notes: Vec<String>,
}

impl WorkSummary {
    /// Returns the commit that holds all of it.
    pub fn commit(&self) -> &str {
        self.snapshot.as_ref().unwrap_or(&self.head)
    }

    /// Returns whether anything differs from the base.
    pub fn is_changed(&self) -> bool {
        self.commits > 0 || self.files_changed > 0
    }
}

/// How one check went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// The `sh -c` line.
    pub command: String,
    /// Whether it passed.
    pub ok: bool,
    /// Its exit code.
    pub exit: i32,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// The end of what it wrote.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tail: String,
    /// A likely cause of the failure that is not in what it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The branch whose tip it fails on as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fails_on: Option<String>,
}

impl CheckResult {
    /// Returns why a check failed, in one line.
    pub fn failure(&self) -> String {
        let failed = format!("check `{}` failed with exit code {}", self.command, self.exit);
        match &self.hint {
            Some(hint) => format!("{failed}: {hint}"),
            None => failed,
        }
    }
}

/// How a supervised run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SessionOutcome {
    /// Every check passed, or none is configured.
    Ready,
    /// The agent or a check failed.
    Failed {
        /// One sentence.
        why: String,
    },
    /// The agent finished and changed nothing.
    Empty,
    /// The user ended it.
    Stopped,
}

/// A journal that is open for appending, with the clock that stamps its lines.
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

    /// Makes what was written durable.
    pub fn sync(&mut self) -> io::Result<()> {
        self.journal.sync()
    }
}

/// Reads a journal that grows: each call gives the whole lines that were added since the last.
#[derive(Debug)]
pub struct JournalTail {
    path: PathBuf,
    at: u64,
}

impl JournalTail {
    /// Returns a reader that starts at the first line.
    pub fn from_start(path: PathBuf) -> JournalTail {
        JournalTail { path, at: 0 }
    }

    /// Returns what was added since the last call.
    pub fn more(&mut self) -> io::Result<Vec<JournalLine>> {
        use std::os::unix::fs::FileExt;
        let file = match std::fs::File::open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(e),
        };
        let length = file.metadata()?.len();
        if length <= self.at {
            return Ok(Vec::new());
        }
        let mut bytes = vec![0; usize::try_from(length - self.at).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, self.at)?;
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        self.at += whole as u64;
        Ok(parse_lines(&bytes[..whole]))
    }
}

fn parse_lines(bytes: &[u8]) -> Vec<JournalLine> {
    let lines = bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_gives_each_whole_line_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.jsonl");
        let mut tail = JournalTail::from_start(path.clone());
        assert!(tail.more().unwrap().is_empty());
        let mut writer = JournalWriter::open(&path, Clock::from_env()).unwrap();
        writer.write(JournalEntry::Queued { prompt: None }).unwrap();
        assert_eq!(tail.more().unwrap()[0].entry, JournalEntry::Queued { prompt: None });
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .map(|mut f| std::io::Write::write_all(&mut f, b"{\"time\":\"t\",\"entry\":\"che"))
            .unwrap()
            .unwrap();
        assert!(tail.more().unwrap().is_empty(), "half a line is not a line");
        JournalWriter::open(&path, Clock::from_env())
            .unwrap()
            .write(JournalEntry::Checking)
            .unwrap();
        let more: Vec<_> = tail.more().unwrap().into_iter().map(|line| line.entry).collect();
        assert_eq!(more, [JournalEntry::Checking], "a torn line is skipped");
    }
}
