//! Personas on the command line: lists them, and finds the persona of a session.

use base::failure::{OrFail, Result};

use super::GlobalArgs;
use super::settings::{directory, sources};
use crate::ui;
use agent_core::context::ConversationEntry;
use agent_core::persona::{self, PersonaDirs};
use agent_core::session;

/// The task of a persona that is started without a task and without a terminal.
pub(crate) const MISSION: &str = "Begin your work in this repository: do what your role is for, on what \
                           was changed last.";

/// Prints every persona.
pub(crate) fn list(common: &GlobalArgs, json: bool) -> Result<u8> {
    let cwd = directory(common)?;
    let all = PersonaDirs::new(&cwd, sources(common, &cwd).trust_store()).list()?;
    if json {
        return ui::print(&format!("{:#}\n", persona::json(&all))).map(|()| 0);
    }
    let widest = all.iter().map(|it| it.name.chars().count()).max().unwrap_or(0).max(4);
    let row = |name: &str, source: &str, description: &str| {
        format!("{name:widest$}  {source:9}  {description}\n")
    };
    let rows = all.iter().map(|it| row(&it.name, &it.origin.to_string(), &it.description));
    let table: String = std::iter::once(row("NAME", "FROM", "DESCRIPTION")).chain(rows).collect();
    ui::print(&base::text::printable(&table)).map(|()| 0)
}

/// Returns the persona of the session to resume: `--resume` without `--agent` continues with it.
pub(crate) fn of_session(common: &GlobalArgs, requested: Option<&str>) -> Result<Option<String>> {
    let cwd = directory(common)?;
    let id = session::find(&cwd, requested)?;
    let path = session::sessions_dir(&cwd).join(id.as_str()).join("session.jsonl");
    let entries: Vec<ConversationEntry> =
        base::files::read_journal(&path).or_fail(|| format!("cannot read {}", path.display()))?;
    Ok(session::agent_of(&entries).flatten())
}
