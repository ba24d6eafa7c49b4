//! Changes several files atomically: all of them are written, or none.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::text;
use tools::call::Invocation;
use tools::fs::open::FileContent;
use tools::fs::read_tracker::{self, ChangedFile, EditFit};
use tools::output::ToolError;
use tools::text_diff::{Difference, difference};
use tools::undo::record::PlannedWrite;

/// Planned file contents. Nothing is written before [`AtomicEdit::commit`].
pub(crate) struct AtomicEdit<'a, 'c> {
    call: &'a Invocation<'c>,
    files: BTreeMap<PathBuf, State>,
    /// Notes about files that were edited although they had changed since the session saw them.
    pub notes: Vec<String>,
}

#[derive(Default)]
struct State {
    before: Option<FileContent>,
    /// Set if the session saw the file and its content is different now.
    changed: Option<ChangedFile>,
    after: Option<String>,
    /// The permission bits to set: those of the file that it was moved from.
    mode: Option<u32>,
}

/// The status of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileStatus {
    /// The file is new.
    Added,
    /// The file has changed.
    Modified,
    /// The file was deleted.
    Deleted,
}

/// An edited file.
pub(crate) struct EditedFile {
    /// The path.
    pub path: PathBuf,
    /// The status.
    pub status: FileStatus,
    /// The diff.
    pub difference: Difference,
}

impl<'a, 'c> AtomicEdit<'a, 'c> {
    /// Creates an edit without changes.
    pub(crate) fn new(call: &'a Invocation<'c>) -> AtomicEdit<'a, 'c> {
        AtomicEdit { call, files: BTreeMap::new(), notes: Vec::new() }
    }

    /// Returns the planned text of a file, or `None` if there is no file.
    pub(crate) fn text(&mut self, path: &Path) -> Result<Option<String>, ToolError> {
        self.open(path)?;
        Ok(self.files.get(path).and_then(|state| state.after.clone()))
    }

    /// Whether the file exists, text or binary.
    pub(crate) fn exists(&mut self, path: &Path) -> Result<bool, ToolError> {
        match self.files.get(path) {
            Some(state) => Ok(state.after.is_some()),
            None => match fs::symlink_metadata(path) {
                Ok(metadata) if metadata.is_dir() => {
                    let error = io::Error::new(io::ErrorKind::IsADirectory, "it is a directory");
                    Err(ToolError::io(&self.call.display_path(path), &error))
                }
                Ok(_) => Ok(true),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
                Err(e) => Err(ToolError::io(&self.call.display_path(path), &e)),
            },
        }
    }

    /// Sets the text of a file, whatever it was.
    pub(crate) fn write_new(&mut self, path: &Path, text: String) -> Result<(), ToolError> {
        self.unmodified_state(path)?.after = Some(text);
        Ok(())
    }

    /// Sets the text of a file as the result of an edit of its content.
    pub(crate) fn edit(
        &mut self,
        path: &Path,
        text: String,
        fit: EditFit,
    ) -> Result<(), ToolError> {
        let call = self.call;
        let state = self.state(path)?;
        let mut note = None;
        if let Some(before) = &state.before {
            let before = (before.bytes.as_slice(), state.changed.as_ref());
            note = read_tracker::check_edit(&call.context.session_dir, path, before, fit)?;
            // The change is reported only once.
            state.changed = None;
        }
        state.after = Some(text);
        self.notes.extend(note.map(|note| format!("{}: {note}", call.display_path(path))));
        Ok(())
    }

    /// Explains why an edit did not match this file, with the change that may be the reason.
    pub(crate) fn explain(&self, path: &Path, message: String) -> String {
        let session_dir = &self.call.context.session_dir;
        let Some(State { before: Some(before), changed: Some(change), .. }) = self.files.get(path)
        else {
            return message;
        };
        change.explain(session_dir, path, &before.bytes, &message)
    }

    /// Deletes a file.
    pub(crate) fn remove(&mut self, path: &Path) -> Result<(), ToolError> {
        self.unmodified_state(path)?.after = None;
        Ok(())
    }

    /// Sets the text of a file that is moved, and keeps its permission bits.
    pub(crate) fn rename(
        &mut self,
        from: &Path,
        to: &Path,
        (text, fit): (String, EditFit),
    ) -> Result<(), ToolError> {
        self.edit(from, String::new(), fit)?;
        let state = self.state(from)?;
        let mode = state.mode.or(state.before.as_ref().map(|content| content.mode));
        state.after = None;
        let state = self.unmodified_state(to)?;
        (state.after, state.mode) = (Some(text), mode);
        Ok(())
    }

    fn open(&mut self, path: &Path) -> Result<(), ToolError> {
        if self.files.contains_key(path) || !self.exists(path)? {
            return Ok(());
        }
        let display_path = self.call.display_path(path);
        let state = self.state(path)?;
        let bytes = state.before.as_ref().map(|content| content.bytes.clone());
        state.after = bytes.map(|bytes| text::decode_text(&display_path, bytes)).transpose()?;
        Ok(())
    }

    /// Returns the state of a file, which must be as the session last saw it.
    fn unmodified_state(&mut self, path: &Path) -> Result<&mut State, ToolError> {
        let call = self.call;
        let state = self.state(path)?;
        if let (Some(before), Some(change)) = (&state.before, &state.changed) {
            read_tracker::record(&call.context.session_dir, path, &before.bytes);
            return Err(change.refusal(path));
        }
        Ok(state)
    }

    fn state(&mut self, path: &Path) -> Result<&mut State, ToolError> {
        if !self.files.contains_key(path) {
            let mut changed = None;
            let before = match self.exists(path)? {
                true => {
                    let read_error = |error| ToolError::io(&self.call.display_path(path), &error);
                    let content = self.call.load(path).map_err(read_error)?;
                    changed = read_tracker::changed(
                        &self.call.context.session_dir,
                        path,
                        &content.bytes,
                    )?;
                    Some(content)
                }
                false => None,
            };
            self.files.insert(path.to_owned(), State { before, changed, ..State::default() });
        }
        Ok(self.files.entry(path.to_owned()).or_default())
    }

    /// Writes all files. If one cannot be written, the previous ones are restored.
    pub(crate) fn commit(self) -> Result<Vec<EditedFile>, ToolError> {
        let call = self.call;
        let is_changed = |state: &State| {
            let before = state.before.as_ref().map(|content| content.bytes.as_slice());
            before != state.after.as_ref().map(String::as_bytes)
        };
        let files: Vec<(PathBuf, State)> =
            self.files.into_iter().filter(|(_, state)| is_changed(state)).collect();
        let writes: Vec<PlannedWrite<'_>> = files.iter().map(planned_write).collect();
        call.record(&writes).map_err(|e| ToolError::io("nothing was written", &e))?;
        for (index, (path, state)) in files.iter().enumerate() {
            base::files::step("g3.write.file");
            let Err(error) = write(call, path, state) else { continue };
            let not_restored = roll_back(call, &files[..index]);
            let message = match not_restored.is_empty() {
                true => "Nothing was changed".to_owned(),
                false => format!("These could not be put back: {}", not_restored.join(", ")),
            };
            if not_restored.is_empty() {
                call.discard_record();
            }
            let text = format!("{}: {}. {message}", call.display_path(path), error.text);
            return Err(ToolError::new(error.kind, text));
        }
        Ok(files.into_iter().map(|(path, state)| edited_file(path, &state)).collect())
    }
}

fn planned_write((path, state): &(PathBuf, State)) -> PlannedWrite<'_> {
    (path, state.after.as_deref().map(str::as_bytes))
}

fn write(call: &Invocation<'_>, path: &Path, state: &State) -> Result<(), ToolError> {
    let write_error = |error: io::Error| ToolError::io("cannot be written", &error);
    let Some(text) = &state.after else { return fs::remove_file(path).map_err(write_error) };
    call.create_parents(path).map_err(write_error)?;
    call.store(path, text).map_err(write_error)?;
    if let Some(mode) = state.mode {
        // If the file is open in an editor, it is written later.
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    }
    read_tracker::record(&call.context.session_dir, path, text.as_bytes());
    Ok(())
}

/// Restores files. Returns those that could not be restored, with the errors.
fn roll_back(call: &Invocation<'_>, files: &[(PathBuf, State)]) -> Vec<String> {
    let mut not_restored = Vec::new();
    for (path, state) in files {
        let result = match &state.before {
            Some(content) => call.restore(path, &content.bytes).inspect(|()| {
                read_tracker::record(&call.context.session_dir, path, &content.bytes);
                let mode = fs::Permissions::from_mode(content.mode);
                let _ = fs::set_permissions(path, mode);
            }),
            None => fs::remove_file(path),
        };
        if let Err(error) = result {
            not_restored.push(format!("{} ({error})", call.display_path(path)));
        }
    }
    not_restored
}

fn edited_file(path: PathBuf, state: &State) -> EditedFile {
    let status = match (&state.before, &state.after) {
        (None, _) => FileStatus::Added,
        (Some(_), None) => FileStatus::Deleted,
        (Some(_), Some(_)) => FileStatus::Modified,
    };
    let before = state.before.as_ref().map(|content| String::from_utf8_lossy(&content.bytes));
    let after = state.after.as_deref().unwrap_or_default();
    EditedFile { path, status, difference: difference(&before.unwrap_or_default(), after) }
}
