//! Files as open in the client's editor: read before the call, written after it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::open::{self, FileContent};
use crate::client_io::ClientIo;

/// The buffers of the files of one call.
#[derive(Default)]
pub(crate) struct EditorBuffers(Mutex<BTreeMap<PathBuf, State>>);

#[derive(Default)]
struct State {
    /// The text in the editor, if it differs from the file on disk.
    editor_text: Option<String>,
    /// Whether the write must be offered to the client first.
    through_client: bool,
    /// The text to be written.
    pending: Option<String>,
}

impl EditorBuffers {
    /// Reads the text from the client. Skips binary files, which an editor would show with
    /// replacement characters.
    pub(crate) async fn load_from_client(&self, client: &dyn ClientIo, path: &Path) {
        let disk = open::read(path).ok();
        let is_text =
            disk.as_ref().is_none_or(|content| std::str::from_utf8(&content.bytes).is_ok());
        let editor_text = if is_text { client.read(path).await } else { None };
        let differs = |text: &String| disk.is_none_or(|disk| disk.bytes != text.as_bytes());
        let state = State {
            editor_text: editor_text.filter(differs),
            through_client: is_text,
            pending: None,
        };
        self.states().insert(path.to_owned(), state);
    }

    /// Returns the content in the editor or on disk.
    pub(crate) fn load(&self, path: &Path) -> io::Result<FileContent> {
        let states = self.states();
        let text = states
            .get(path)
            .and_then(|state| state.pending.as_ref().or(state.editor_text.as_ref()));
        let Some(text) = text else { return open::read(path) };
        let mode = open::read(path).map_or(0o644, |disk| disk.mode);
        Ok(FileContent { bytes: text.clone().into_bytes(), mode })
    }

    /// Replaces the file: immediately, or in [`EditorBuffers::flush`].
    pub(crate) fn store(&self, path: &Path, text: &str) -> io::Result<()> {
        match self.states().get_mut(path).filter(|state| state.through_client) {
            Some(state) => {
                state.pending = Some(text.to_owned());
                Ok(())
            }
            None => open::replace(path, text.as_bytes()),
        }
    }

    /// Reverts a stored text: nothing is handed over, and the file on disk has its original
    /// content.
    pub(crate) fn restore(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let pending = self.states().get_mut(path).and_then(|state| state.pending.take());
        if pending.is_some() { Ok(()) } else { open::replace(path, bytes) }
    }

    /// Writes the stored text, through the client or to disk.
    pub(crate) async fn flush(&self, client: &dyn ClientIo, path: &Path) -> io::Result<()> {
        let pending = self.states().get_mut(path).and_then(|state| state.pending.take());
        let Some(text) = pending else { return Ok(()) };
        match client.write(path, &text).await {
            Some(pending) => pending,
            None => open::replace(path, text.as_bytes()),
        }
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<PathBuf, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
