//! The operations log: what studio is about to change, written first, and how it ended. Everything
//! that can be undone, and everything that a crash interrupted, is found here.

use std::collections::BTreeSet;
use std::path::PathBuf;

use base::failure::{Failure, OrFail, Result};
use base::files::{Journal, UnreadableLine, read_lines};
use base::lock::Lock;
use serde::{Deserialize, Serialize};

use crate::checkout::Checkout;
use crate::names::BranchName;
use crate::refs::RefChange;
use crate::repair;
use crate::repo::Repository;
use crate::session_repo::SessionRepo;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Work landed.
    Accept,
    /// Sessions were dropped.
    Discard,
    /// An operation was taken back.
    Undo,
    /// Worktrees were moved.
    Relocate,
}

/// What an operation is about to do. Enough to finish it, or to take it back, in another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The operation's id, e.g. `op7`.
    pub id: String,
    /// When, as RFC 3339.
    pub time: String,
    /// What.
    pub kind: OperationKind,
    /// The sessions that it is about.
    pub sessions: Vec<SessionRepo>,
    /// The operation that this one takes back.
    pub undoes: Option<String>,
    /// The target branch that moves, with its checkouts.
    pub landing: Option<TargetUpdate>,
    /// Refs that change before anything is moved.
    pub refs_first: Vec<RefChange>,
    /// Directories that are renamed, in this order.
    pub moves: Vec<DirectoryMove>,
    /// Refs that change when all is moved.
    pub refs_last: Vec<RefChange>,
    /// The receipt to be noted at the landed commit.
    pub receipt: Option<String>,
    /// The ref of the receipts with that one, which moves with the target if nobody else moved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<RefChange>,
}

impl Intent {
    /// Returns an operation on these sessions that changes nothing yet.
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
            undoes: None,
            landing: None,
            refs_first: Vec::new(),
            moves: Vec::new(),
            refs_last: Vec::new(),
            receipt: None,
            note: None,
        }
    }
}

/// A branch that moves together with the files of its checkouts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetUpdate {
    /// The branch.
    pub target: BranchName,
    /// Its commit before.
    pub before: String,
    /// Its commit after.
    pub after: String,
    /// Where it is checked out.
    pub checkouts: Vec<Checkout>,
}

/// A directory that is renamed within its file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryMove {
    /// From where, absolute.
    pub from: PathBuf,
    /// Where to, absolute.
    pub to: PathBuf,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationOutcome {
    /// The operation.
    pub id: String,
    /// Done, or taken back before anything could be seen of it.
    pub done: bool,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLine {
    /// What is about to be done.
    Intent(Box<Intent>),
    /// How it ended.
    Outcome(OperationOutcome),
}

/// An operation as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its id.
    pub id: String,
    /// What was done.
    pub kind: OperationKind,
    /// The ids of its sessions.
    pub sessions: Vec<base::id::Id>,
    /// When, as RFC 3339.
    pub time: String,
    /// The operation that took it back.
    pub undone_by: Option<String>,
}

/// The log as it is on disk.
#[derive(Clone, Debug, Default)]
pub struct LogEntries {
    lines: Vec<LogLine>,
    unreadable: Vec<UnreadableOperation>,
}

/// A line that cannot be read, and what it names: nothing is done about that until a person has
/// looked at the line.
#[derive(Clone, Debug)]
pub struct UnreadableOperation {
    line: UnreadableLine,
    operations: BTreeSet<u64>,
}

impl UnreadableOperation {
    fn new(line: UnreadableLine) -> UnreadableOperation {
        let operations = numbers(&line.text);
        UnreadableOperation { line, operations }
    }

    /// Returns where it is and what is wrong with it, in one sentence.
    pub fn sentence(&self) -> String {
        format!("line {} of studio/operations.jsonl is {}", self.line.number, self.line.why)
    }

    fn names(&self, word: &str) -> bool {
        self.line.text.contains(&format!("\"{word}\""))
    }
}

/// Returns the numbers of the operations that a text names as `op7`.
fn numbers(text: &str) -> BTreeSet<u64> {
    let after = text.match_indices("op").map(|(at, _)| &text[at + 2..]);
    let digits = after.map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        &rest[..end]
    });
    // Ids have never had more than a few digits: a longer number is something else.
    digits.filter(|digits| digits.len() < 10).filter_map(|digits| digits.parse().ok()).collect()
}

impl LogEntries {
    /// Reads the log of a repository without waiting for a lock.
    pub fn read(repository: &Repository) -> Result<LogEntries> {
        let path = repository.common_dir.join("studio/operations.jsonl");
        let (lines, unreadable) = read_lines(&path).or_fail(|| "cannot read the operations log")?;
        Ok(LogEntries {
            lines,
            unreadable: unreadable.into_iter().map(UnreadableOperation::new).collect(),
        })
    }

    /// Returns the lines that can be read.
    pub fn lines(&self) -> &[LogLine] {
        &self.lines
    }

    /// Returns the lines that cannot be read.
    pub fn unreadable(&self) -> &[UnreadableOperation] {
        &self.unreadable
    }

    /// Returns the id of the next operation: no line names it or one after it, readable or not.
    fn next_id(&self) -> String {
        let known = self.lines.iter().flat_map(|line| match line {
            LogLine::Intent(intent) => {
                vec![Some(&intent.id), intent.undoes.as_ref()]
            }
            LogLine::Outcome(outcome) => vec![Some(&outcome.id)],
        });
        let known = known.flatten().flat_map(|id| numbers(id));
        let unreadable = self.unreadable.iter().flat_map(|line| line.operations.iter().copied());
        format!("op{}", known.chain(unreadable).max().unwrap_or(0) + 1)
    }

    /// Returns the line that leaves it open how an operation stands: one that names it, or, while
    /// it has no outcome, a later one that names no operation at all.
    fn doubt(&self, id: &str) -> Option<&UnreadableOperation> {
        let number = numbers(id).into_iter().next();
        let begun = self.lines.iter().position(|line| match line {
            LogLine::Intent(intent) => intent.id == id,
            LogLine::Outcome(_) => false,
        });
        let is_open = begun.is_some() && outcome(&self.lines, id).is_none();
        self.unreadable.iter().find(|unreadable| {
            let named = number.is_some_and(|number| unreadable.operations.contains(&number));
            let could_end_it = is_open
                && unreadable.operations.is_empty()
                && begun.is_some_and(|begun| unreadable.line.after > begun);
            named || could_end_it
        })
    }

    /// Returns the line that leaves it open what became of a session.
    pub fn doubt_about(&self, session: &base::id::Id) -> Option<&UnreadableOperation> {
        let takes_part =
            |intent: &&Intent| intent.sessions.iter().any(|place| place.id == *session);
        let mut of_session = intents(&self.lines).filter(takes_part);
        let named = self.unreadable.iter().find(|line| line.names(session.as_str()));
        named.or_else(|| of_session.find_map(|intent| self.doubt(&intent.id)))
    }
}

/// Returns the refusal (3) to touch an operation that a line in doubt names.
fn in_doubt(id: &str, doubt: &UnreadableOperation) -> Failure {
    let shown = base::text::printable(id);
    Failure::refused(format!("`{shown}` cannot be undone"))
        .because(doubt.sentence())
        .hint("studio operations")
        .hint("a newer studio may be able to read it; repair or remove a damaged line by hand")
}

/// The log, locked: nobody else changes anything that is recorded in it.
#[derive(Debug)]
pub struct OperationLog {
    journal: Journal,
    entries: LogEntries,
    _lock: Lock,
}

impl OperationLog {
    /// Takes the operation lock, waiting for whoever has it, and reads the log.
    pub fn open(repository: &Repository) -> Result<OperationLog> {
        let dir = repository.studio_dir()?;
        let fail = || format!("cannot write the operations log in {}", dir.display());
        let lock = Lock::take(&dir.join("operations.lock")).or_fail(fail)?;
        let journal = Journal::open(&dir.join("operations.jsonl")).or_fail(fail)?;
        let mut entries = LogEntries::read(repository)?;
        for line in &mut entries.lines {
            if let LogLine::Intent(intent) = line {
                repair::intent_now(&repository.common_dir, intent);
            }
        }
        Ok(OperationLog { journal, entries, _lock: lock })
    }

    /// Returns the id of the next operation.
    pub(crate) fn next_id(&self) -> String {
        self.entries.next_id()
    }

    /// Writes a line; it is on disk when this returns.
    pub(crate) fn write(&mut self, line: LogLine) -> Result<()> {
        let mut write = || {
            self.journal.append(&line)?;
            self.journal.sync()
        };
        write().or_fail(|| "cannot write the operations log")?;
        self.entries.lines.push(line);
        Ok(())
    }

    /// Operations without an end: their process was killed. Those of which a line cannot be read are
    /// not among them: they may have ended.
    pub(crate) fn open_intents(&self) -> Vec<Intent> {
        let is_open = |intent: &&Intent| {
            self.outcome(&intent.id).is_none() && self.entries.doubt(&intent.id).is_none()
        };
        self.intents().filter(is_open).cloned().collect()
    }

    /// Returns an operation that was done, by id; without one, the last that can be undone:
    /// `is_kept` says whether what it dropped is there. Refuses one that was undone already, and
    /// one of which a line cannot be read.
    pub(crate) fn to_undo(
        &self,
        id: Option<&str>,
        is_kept: impl Fn(&Intent) -> bool,
    ) -> Result<Intent> {
        let lines = &self.entries.lines;
        let undoable = |intent: &&Intent| {
            matches!(intent.kind, OperationKind::Accept | OperationKind::Discard)
                && self.outcome(&intent.id) == Some(true)
                && undone_by(lines, &intent.id).is_none()
        };
        let Some(id) = id else {
            let kept = |intent: &&Intent| is_kept(intent);
            let last = self.intents().filter(undoable).filter(kept).last();
            if let Some(last) = last {
                self.refuse_unsure_last(last)?;
                return Ok(last.clone());
            }
            let nothing = Failure::not_found("nothing to undo");
            return Err(match self.intents().any(|intent| undoable(&intent)) {
                true => nothing.because("its data has already been removed by `studio gc`"),
                false => nothing,
            }
            .hint("studio operations"));
        };
        if let Some(doubt) = self.entries.doubt(id) {
            return Err(in_doubt(id, doubt));
        }
        let found = self.intents().find(|intent| intent.id == id).ok_or_else(|| {
            let shown = base::text::printable(id);
            Failure::not_found(format!("no such operation: `{shown}`")).hint("studio operations")
        })?;
        if undoable(&found) {
            return Ok(found.clone());
        }
        let why = match (undone_by(lines, id), found.kind) {
            (Some(by), _) => format!("it was already undone by `{by}`"),
            (None, OperationKind::Undo) => {
                "an undo cannot be undone; repeat the operation instead".to_owned()
            }
            (None, OperationKind::Relocate) => {
                "it moved worktrees; nothing was landed or dropped".to_owned()
            }
            (None, OperationKind::Accept | OperationKind::Discard) => {
                "it never took effect".to_owned()
            }
        };
        Err(Failure::refused(format!("`{id}` cannot be undone")).because(why))
    }

    /// Refuses (3) to take an operation for the last one where a line after it cannot be read.
    fn refuse_unsure_last(&self, last: &Intent) -> Result<()> {
        if let Some(doubt) = self.entries.doubt(&last.id) {
            return Err(in_doubt(&last.id, doubt));
        }
        let is_it =
            |line: &LogLine| matches!(line, LogLine::Intent(intent) if intent.id == last.id);
        let at = self.entries.lines.iter().position(is_it).unwrap_or_default();
        match self.entries.unreadable.iter().find(|line| line.line.after > at) {
            Some(doubt) => Err(Failure::refused("cannot determine the last operation")
                .because(doubt.sentence())
                .hint(format!("studio undo {}    undoes this one", last.id))),
            None => Ok(()),
        }
    }

    /// Returns all intents, oldest first.
    pub(crate) fn intents(&self) -> impl Iterator<Item = &Intent> {
        intents(&self.entries.lines)
    }

    /// Returns how an operation ended; none while it has not.
    pub(crate) fn outcome(&self, id: &str) -> Option<bool> {
        outcome(&self.entries.lines, id)
    }
}

/// Returns all operations that took effect, oldest first. Waits for nobody.
pub fn list(repository: &Repository) -> Result<Vec<Operation>> {
    Ok(listed(&LogEntries::read(repository)?.lines))
}

/// Returns the receipts of all landings that were begun here, oldest first. Waits for nobody.
pub fn receipts(repository: &Repository) -> Result<Vec<String>> {
    let entries = LogEntries::read(repository)?;
    Ok(intents(&entries.lines).filter_map(|intent| intent.receipt.clone()).collect())
}

fn listed(lines: &[LogLine]) -> Vec<Operation> {
    intents(lines)
        .filter(|intent| outcome(lines, &intent.id) == Some(true))
        .map(|intent| Operation {
            id: intent.id.clone(),
            kind: intent.kind,
            sessions: intent.sessions.iter().map(|place| place.id.clone()).collect(),
            time: intent.time.clone(),
            undone_by: undone_by(lines, &intent.id),
        })
        .collect()
}

fn intents(lines: &[LogLine]) -> impl Iterator<Item = &Intent> {
    lines.iter().filter_map(|line| match line {
        LogLine::Intent(intent) => Some(&**intent),
        LogLine::Outcome(_) => None,
    })
}

fn outcome(lines: &[LogLine], id: &str) -> Option<bool> {
    lines.iter().find_map(|line| match line {
        LogLine::Outcome(outcome) if outcome.id == id => Some(outcome.done),
        LogLine::Outcome(_) | LogLine::Intent(_) => None,
    })
}

fn undone_by(lines: &[LogLine], id: &str) -> Option<String> {
    intents(lines)
        .filter(|intent| intent.undoes.as_deref() == Some(id))
        .find(|intent| outcome(lines, &intent.id) == Some(true))
        .map(|intent| intent.id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries(text: &[u8]) -> LogEntries {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let (lines, unreadable) = read_lines(file.path()).unwrap();
        LogEntries {
            lines,
            unreadable: unreadable.into_iter().map(UnreadableOperation::new).collect(),
        }
    }

    fn line(number: u64, is_intent: bool) -> LogLine {
        let id = format!("op{number}");
        if !is_intent {
            return LogLine::Outcome(OperationOutcome { id, done: true });
        }
        LogLine::Intent(Box::new(Intent::new(
            id,
            "2026-01-02T10:00:00Z",
            OperationKind::Discard,
            Vec::new(),
        )))
    }

    #[test]
    fn operations_are_numbered_by_whole_numbers_after_op() {
        assert_eq!(numbers("{\"id\":\"op7\",\"undoes\":\"op12\"}"), BTreeSet::from([7, 12]));
        assert!(numbers("stop, op, opx, op99999999999999").is_empty());
    }

    proptest! {
        /// Whatever bytes of the log are damaged: the next id is that of no operation whose name can
        /// still be found in it, and one whose line was damaged is not taken for open.
        #[test]
        fn damage_never_brings_an_id_back(
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
            let at = damaged % text.len();
            text[at] = format!("{garbage}{}", &text[at][garbage.len().min(10)..]);
            let log = text.iter().map(|line| format!("{line}\n")).collect::<String>();
            let entries = entries(log.as_bytes());
            let next = entries.next_id();
            prop_assert!(!log.contains(&format!("\"{next}\"")), "{next} is in use");
            prop_assert_eq!(next, format!("op{}", count + 1));
            for intent in intents(&entries.lines) {
                let is_open = outcome(&entries.lines, &intent.id).is_none();
                prop_assert!(!is_open || entries.doubt(&intent.id).is_some());
            }
        }
    }
}
