//! The user's terminal: its width, whether it has colours, and what is typed while g3 works.

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

/// Columns of the terminal that stdout is; `None` where it is none or its size is not known.
pub(crate) fn width() -> Option<usize> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Columns of the terminal that stderr is.
pub(crate) fn stderr_width() -> Option<usize> {
    let size = tcgetwinsize(std::io::stderr()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Whether colours may be used: not where the user set `NO_COLOR`.
pub(crate) fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// What the user typed before anything asked for it.
static TYPED: Mutex<String> = Mutex::new(String::new());

/// The terminal's modes as g3 found them.
static FOUND: Mutex<Option<Termios>> = Mutex::new(None);

/// Whether a question waits for its answer: nothing else is drawn then.
static QUESTION: AtomicBool = AtomicBool::new(false);

/// Whether a question waits for its answer.
pub(crate) fn is_asking() -> bool {
    QUESTION.load(Ordering::Relaxed)
}

/// While it is held, what the user types is not echoed into the output. It stays in the terminal's
/// queue for the next prompt. Nothing happens where stdin is not a terminal, or not ours.
#[must_use]
pub(crate) struct QuietInput {
    before: Option<Termios>,
}

impl QuietInput {
    /// Switches the echo off.
    pub(crate) fn begin() -> QuietInput {
        QuietInput { before: change(|modes| modes.local_modes.remove(LocalModes::ECHO)) }
    }
}

impl Drop for QuietInput {
    fn drop(&mut self) {
        restore(self.before.take());
    }
}

/// While it is held, a question reads its answer: what is typed is echoed, and what was typed
/// before the question does not answer it.
#[must_use]
pub(crate) struct QuestionInput {
    before: Option<Termios>,
}

impl QuestionInput {
    /// Keeps what was typed for the next prompt, and switches the echo on.
    pub(crate) fn begin() -> QuestionInput {
        // Before anything is shown, so that nothing is drawn over the question.
        QUESTION.store(true, Ordering::Relaxed);
        let raw = change(|modes| {
            modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
            modes.special_codes[SpecialCodeIndex::VMIN] = 0;
            modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        });
        if raw.is_some() {
            drain();
        }
        restore(raw);
        let before =
            change(|modes| modes.local_modes.insert(LocalModes::ICANON | LocalModes::ECHO));
        QuestionInput { before }
    }
}

impl Drop for QuestionInput {
    fn drop(&mut self) {
        restore(self.before.take());
        QUESTION.store(false, Ordering::Relaxed);
    }
}

/// What was typed before a question, for the next prompt.
pub(crate) fn take_typed() -> String {
    std::mem::take(&mut *typed())
}

fn typed() -> MutexGuard<'static, String> {
    TYPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads what waits in the terminal's queue.
fn drain() {
    let mut bytes = [0; 1024];
    while let Ok(read @ 1..) = rustix::io::read(std::io::stdin(), &mut bytes) {
        typed().push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
}

/// Changes the terminal's modes; gives those before.
fn change(with: impl FnOnce(&mut Termios)) -> Option<Termios> {
    let stdin = std::io::stdin();
    let stdin = stdin.as_fd();
    // A job in the background that changes its terminal is stopped.
    let is_ours = stdin.is_terminal()
        && rustix::termios::tcgetpgrp(stdin).ok() == Some(rustix::process::getpgrp());
    if !is_ours {
        return None;
    }
    let before = tcgetattr(stdin).ok()?;
    FOUND.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| before.clone());
    let mut after = before.clone();
    with(&mut after);
    tcsetattr(stdin, OptionalActions::Now, &after).ok()?;
    Some(before)
}

/// Gives the terminal back as it was found; for an end at which nothing else is tidied up.
pub(crate) fn give_back() {
    restore(FOUND.lock().unwrap_or_else(PoisonError::into_inner).take());
}

fn restore(before: Option<Termios>) {
    let Some(before) = before else { return };
    // A terminal that is gone needs nothing.
    let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
}
