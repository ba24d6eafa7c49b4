//! Files as somebody outside holds them: read before the call, written after it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::open::{self, FileContent};
use crate::client_io::ClientIo;

/// What is held of the files of one call.
#[derive(Default)]
pub(crate) struct EditorBuffers(Mutex<BTreeMap<PathBuf, State>>);

#[derive(Default)]
struct State {
    /// The text outside, unless that is the one on the disk.
    shown: Option<String>,
    /// Whether somebody outside may want to write it.
    waits: bool,
    /// What is to be written.
    written: Option<String>,
}

impl EditorBuffers {
    /// Asks for the text outside. What is no text on the disk is left to the disk: an editor
    /// would show it with characters that are not there.
    pub(crate) async fn ask(&self, outside: &dyn ClientIo, path: &Path) {
        let disk = open::read(path).ok();
        let is_text = disk.as_ref().is_none_or(|it| std::str::from_utf8(&it.bytes).is_ok());
        let shown = if is_text { outside.read(path).await } else { None };
        let differs = |text: &String| disk.is_none_or(|disk| disk.bytes != text.as_bytes());
        let state = State { shown: shown.filter(differs), waits: is_text, written: None };
        self.all().insert(path.to_owned(), state);
    }

    /// The content, as it is outside or on the disk.
    pub(crate) fn load(&self, path: &Path) -> io::Result<FileContent> {
        let all = self.all();
        let text = all.get(path).and_then(|state| state.written.as_ref().or(state.shown.as_ref()));
        let Some(text) = text else { return open::read(path) };
        let mode = open::read(path).map_or(0o644, |disk| disk.mode);
        Ok(FileContent { bytes: text.clone().into_bytes(), mode })
    }

    /// Replaces the file: at once, or by [`Held::hand_over`].
    pub(crate) fn store(&self, path: &Path, text: &str) -> io::Result<()> {
        match self.all().get_mut(path).filter(|state| state.waits) {
            Some(state) => {
                state.written = Some(text.to_owned());
                Ok(())
            }
            None => open::replace(path, text.as_bytes()),
        }
    }

    /// Takes back what was stored: nothing is handed over, and the disk is as it was.
    pub(crate) fn put_back(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let waited = self.all().get_mut(path).and_then(|state| state.written.take());
        if waited.is_some() { Ok(()) } else { open::replace(path, bytes) }
    }

    /// Writes what is to be written: through whoever is outside, else on the disk.
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
