//! The line editor: history, completion of commands, sessions and paths, and multi-line input with
//! a trailing backslash or Alt+Enter.

use std::path::{Path, PathBuf};

use base::failure::{OrFail, Result};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Cmd, Context, Editor, Helper, KeyCode, KeyEvent, Modifiers};

use super::commands::TABLE;
use agent_core::session;

/// The input at the prompt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PromptInput {
    /// A message or a command.
    Words(String),
    /// Enter on an empty line, or Ctrl-C.
    Nothing,
    /// Ctrl-D.
    End,
}

/// Reads lines on a separate thread, so that signals are handled while it waits.
pub(crate) struct LineEditor {
    editor: Editor<Hints, FileHistory>,
    history: Option<PathBuf>,
}

impl LineEditor {
    /// Opens an editor with the history in `~/.g3/history`.
    pub(crate) fn open(cwd: &Path) -> Result<LineEditor> {
        let mut editor: Editor<Hints, FileHistory> =
            Editor::new().or_fail(|| "cannot open the terminal")?;
        editor.set_helper(Some(Hints { cwd: cwd.to_owned() }));
        editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), Cmd::Newline);
        let home = base::user_dirs::home_dir();
        let history = home.map(|home| home.join(".g3/history"));
        if let Some(file) = &history {
            // The file does not exist on the first run.
            let _ = editor.load_history(file);
        }
        Ok(LineEditor { editor, history })
    }

    /// Reads one line that starts with the text typed so far. Returns the editor with it.
    pub(crate) async fn read(
        mut self,
        prompt: String,
        typed: String,
    ) -> Result<(LineEditor, PromptInput)> {
        let reading = tokio::task::spawn_blocking(move || {
            let line = match typed.is_empty() {
                true => self.editor.readline(&prompt),
                false => self.editor.readline_with_initial(&prompt, (&typed, "")),
            };
            (self, line)
        });
        let (mut editor, line) = reading.await.or_fail(|| "the line editor broke")?;
        let line = match line {
            Ok(text) => editor.accept(&text),
            Err(ReadlineError::Interrupted) => PromptInput::Nothing,
            Err(ReadlineError::Eof) => PromptInput::End,
            Err(error) => return Err(error).or_fail(|| "cannot read from the terminal"),
        };
        Ok((editor, line))
    }

    fn accept(&mut self, text: &str) -> PromptInput {
        let words = text.replace("\\\n", "\n");
        if words.trim().is_empty() {
            return PromptInput::Nothing;
        }
        let added = self.editor.add_history_entry(text).unwrap_or(false);
        if let Some(file) = self.history.as_ref().filter(|_| added) {
            // A history that cannot be written is not an error.
            let _ = file.parent().map(std::fs::create_dir_all);
            let _ = self.editor.append_history(file);
        }
        PromptInput::Words(words.trim().to_owned())
    }
}

/// Completes commands, sessions and paths, and continues a line after a backslash.
struct Hints {
    cwd: PathBuf,
}

/// Commands whose argument is a session.
const OF_SESSIONS: [&str; 1] = ["/resume "];

impl Completer for Hints {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(completions(&self.cwd, line.get(..pos).unwrap_or_default()))
    }
}

/// Returns the position at which the completed text starts, and all candidates.
fn completions(cwd: &Path, typed: &str) -> (usize, Vec<String>) {
    let command = typed.starts_with('/') && !typed.contains(char::is_whitespace);
    if command && !typed[1..].contains('/') {
        let fits = TABLE.iter().filter(|one| one.name.starts_with(typed));
        return (0, fits.map(|one| one.name.to_owned()).collect());
    }
    if let Some(name) = OF_SESSIONS.iter().find(|name| typed.starts_with(**name)) {
        let ids = session::list(cwd).unwrap_or_default().into_iter().map(|id| id.to_string());
        return (name.len(), ids.filter(|id| id.starts_with(&typed[name.len()..])).collect());
    }
    let start = typed.rfind(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '(' | '`'));
    let start = start.map_or(0, |index| index + 1);
    let begun = &typed[start..];
    match begun.strip_prefix('@') {
        Some(begun) => {
            let matches = match paths(cwd, begun) {
                matches if matches.is_empty() => anywhere(cwd, begun),
                matches => matches,
            };
            (start, matches.into_iter().map(|path| format!("@{path}")).collect())
        }
        None => (start, if begun.is_empty() { Vec::new() } else { paths(cwd, begun) }),
    }
}

/// Maximum number of files that are searched for a matching path.
const LOOKED_AT: usize = 20_000;
/// Maximum number of matching files that are offered.
const OFFERED: usize = 20;

/// Returns the files below the working directory whose path contains this text, without those that
/// git ignores.
fn anywhere(cwd: &Path, text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let below = |entry: ignore::DirEntry| {
        let path = entry.path().strip_prefix(cwd).ok()?.to_str()?.to_owned();
        let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
        (is_file && path.to_lowercase().contains(&text)).then_some(path)
    };
    let walk = ignore::WalkBuilder::new(cwd).build().flatten().take(LOOKED_AT);
    let mut matches: Vec<String> = walk.filter_map(below).take(OFFERED).collect();
    matches.sort();
    matches
}

/// Returns the paths that start with this text, as they would be typed; directories end with a
/// slash.
fn paths(cwd: &Path, begun: &str) -> Vec<String> {
    let (folder, name) = begun.rsplit_once('/').map_or(("", begun), |(dir, name)| (dir, name));
    let prefix = if begun.contains('/') { format!("{folder}/") } else { String::new() };
    let home = base::user_dirs::home_dir().unwrap_or_default();
    let place = match prefix.strip_prefix("~/") {
        Some(below) => home.join(below),
        None => cwd.join(&prefix),
    };
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let mut fits: Vec<String> = entries
        .filter_map(|entry| {
            let file_name = entry.file_name().into_string().ok()?;
            let hidden = file_name.starts_with('.') && !name.starts_with('.');
            let end = if entry.path().is_dir() { "/" } else { "" };
            (file_name.starts_with(name) && !hidden).then(|| format!("{prefix}{file_name}{end}"))
        })
        .collect();
    fits.sort();
    fits
}

impl Validator for Hints {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let more = context.input().ends_with('\\');
        Ok(if more { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Hinter for Hints {
    type Hint = String;
}

impl Highlighter for Hints {}

impl Helper for Hints {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_sessions_and_paths_are_completed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        for name in ["src/main.rs", "src/.hidden", "setup"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let made = session::Session::create(dir.path(), "fix it").unwrap();
        std::fs::write(made.journal_path(), "").unwrap();
        let of = |typed: &str| completions(dir.path(), typed);
        assert_eq!(of("/comp"), (0, vec!["/compact".to_owned()]));
        assert_eq!(of("/resume f"), (8, vec![made.id.to_string()]));
        assert_eq!(of("look at s"), (8, vec!["setup".to_owned(), "src/".to_owned()]));
        assert_eq!(of("look at src/"), (8, vec!["src/main.rs".to_owned()]));
        assert_eq!(of("/run src/.h"), (5, vec!["src/.hidden".to_owned()]));
        assert_eq!(of("nothing "), (8, vec![]));
        assert_eq!(of("fix @src/"), (4, vec!["@src/main.rs".to_owned()]));
        assert_eq!(of("fix @main"), (4, vec!["@src/main.rs".to_owned()]));
        assert_eq!(of("@"), (0, vec!["@setup".to_owned(), "@src/".to_owned()]));
    }
}
