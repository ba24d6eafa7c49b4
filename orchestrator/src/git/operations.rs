//! The operations log: what studio is about to change, written first, and how it ended. Everything
//! that can be undone, and everything that a crash interrupted, is found here.

use std::path::PathBuf;

use base::failure::{Failure, OrFail, Result};
use base::files::{Journal, read_journal};
use base::lock::Lock;
use serde::{Deserialize, Serialize};

use crate::git::checkout::Checkout;
use crate::git::mend;
use crate::git::names::BranchName;
use crate::git::private::Place;
use crate::git::refs::RefChange;
use crate::git::repo::Repository;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
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
    pub kind: Kind,
    /// The sessions that it is about.
    pub sessions: Vec<Place>,
    /// The operation that this one takes back.
    pub undoes: Option<String>,
    /// The target branch that moves, with its checkouts.
    pub landing: Option<Landing>,
    /// Refs that change before anything is moved.
    pub refs_first: Vec<RefChange>,
    /// Directories that are renamed, in this order.
    pub moves: Vec<Move>,
    /// Refs that change when all is moved.
    pub refs_last: Vec<RefChange>,
    /// The receipt to be noted at the landed commit.
    pub receipt: Option<String>,
    /// The ref of the receipts with that one, which moves with the target if nobody else moved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<RefChange>,
}

/// A branch that moves together with the files of its checkouts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
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
pub struct Move {
    /// From where, absolute.
    pub from: PathBuf,
    /// Where to, absolute.
    pub to: PathBuf,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The operation.
    pub id: String,
    /// Done, or taken back before anything could be seen of it.
    pub done: bool,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// What is about to be done.
    Intent(Box<Intent>),
    /// How it ended.
    Outcome(Outcome),
}

/// An operation as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Its id.
    pub id: String,
    /// What was done.
    pub kind: Kind,
    /// The ids of its sessions.
    pub sessions: Vec<base::id::Id>,
    /// When, as RFC 3339.
    pub time: String,
    /// The operation that took it back.
    pub undone_by: Option<String>,
}

/// The log, locked: nobody else changes anything that is recorded in it.
#[derive(Debug)]
pub struct Log {
    journal: Journal,
    lines: Vec<Line>,
    _lock: Lock,
}

impl Log {
    /// Takes the operation lock, waiting for whoever has it, and reads the log.
    pub fn open(repository: &Repository) -> Result<Log> {
        let dir = repository.studio_dir()?;
        let fail = || format!("cannot write the operations log in {}", dir.display());
        let lock = Lock::take(&dir.join("operations.lock")).or_fail(fail)?;
        let path = dir.join("operations.jsonl");
        let mut lines = read_journal(&path).or_fail(fail)?;
        for line in &mut lines {
            if let Line::Intent(intent) = line {
                mend::intent_now(&repository.common_dir, intent);
            }
        }
        let journal = Journal::open(&path).or_fail(fail)?;
        Ok(Log { journal, lines, _lock: lock })
    }

    /// The id of the next operation.
    pub fn next_id(&self) -> String {
        let intents = self.lines.iter().filter(|line| matches!(line, Line::Intent(_))).count();
        format!("op{}", intents + 1)
    }

    /// Writes a line; it is on disk when this returns.
    pub fn write(&mut self, line: Line) -> Result<()> {
        let mut write = || {
            self.journal.append(&line)?;
            self.journal.sync()
        };
        write().or_fail(|| "cannot write the operations log")?;
        self.lines.push(line);
        Ok(())
    }

    /// Operations without an end: their process was killed.
    pub fn open_intents(&self) -> Vec<Intent> {
        self.intents().filter(|intent| self.outcome(&intent.id).is_none()).cloned().collect()
    }

    /// An operation that was done, by id; without one, the last that can be undone: `is_kept` says
    /// whether what it dropped is there. Refuses one that was undone already.
    pub fn to_undo(&self, id: Option<&str>, is_kept: impl Fn(&Intent) -> bool) -> Result<Intent> {
        let undoable = |intent: &&Intent| {
            matches!(intent.kind, Kind::Accept | Kind::Discard)
                && self.outcome(&intent.id) == Some(true)
                && undone_by(&self.lines, &intent.id).is_none()
        };
        let Some(id) = id else {
            let kept = |intent: &&Intent| is_kept(intent);
            let last = self.intents().filter(undoable).filter(kept).last().cloned();
            return last.ok_or_else(|| {
                let nothing = Failure::not_found("there is nothing to undo");
                match self.intents().any(|intent| undoable(&intent)) {
                    true => nothing.because("the trash of what was done was emptied"),
                    false => nothing,
                }
                .next("studio operations")
            });
        };
        let found = self.intents().find(|intent| intent.id == id).ok_or_else(|| {
            let shown = base::text::printable(id);
            Failure::not_found(format!("there is no operation `{shown}`")).next("studio operations")
        })?;
        if undoable(&found) {
            return Ok(found.clone());
        }
        let why = match (undone_by(&self.lines, id), found.kind) {
            (Some(by), _) => format!("`{by}` undid it already"),
            (None, Kind::Undo) => "an undo is not undone; do the thing again instead".to_owned(),
            (None, Kind::Relocate) => {
                "it moved worktrees; nothing was landed or dropped".to_owned()
            }
            (None, Kind::Accept | Kind::Discard) => "it never took effect".to_owned(),
        };
        Err(Failure::refused(format!("`{id}` cannot be undone")).because(why))
    }

    /// All operations that took effect, oldest first.
    pub fn operations(&self) -> Vec<Operation> {
        listed(&self.lines)
    }

    /// All intents, oldest first.
    pub fn intents(&self) -> impl Iterator<Item = &Intent> {
        intents(&self.lines)
    }

    /// How an operation ended; none while it has not.
    pub fn outcome(&self, id: &str) -> Option<bool> {
        outcome(&self.lines, id)
    }
}

/// All operations that took effect, oldest first. Waits for nobody.
pub fn list(repository: &Repository) -> Result<Vec<Operation>> {
    let path = repository.common_dir.join("studio/operations.jsonl");
    let lines = read_journal(&path).or_fail(|| "cannot read the operations log")?;
    Ok(listed(&lines))
}

/// The receipts of all landings that were begun here, oldest first. Waits for nobody.
pub fn receipts(repository: &Repository) -> Result<Vec<String>> {
    let path = repository.common_dir.join("studio/operations.jsonl");
    let lines = read_journal(&path).or_fail(|| "cannot read the operations log")?;
    Ok(intents(&lines).filter_map(|intent| intent.receipt.clone()).collect())
}

fn listed(lines: &[Line]) -> Vec<Operation> {
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

fn intents(lines: &[Line]) -> impl Iterator<Item = &Intent> {
    lines.iter().filter_map(|line| match line {
        Line::Intent(intent) => Some(&**intent),
        Line::Outcome(_) => None,
    })
}

fn outcome(lines: &[Line], id: &str) -> Option<bool> {
    lines.iter().find_map(|line| match line {
        Line::Outcome(outcome) if outcome.id == id => Some(outcome.done),
        Line::Outcome(_) | Line::Intent(_) => None,
    })
}

fn undone_by(lines: &[Line], id: &str) -> Option<String> {
    intents(lines)
        .filter(|intent| intent.undoes.as_deref() == Some(id))
        .find(|intent| outcome(lines, &intent.id) == Some(true))
        .map(|intent| intent.id.clone())
}
