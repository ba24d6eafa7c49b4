//! The line editor: history, completion of commands, a trailing backslash for another line.

use std::path::PathBuf;

use base::failure::{OrFail, Result};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Editor, Helper};

use super::commands::TABLE;

/// What the user did at the prompt.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// Said something.
    Words(String),
    /// Pressed Enter or Ctrl-C.
    Nothing,
    /// Pressed Ctrl-D.
    End,
}

/// Reads lines on a thread of its own, so that signals are heard meanwhile.
pub struct LineEditor {
    editor: Editor<Hints, FileHistory>,
    history: Option<PathBuf>,
}

impl LineEditor {
    /// An editor with the history of `~/.g3/history`.
    pub fn open() -> Result<LineEditor> {
        let mut editor: Editor<Hints, FileHistory> =
            Editor::new().or_fail(|| "cannot open the terminal")?;
        editor.set_helper(Some(Hints));
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let history = home.map(|home| home.join(".g3/history"));
        if let Some(file) = &history {
            // The first time there is none.
            let _ = editor.load_history(file);
        }
        Ok(LineEditor { editor, history })
    }

    /// Reads one line; gives the editor back with it.
    pub async fn read(mut self, prompt: String) -> Result<(LineEditor, Line)> {
        let reading = tokio::task::spawn_blocking(move || {
            let line = self.editor.readline(&prompt);
            (self, line)
        });
        let (mut editor, line) = reading.await.or_fail(|| "the line editor broke")?;
        let line = match line {
            Ok(text) => editor.heard(&text),
            Err(ReadlineError::Interrupted) => Line::Nothing,
            Err(ReadlineError::Eof) => Line::End,
            Err(why) => return Err(why).or_fail(|| "cannot read from the terminal"),
        };
        Ok((editor, line))
    }

    fn heard(&mut self, text: &str) -> Line {
        let words = text.replace("\\\n", "\n");
        if words.trim().is_empty() {
            return Line::Nothing;
        }
        let added = self.editor.add_history_entry(text).unwrap_or(false);
        if let Some(file) = self.history.as_ref().filter(|_| added) {
            // A history that cannot be written is no reason to stop.
            let _ = file.parent().map(std::fs::create_dir_all);
            let _ = self.editor.append_history(file);
        }
        Line::Words(words.trim().to_owned())
    }
}

/// Completes commands and lets a backslash continue a line.
struct Hints;

impl Completer for Hints {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        pos: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..pos).unwrap_or_default();
        let fits =
            TABLE.iter().filter(|(name, _)| typed.starts_with('/') && name.starts_with(typed));
        Ok((0, fits.map(|(name, _)| (*name).to_owned()).collect()))
    }
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
