//! The operation log: what studio is about to change, written first, and the result. Everything
//! that can be undone, and everything that a crash interrupted, is found here.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use base::failure::{Failure, OrFail, Result};
use base::files::{Journal, JournalEnd, UnreadableLine, read_lines_after};
use base::id::Id;
use base::lock::Lock;
use serde::{Deserialize, Serialize};

use crate::checkout::Checkout;
use crate::moved_repository;
use crate::names::BranchName;
use crate::refs::RefChange;
use crate::repo::Repository;
use crate::session_repo::SessionRepo;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Work landed.
    Accept,
    /// Hunks of a session landed, and the session stays open.
    AcceptHunks,
    /// Sessions were discarded.
    Discard,
    /// An operation was undone.
    Undo,
    /// Worktrees were moved.
    Relocate,
    /// A session's work was put into a checkout of the user.
    Try,
}

impl OperationKind {
    /// Returns the name that the user reads.
    pub fn name(self) -> &'static str {
        match self {
            OperationKind::Accept => "accept",
            OperationKind::AcceptHunks => "accept hunks",
            OperationKind::Discard => "discard",
            OperationKind::Undo => "undo",
            OperationKind::Relocate => "move",
            OperationKind::Try => "try",
        }
    }
}

/// The plan of an operation, with enough data to finish it, or to roll it back, in another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The operation's id, e.g. `op7`.
    pub id: String,
    /// The time, RFC 3339.
    pub time: String,
    /// The kind.
    pub kind: OperationKind,
    /// The affected sessions.
    pub sessions: Vec<SessionRepo>,
    /// Those of them that a landing drops, because another attempt at the same task lands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Id>,
    /// The operation that this one undoes.
    pub undoes: Option<String>,
    /// The move of the target branch, with its checkouts.
    pub landing: Option<TargetUpdate>,
    /// Ref changes before directories are moved.
    pub refs_first: Vec<RefChange>,
    /// Directory renames, in this order.
    pub moves: Vec<DirectoryMove>,
    /// Ref changes after directories are moved.
    pub refs_last: Vec<RefChange>,
    /// The receipt, to be stored as a note of the landed commit.
    pub receipt: Option<String>,
    /// The change of the receipts' ref, which moves together with the target unless it moved
    /// otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<RefChange>,
    /// The checkout in which a try begins or ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<TrialTarget>,
}

impl Intent {
    /// Creates an intent for these sessions that changes nothing yet.
    pub(crate) fn new(
        id: String,
        time: &str,
        kind: OperationKind,
        sessions: Vec<SessionRepo>,
    ) -> Intent {
        Intent {
            id,
            time: time.to_owned(),
            kind,
            sessions,
            dropped: Vec::new(),
            undoes: None,
            landing: None,
            refs_first: Vec::new(),
            moves: Vec::new(),
            refs_last: Vec::new(),
            receipt: None,
            note: None,
            trial: None,
        }
    }
}

/// The checkout in which a session's work is tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialTarget {
    /// The checkout.
    pub checkout: Checkout,
    /// The commit of its HEAD when the trial began.
    pub head: String,
}

/// A move of a branch together with the files of its checkouts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetUpdate {
    /// The branch.
    pub target: BranchName,
    /// The commit before.
    pub before: String,
    /// The commit after.
    pub after: String,
    /// The checkouts of the branch.
    pub checkouts: Vec<Checkout>,
}

/// A rename of a directory within its file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryMove {
    /// The source, absolute.
    pub from: PathBuf,
    /// The destination, absolute.
    pub to: PathBuf,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationOutcome {
    /// The operation.
    pub id: String,
    /// Whether it was done; otherwise it was rolled back before it had a visible effect.
    pub done: bool,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLine {
    /// The plan of an operation.
    Intent(Arc<Intent>),
    /// The result of an operation.
    Outcome(OperationOutcome),
}

/// An operation, for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its id.
    pub id: String,
    /// The kind.
    pub kind: OperationKind,
    /// The ids of its sessions.
    pub sessions: Vec<base::id::Id>,
    /// The time, RFC 3339.
    pub time: String,
    /// The operation that undid it.
    pub undone_by: Option<String>,
}

/// The content of the log.
#[derive(Clone, Debug, Default)]
pub struct LogEntries {
    lines: Vec<LogLine>,
    /// The results of operations: whether each was done.
    results: HashMap<String, bool>,
    /// The undos of operations that were undone, oldest first.
    undos: HashMap<String, Vec<String>>,
    unreadable: Vec<UnreadableOperation>,
}

/// What tells whether a log has changed: its path, inode, length and times.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LogStamp {
    path: PathBuf,
    inode: u64,
    length: u64,
    times: [(i64, i64); 2],
}

impl LogStamp {
    /// Returns the stamp of a log; `None` if it does not exist.
    fn of(path: &Path) -> Option<LogStamp> {
        let log = std::fs::metadata(path).ok()?;
        let times = [(log.mtime(), log.mtime_nsec()), (log.ctime(), log.ctime_nsec())];
        Some(LogStamp { path: path.to_owned(), inode: log.ino(), length: log.len(), times })
    }

    /// Returns whether lines may have been appended to the log since then.
    fn may_continue_as(&self, now: &LogStamp) -> bool {
        self.path == now.path && self.inode == now.inode && self.length <= now.length
    }
}

/// A log that this process read.
struct KnownLog {
    stamp: LogStamp,
    end: Option<JournalEnd>,
    entries: Arc<LogEntries>,
}

/// The log that this process read last: commands read it several times, and those that wait again
/// and again.
static LAST_READ: Mutex<Option<KnownLog>> = Mutex::new(None);

/// An unreadable line, and the operations that it names: they are not touched until a person has
/// examined the line.
#[derive(Clone, Debug)]
pub struct UnreadableOperation {
    line: UnreadableLine,
    operations: BTreeSet<u64>,
}

impl UnreadableOperation {
    fn new(line: UnreadableLine) -> UnreadableOperation {
        let operations = operation_numbers(&line.text);
        UnreadableOperation { line, operations }
    }

    /// Describes the location and the error in one sentence.
    pub fn sentence(&self) -> String {
        format!("line {} of studio/operations.jsonl is {}", self.line.number, self.line.reason)
    }

    fn contains_name(&self, name: &str) -> bool {
        self.line.text.contains(&format!("\"{name}\""))
    }
}

/// Returns the numbers of the operations that a text names as `op7`.
fn operation_numbers(text: &str) -> BTreeSet<u64> {
    let suffixes = text.match_indices("op").map(|(index, _)| &text[index + 2..]);
    let digits = suffixes.map(|suffix| {
        let end = suffix.find(|c: char| !c.is_ascii_digit()).unwrap_or(suffix.len());
        &suffix[..end]
    });
    // Ids have only a few digits: a longer number is something else.
    digits.filter(|digits| digits.len() < 10).filter_map(|digits| digits.parse().ok()).collect()
}

impl LogEntries {
    /// Reads the log of a repository without locking it.
    pub fn read(repository: &Repository) -> Result<Arc<LogEntries>> {
        let path = repository.common_dir.join("studio/operations.jsonl");
        let stamp = LogStamp::of(&path);
        let mut last_read = LAST_READ.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = last_read.take();
        if let (Some(stamp), Some(log)) = (&stamp, &known)
            && *stamp == log.stamp
        {
            let entries = log.entries.clone();
            *last_read = known;
            return Ok(entries);
        }
        // An unreadable line may have been repaired in place.
        known = known.filter(|log| log.entries.unreadable.is_empty());
        let continued =
            stamp.as_ref().zip(known).filter(|(now, log)| log.stamp.may_continue_as(now));
        let known_end = continued.as_ref().and_then(|(_, log)| log.end.as_ref());
        let read =
            read_lines_after(&path, known_end).or_fail(|| "cannot read the operations log")?;
        let mut entries = match continued {
            Some((_, log)) if read.is_continued => log.entries,
            Some(_) | None => Arc::default(),
        };
        let content = Arc::make_mut(&mut entries);
        read.values.into_iter().for_each(|line| content.push(line));
        content.unreadable.extend(read.unreadable.into_iter().map(UnreadableOperation::new));
        if let Some(stamp) = stamp {
            *last_read = Some(KnownLog { stamp, end: read.end, entries: entries.clone() });
        }
        Ok(entries)
    }

    /// Like [`LogEntries::read`], with the current paths of a repository that was moved.
    pub fn read_current(repository: &Repository) -> Result<Arc<LogEntries>> {
        Ok(LogEntries::read(repository)?.at_current_paths(&repository.common_dir))
    }

    /// Adds a line at the end.
    fn push(&mut self, line: LogLine) {
        match &line {
            LogLine::Intent(intent) => {
                if let Some(undone) = &intent.undoes {
                    self.undos.entry(undone.clone()).or_default().push(intent.id.clone());
                }
            }
            LogLine::Outcome(outcome) => {
                self.results.entry(outcome.id.clone()).or_insert(outcome.done);
            }
        }
        self.lines.push(line);
    }

    /// Returns the same entries with the current paths of a repository that was moved.
    fn at_current_paths(self: Arc<LogEntries>, common_dir: &Path) -> Arc<LogEntries> {
        let is_elsewhere = |line: &LogLine| match line {
            LogLine::Intent(intent) => moved_repository::is_elsewhere(common_dir, intent),
            LogLine::Outcome(_) => false,
        };
        if !self.lines.iter().any(is_elsewhere) {
            return self;
        }
        let mut entries = self;
        for line in &mut Arc::make_mut(&mut entries).lines {
            if let LogLine::Intent(intent) = line {
                moved_repository::update_intent(common_dir, Arc::make_mut(intent));
            }
        }
        entries
    }

    /// Returns the readable lines.
    pub fn lines(&self) -> &[LogLine] {
        &self.lines
    }

    /// Returns the unreadable lines.
    pub fn unreadable(&self) -> &[UnreadableOperation] {
        &self.unreadable
    }

    /// Returns the operations that try a session and were not ended, oldest first.
    pub(crate) fn active_trials(&self) -> Vec<Intent> {
        let is_active = |intent: &&Intent| {
            intent.kind == OperationKind::Try
                && self.result(&intent.id) == Some(true)
                && self.undone_by(&intent.id).is_none()
        };
        self.intents().map(|intent| &**intent).filter(is_active).cloned().collect()
    }

    /// Returns all intents, oldest first.
    pub fn intents(&self) -> impl DoubleEndedIterator<Item = &Arc<Intent>> {
        self.lines.iter().filter_map(|line| match line {
            LogLine::Intent(intent) => Some(intent),
            LogLine::Outcome(_) => None,
        })
    }

    /// Returns whether an operation was done; `None` if it has no result yet.
    pub fn result(&self, id: &str) -> Option<bool> {
        self.results.get(id).copied()
    }

    /// Returns the undo of an operation, if one was done.
    fn undone_by(&self, id: &str) -> Option<&String> {
        self.undos.get(id)?.iter().find(|undo| self.result(undo) == Some(true))
    }

    /// Returns the id of the next operation: higher than any id in a line, readable or not.
    fn next_id(&self) -> String {
        let ids = self.lines.iter().flat_map(|line| match line {
            LogLine::Intent(intent) => {
                vec![Some(&intent.id), intent.undoes.as_ref()]
            }
            LogLine::Outcome(outcome) => vec![Some(&outcome.id)],
        });
        let known_numbers = ids.flatten().flat_map(|id| operation_numbers(id));
        let unreadable = self.unreadable.iter().flat_map(|line| line.operations.iter().copied());
        format!("op{}", known_numbers.chain(unreadable).max().unwrap_or(0) + 1)
    }

    /// Returns the unreadable line that leaves the result of an operation unknown: one that names
    /// it, or, while it has no result, a later one that names no operation at all.
    fn find_doubt(&self, id: &str) -> Option<&UnreadableOperation> {
        let number = operation_numbers(id).into_iter().next();
        if self.unreadable.is_empty() {
            return None;
        }
        let started = self.lines.iter().position(|line| match line {
            LogLine::Intent(intent) => intent.id == id,
            LogLine::Outcome(_) => false,
        });
        let is_open = started.is_some() && self.result(id).is_none();
        self.unreadable.iter().find(|unreadable| {
            let is_named = number.is_some_and(|number| unreadable.operations.contains(&number));
            let could_be_result = is_open
                && unreadable.operations.is_empty()
                && started.is_some_and(|started| unreadable.line.after > started);
            is_named || could_be_result
        })
    }

    /// Returns the unreadable line that leaves the disposition of a session unknown.
    pub fn session_doubt(&self, session: &base::id::Id) -> Option<&UnreadableOperation> {
        if self.unreadable.is_empty() {
            return None;
        }
        let has_session = |intent: &&Arc<Intent>| {
            intent.sessions.iter().any(|session_repo| session_repo.id == *session)
        };
        let mut session_intents = self.intents().filter(has_session);
        let naming = self.unreadable.iter().find(|line| line.contains_name(session.as_str()));
        naming.or_else(|| session_intents.find_map(|intent| self.find_doubt(&intent.id)))
    }
}

/// Returns the refusal (3) for an operation that an unreadable line names.
fn doubt_failure(id: &str, doubt: &UnreadableOperation) -> Failure {
    let printable_id = base::text::printable(id);
    Failure::refused(format!("`{printable_id}` cannot be undone"))
        .because(doubt.sentence())
        .hint("studio operations")
        .hint("a newer studio may be able to read it; repair or remove a damaged line by hand")
}

/// The locked log: no other process changes anything that it records.
#[derive(Debug)]
pub struct OperationLog {
    journal: Journal,
    entries: Arc<LogEntries>,
    /// The length of the log in bytes, as this process left it.
    length: u64,
    lock: Lock,
}

impl OperationLog {
    /// Takes the operation lock, waiting for it if necessary, and reads the log.
    pub fn open(repository: &Repository) -> Result<OperationLog> {
        let dir = repository.studio_dir()?;
        let fail = || format!("cannot write the operations log in {}", dir.display());
        let lock = Lock::take(&dir.join("operations.lock")).or_fail(fail)?;
        let journal = Journal::open(&dir.join("operations.jsonl")).or_fail(fail)?;
        let entries = LogEntries::read_current(repository)?;
        let length = journal.length().or_fail(fail)?;
        Ok(OperationLog { journal, entries, length, lock })
    }

    /// Returns the operation lock.
    pub(crate) fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Returns the id of the next operation.
    pub(crate) fn next_id(&self) -> String {
        self.entries.next_id()
    }

    /// Refuses (3) to continue if the lock was lost, or if another process wrote the log: that process
    /// may have finished or rolled back the operation.
    pub(crate) fn confirm(&self) -> Result<()> {
        let fail = || "cannot examine the operations log";
        let path = self.journal.path().display();
        let reason = if !self.lock.confirm().or_fail(fail)? {
            format!("the lock beside {path} was lost or its file was deleted")
        } else if self.journal.length().or_fail(fail)? != self.length {
            format!("another process wrote {path}")
        } else {
            return Ok(());
        };
        Err(Failure::refused("the operation was interrupted")
            .because(reason)
            .hint("studio doctor    finishes it or rolls it back"))
    }

    /// Appends a line and makes it durable.
    pub(crate) fn write(&mut self, line: LogLine) -> Result<()> {
        self.confirm()?;
        let mut write = || {
            self.journal.append(&line)?;
            self.length = self.journal.length()?;
            self.journal.sync()
        };
        write().or_fail(|| "cannot write the operations log")?;
        Arc::make_mut(&mut self.entries).push(line);
        Ok(())
    }

    /// Returns the operations without a result: their process was killed. Operations with an
    /// unreadable line are excluded: they may have a result.
    pub(crate) fn open_intents(&self) -> Vec<Intent> {
        let is_open = |intent: &&Intent| {
            self.outcome(&intent.id).is_none() && self.entries.find_doubt(&intent.id).is_none()
        };
        self.intents().filter(is_open).cloned().collect()
    }

    /// Refuses (3) if one of these sessions is over: an operation that a kill interrupted may have
    /// been finished since the caller saw its state.
    pub(crate) fn refuse_ended<'a>(
        &self,
        sessions: impl IntoIterator<Item = &'a SessionRepo>,
    ) -> Result<()> {
        for SessionRepo { id, .. } in sessions {
            let ends_or_reopens = |intent: &&Intent| {
                use OperationKind::{Accept, Discard, Undo};

                matches!(intent.kind, Accept | Discard | Undo)
                    && intent.sessions.iter().any(|session_repo| session_repo.id == *id)
                    && self.outcome(&intent.id) == Some(true)
            };
            let last = self.intents().rfind(ends_or_reopens);
            if let Some(last) = last.filter(|intent| intent.kind != OperationKind::Undo) {
                return Err(Failure::refused(format!("session `{id}` has ended"))
                    .because(format!("the operation `{}` was completed", last.id))
                    .hint(format!("studio status {id}")));
            }
        }
        Ok(())
    }

    /// Returns a completed operation by id; without an id, the last one that can be undone:
    /// `is_kept` returns whether what it discarded still exists. Refuses operations that are
    /// already undone or have an unreadable line.
    pub(crate) fn find_undoable(
        &self,
        id: Option<&str>,
        is_kept: impl Fn(&Intent) -> bool,
    ) -> Result<Intent> {
        let is_undoable = |intent: &&Intent| {
            matches!(
                intent.kind,
                OperationKind::Accept
                    | OperationKind::AcceptHunks
                    | OperationKind::Discard
                    | OperationKind::Try
            ) && self.outcome(&intent.id) == Some(true)
                && self.entries.undone_by(&intent.id).is_none()
        };
        let Some(id) = id else {
            let can_restore = |intent: &&Intent| is_kept(intent);
            let last = self.intents().rev().filter(is_undoable).find(can_restore);
            if let Some(last) = last {
                self.refuse_uncertain_last(last)?;
                return Ok(last.clone());
            }
            let failure = Failure::not_found("nothing to undo");
            return Err(match self.intents().any(|intent| is_undoable(&intent)) {
                true => failure.because("its data has already been removed by `studio gc`"),
                false => failure,
            }
            .hint("studio operations"));
        };
        if let Some(doubt) = self.entries.find_doubt(id) {
            return Err(doubt_failure(id, doubt));
        }
        let intent = self.intents().find(|intent| intent.id == id).ok_or_else(|| {
            let printable_id = base::text::printable(id);
            Failure::not_found(format!("no such operation: `{printable_id}`"))
                .hint("studio operations")
        })?;
        if is_undoable(&intent) {
            return Ok(intent.clone());
        }
        let reason = match (self.entries.undone_by(id), intent.kind) {
            (Some(undo_id), _) => format!("it was already undone by `{undo_id}`"),
            (None, OperationKind::Undo) => {
                "an undo cannot be undone; repeat the operation instead".to_owned()
            }
            (None, OperationKind::Relocate) => {
                "it moved worktrees; nothing was landed or dropped".to_owned()
            }
            (
                None,
                OperationKind::Accept
                | OperationKind::AcceptHunks
                | OperationKind::Discard
                | OperationKind::Try,
            ) => "it never took effect".to_owned(),
        };
        Err(Failure::refused(format!("`{id}` cannot be undone")).because(reason))
    }

    /// Refuses (3) to treat an operation as the last one if a line after it is unreadable.
    fn refuse_uncertain_last(&self, last: &Intent) -> Result<()> {
        if let Some(doubt) = self.entries.find_doubt(&last.id) {
            return Err(doubt_failure(&last.id, doubt));
        }
        let is_last =
            |line: &LogLine| matches!(line, LogLine::Intent(intent) if intent.id == last.id);
        let index = self.entries.lines.iter().position(is_last).unwrap_or_default();
        match self.entries.unreadable.iter().find(|line| line.line.after > index) {
            Some(doubt) => Err(Failure::refused("cannot determine the last operation")
                .because(doubt.sentence())
                .hint(format!("studio undo {}    undoes this one", last.id))),
            None => Ok(()),
        }
    }

    /// Returns the operations that try a session and were not ended, oldest first.
    pub(crate) fn active_trials(&self) -> Vec<Intent> {
        self.entries.active_trials()
    }

    /// Returns whether a line is unreadable.
    pub(crate) fn has_unreadable_lines(&self) -> bool {
        !self.entries.unreadable.is_empty()
    }

    /// Returns all intents, oldest first.
    pub(crate) fn intents(&self) -> impl DoubleEndedIterator<Item = &Intent> {
        self.entries.intents().map(|intent| &**intent)
    }

    /// Returns whether an operation was done; `None` if it has no result yet.
    pub(crate) fn outcome(&self, id: &str) -> Option<bool> {
        self.entries.result(id)
    }
}

/// Returns all operations that took effect, oldest first, without locking the log.
pub fn list(repository: &Repository) -> Result<Vec<Operation>> {
    let entries = LogEntries::read(repository)?;
    let done = entries.intents().filter(|intent| entries.result(&intent.id) == Some(true));
    let operations = done.map(|intent| Operation {
        id: intent.id.clone(),
        kind: intent.kind,
        sessions: intent.sessions.iter().map(|session_repo| session_repo.id.clone()).collect(),
        time: intent.time.clone(),
        undone_by: entries.undone_by(&intent.id).cloned(),
    });
    Ok(operations.collect())
}

/// Returns the receipts of all landings that were started here, oldest first, without locking the
/// log.
pub fn receipts(repository: &Repository) -> Result<Vec<String>> {
    let entries = LogEntries::read(repository)?;
    Ok(entries.intents().filter_map(|intent| intent.receipt.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries(text: &[u8]) -> LogEntries {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let read = read_lines_after(file.path(), None).unwrap();
        let mut entries = LogEntries::default();
        read.values.into_iter().for_each(|line| entries.push(line));
        entries.unreadable = read.unreadable.into_iter().map(UnreadableOperation::new).collect();
        entries
    }

    fn line(number: u64, is_intent: bool) -> LogLine {
        let id = format!("op{number}");
        if !is_intent {
            return LogLine::Outcome(OperationOutcome { id, done: true });
        }
        LogLine::Intent(Arc::new(Intent::new(
            id,
            "2026-01-02T10:00:00Z",
            OperationKind::Discard,
            Vec::new(),
        )))
    }

    #[test]
    fn operations_are_numbered_by_whole_numbers_after_op() {
        assert_eq!(
            operation_numbers("{\"id\":\"op7\",\"undoes\":\"op12\"}"),
            BTreeSet::from([7, 12])
        );
        assert!(operation_numbers("stop, op, opx, op99999999999999").is_empty());
    }

    proptest! {
        /// Whichever bytes of the log are damaged: the next id is not that of an operation whose
        /// name is still readable, and an operation with a damaged line does not count as open.
        #[test]
        fn a_damaged_log_never_reuses_an_id(
            count in 1u64..8,
            damaged in 0usize..16,
            garbage in "[a-z{}\"]{0,12}",
        ) {
            let mut text = Vec::new();
            for number in 1..=count {
                for is_intent in [true, false] {
                    text.push(serde_json::to_string(&line(number, is_intent)).unwrap());
                }
            }
            let damaged_index = damaged % text.len();
            text[damaged_index] = format!("{garbage}{}", &text[damaged_index][garbage.len().min(10)..]);
            let log = text.iter().map(|line| format!("{line}\n")).collect::<String>();
            let entries = entries(log.as_bytes());
            let next = entries.next_id();
            prop_assert!(!log.contains(&format!("\"{next}\"")), "{next} is in use");
            prop_assert_eq!(next, format!("op{}", count + 1));
            for intent in entries.intents() {
                let is_open = entries.result(&intent.id).is_none();
                prop_assert!(!is_open || entries.find_doubt(&intent.id).is_some());
            }
        }
    }
}
