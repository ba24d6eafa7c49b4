//! Inspects the files of a turn: which exist, which were removed and which changed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{State, TurnGuide};
use crate::prompt::small_model::task::{self, is_data};
use crate::prompt::small_model::{relevant, syntax};
use tools::fs::overwrite_guard::part_name;

/// All files with their length and the time of their last change (ctime).
pub(crate) type WorkspaceFiles = Vec<(PathBuf, u64, (i64, i64))>;

impl TurnGuide {
    /// Returns the files that the task names and that have not been created yet. A file that
    /// existed at the start and is gone was deleted on purpose.
    pub(super) fn missing(&self) -> impl Iterator<Item = &String> {
        let missing = |name: &&String| !self.cwd.join(name.as_str()).exists();
        self.task.files.iter().filter(missing).filter(|name| !self.existed(name))
    }

    /// Whether a file existed at the start of the turn.
    pub(super) fn existed(&self, name: &str) -> bool {
        self.before.iter().any(|(path, _, _)| path == Path::new(name))
    }

    /// Returns a part of a program that was renamed or removed, and a file that still refers to it.
    pub(super) fn leftover_reference(&self) -> Option<(&str, &str)> {
        let current_text =
            |name: &str| relevant::read_text(&self.cwd.join(name)).unwrap_or_default();
        let missing_parts = self.texts.iter().flat_map(|(file, text)| {
            let after = current_text(file);
            let parts = text.lines().filter_map(part_name);
            parts.filter(move |part| !relevant::has_word(&after, part))
        });
        missing_parts.into_iter().find_map(|part| {
            let mut files = self.task.files.iter().filter(|file| !is_data(file));
            let file = files.find(|file| relevant::has_word(&current_text(file), part))?;
            Some((part, file.as_str()))
        })
    }

    /// Whether anything changed in this turn.
    pub(super) fn changed(&self, state: &State) -> bool {
        !state.wrote.is_empty() || self.before != list_files(&self.cwd)
    }

    /// Returns the syntax error of a file that was written in this turn.
    pub(super) fn syntax_error(&self, state: &State, name: &str) -> Option<String> {
        let written = state.wrote.contains(name) || !self.existed(name);
        let is_own = written && !state.excused.contains(name);
        syntax::syntax_error(&self.cwd.join(name)).filter(|_| is_own)
    }

    /// Returns the program that runs a file, by its first line or its name.
    pub(super) fn runner(&self, name: &str) -> Option<&'static str> {
        let is_bash = syntax::is_bash(&self.cwd.join(name));
        if is_bash { Some("bash") } else { task::runner(name) }
    }
}

/// Returns the current files of a directory.
pub(crate) fn list_files(cwd: &Path) -> WorkspaceFiles {
    let metadata = |path: PathBuf| {
        let metadata = std::fs::metadata(cwd.join(&path)).ok()?;
        Some((path, metadata.len(), (metadata.ctime(), metadata.ctime_nsec())))
    };
    relevant::changeable_files(cwd).into_iter().filter_map(metadata).collect()
}
