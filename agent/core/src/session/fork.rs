//! Forks a session: copies it as a whole or up to one of its turns.

use std::fs;
use std::path::Path;

use base::failure::{Failure, OrFail, Result};
use base::files::{Journal, read_journal};

use super::Session;
use crate::context::{ConversationEntry, turns};

/// Copies a session of a working directory. `before` is the first turn that the copy omits, counted
/// from 1. The original does not change.
pub fn fork(cwd: &Path, from: &Path, before: Option<usize>) -> Result<Session> {
    let path = from.join("session.jsonl");
    let failed = || format!("cannot read {}", path.display());
    let mut entries: Vec<ConversationEntry> =
        turns::effective(read_journal(&path).or_fail(failed)?).entries;
    if let Some(before) = before {
        let user_turns = turns::list(&entries);
        let Some(turn) = before.checked_sub(1).and_then(|index| user_turns.get(index)) else {
            return Err(Failure::usage(format!("no such turn: {before}"))
                .because(format!("the session has {}", user_turns.len())));
        };
        entries.truncate(turn.index);
    }
    let task = turns::list(&entries).first().map(|turn| turn.text.clone()).unwrap_or_default();
    let session = Session::create(cwd, &task)?;
    let mut journal = Journal::open(&session.journal_path()).or_fail(|| "cannot make a journal")?;
    for entry in &entries {
        journal.append(entry).or_fail(|| "cannot copy the journal")?;
    }
    journal.sync().or_fail(|| "cannot copy the journal")?;
    copy(from, &session.dir).or_fail(|| "cannot copy the session's files")?;
    Ok(session)
}

/// Copies the files that the conversation refers to in the session's directory.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    for name in ["todo.g3.md"] {
        if from.join(name).is_file() {
            fs::copy(from.join(name), to.join(name))?;
        }
    }
    let fragments = from.join("fragments");
    if fragments.is_dir() {
        fs::create_dir_all(to.join("fragments"))?;
        for file in fs::read_dir(&fragments)?.flatten() {
            fs::copy(file.path(), to.join("fragments").join(file.file_name()))?;
        }
    }
    Ok(())
}
