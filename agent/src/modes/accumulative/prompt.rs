//! The `requirement> ` prompt, with its own history.

use std::path::PathBuf;

use base::failure::{OrFail, Result};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

/// Reads lines on a separate thread, so that signals are handled while it waits.
pub(crate) struct LinePrompt {
    editor: DefaultEditor,
    history: Option<PathBuf>,
}

impl LinePrompt {
    /// Opens a prompt with the history in `~/.g3/requirements_history`.
    pub(crate) fn open() -> Result<LinePrompt> {
        let mut editor = DefaultEditor::new().or_fail(|| "cannot open the terminal")?;
        let home = base::user_dirs::home_dir();
        let history = home.map(|home| home.join(".g3/requirements_history"));
        if let Some(file) = &history {
            // The file does not exist on the first run.
            let _ = editor.load_history(file);
        }
        Ok(LinePrompt { editor, history })
    }

    /// Reads one line: empty after Ctrl-C, `None` at the end of the input. Returns the prompt with
    /// it.
    pub(crate) async fn read(mut self) -> Result<(LinePrompt, Option<String>)> {
        let reading = tokio::task::spawn_blocking(move || {
            let line = self.editor.readline("requirement> ");
            (self, line)
        });
        let (mut prompt, line) = reading.await.or_fail(|| "the line editor broke")?;
        match line {
            Ok(line) => {
                prompt.remember(&line);
                Ok((prompt, Some(line)))
            }
            Err(ReadlineError::Interrupted) => Ok((prompt, Some(String::new()))),
            Err(ReadlineError::Eof) => Ok((prompt, None)),
            Err(error) => Err(error).or_fail(|| "cannot read from the terminal"),
        }
    }

    fn remember(&mut self, line: &str) {
        let added = !line.trim().is_empty() && self.editor.add_history_entry(line).unwrap_or(false);
        if let Some(file) = self.history.as_ref().filter(|_| added) {
            // A history that cannot be written is not an error.
            let _ = file.parent().map(std::fs::create_dir_all);
            let _ = self.editor.append_history(file);
        }
    }
}
