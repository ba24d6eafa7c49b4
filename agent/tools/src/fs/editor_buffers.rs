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
    shown: Option<String>,
    /// Whether the write must be offered to the client first.
    waits: bool,
    /// The text to be written.
    written: Option<String>,
}

impl EditorBuffers {
    /// Reads the text from the client. Skips binary files, which an editor would show with
    /// replacement characters.
    pub(crate) async fn ask(&self, outside: &dyn ClientIo, path: &Path) {
        let disk = open::read(path).ok();
        let is_text = disk.as_ref().is_none_or(|it| std::str::from_utf8(&it.bytes).is_ok());
        let shown = if is_text { outside.read(path).await } else { None };
        let differs = |text: &String| disk.is_none_or(|disk| disk.bytes != text.as_bytes());
        let state = State { shown: shown.filter(differs), waits: is_text, written: None };
        self.all().insert(path.to_owned(), state);
    }

    /// Returns the content in the editor or on disk.
    pub(crate) fn load(&self, path: &Path) -> io::Result<FileContent> {
        let all = self.all();
        let text = all.get(path).and_then(|state| state.written.as_ref().or(state.shown.as_ref()));
        let Some(text) = text else { return open::read(path) };
        let mode = open::read(path).map_or(0o644, |disk| disk.mode);
        Ok(FileContent { bytes: text.clone().into_bytes(), mode })
    }

    /// Replaces the file: immediately, or in [`EditorBuffers::hand_over`].
    pub(crate) fn store(&self, path: &Path, text: &str) -> io::Result<()> {
        match self.all().get_mut(path).filter(|state| state.waits) {
            Some(state) => {
                state.written = Some(text.to_owned());
                Ok(())
            }
            None => open::replace(path, text.as_bytes()),
        }
    }

    /// Reverts a stored text: nothing is handed over, and the file on disk has its original
    /// content.
    pub(crate) fn put_back(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let waited = self.all().get_mut(path).and_then(|state| state.written.take());
        if waited.is_some() { Ok(()) } else { open::replace(path, bytes) }
    }

    /// Writes the stored text, through the client or to disk.
    pub(crate) async fn hand_over(&self, outside: &dyn ClientIo, path: &Path) -> io::Result<()> {
        let written = self.all().get_mut(path).and_then(|state| state.written.take());
        let Some(text) = written else { return Ok(()) };
        match outside.write(path, &text).await {
            Some(written) => written,
            None => open::replace(path, text.as_bytes()),
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<PathBuf, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
