//! A file as somebody outside holds it: read before the call, written after it.

use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::open::{self, Content};
use crate::tools::outside::Outside;

/// What is held of the file of one call.
#[derive(Default)]
pub struct Held(Mutex<State>);

#[derive(Default)]
struct State {
    /// The text outside, unless that is the one on the disk.
    shown: Option<String>,
    /// Whether somebody outside may want to write it.
    waits: bool,
    /// What is to be written.
    written: Option<String>,
}

impl Held {
    /// Asks for the text outside. What is no text on the disk is left to the disk: an editor
    /// would show it with characters that are not there.
    pub async fn ask(&self, outside: &dyn Outside, path: &Path) {
        let disk = open::read(path).ok();
        let is_text = disk.as_ref().is_none_or(|it| std::str::from_utf8(&it.bytes).is_ok());
        let shown = if is_text { outside.read(path).await } else { None };
        let differs = |text: &String| disk.is_none_or(|disk| disk.bytes != text.as_bytes());
        *self.state() = State { shown: shown.filter(differs), waits: is_text, written: None };
    }

    /// The content, as it is outside or on the disk.
    pub fn load(&self, path: &Path) -> io::Result<Content> {
        let state = self.state();
        let text = state.written.as_ref().or(state.shown.as_ref());
        let Some(text) = text else { return open::read(path) };
        let mode = open::read(path).map_or(0o644, |disk| disk.mode);
        Ok(Content { bytes: text.clone().into_bytes(), mode })
    }

    /// Replaces the file: at once, or by [`Held::hand_over`].
    pub fn store(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut state = self.state();
        if !state.waits {
            return open::replace(path, text.as_bytes());
        }
        state.written = Some(text.to_owned());
        Ok(())
    }

    /// Writes what is to be written: through whoever is outside, else on the disk.
    pub async fn hand_over(&self, outside: &dyn Outside, path: &Path) -> io::Result<()> {
        let Some(text) = self.state().written.take() else { return Ok(()) };
        match outside.write(path, &text).await {
            Some(written) => written,
            None => open::replace(path, text.as_bytes()),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
