//! Stores the list: `todo.g3.md` for people to read and edit, `todo.json` with the items.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::list::TodoPhase;
use super::markdown;

/// The list of a session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TodoList {
    /// The items.
    pub phases: Vec<TodoPhase>,
    /// The Markdown, verbatim.
    pub text: String,
}

#[derive(Serialize, Deserialize)]
struct Record {
    phases: Vec<TodoPhase>,
    /// The Markdown that corresponds to the items. If the file is different, someone edited it, and
    /// the file takes precedence.
    text: String,
}

const TEXT_FILE: &str = "todo.g3.md";
const ITEMS_FILE: &str = "todo.json";

/// Loads the list; empty if there is none.
pub(crate) fn load(session_dir: &Path) -> io::Result<TodoList> {
    let text = match base::files::read_text(&session_dir.join(TEXT_FILE)) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(TodoList::default()),
        Err(e) => return Err(e),
    };
    let record = base::files::read(&session_dir.join(ITEMS_FILE)).ok();
    let record = record.and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok());
    let phases = match record {
        Some(record) if record.text == text => record.phases,
        Some(_) | None => markdown::read(&text),
    };
    Ok(TodoList { phases, text })
}

/// Replaces the list.
pub(crate) fn save(session_dir: &Path, phases: &[TodoPhase], text: &str) -> io::Result<()> {
    std::fs::create_dir_all(session_dir)?;
    let record = Record { phases: phases.to_owned(), text: text.to_owned() };
    base::files::replace_json(&session_dir.join(ITEMS_FILE), &record)?;
    base::files::replace(&session_dir.join(TEXT_FILE), text.as_bytes())
}
