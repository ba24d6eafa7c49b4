//! The user's terminal: its width, its colours, and input typed while g3 works.

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

/// Returns the width in columns of the terminal on stdout; `None` if stdout is not a terminal or
/// the size is unknown.
pub(crate) fn width() -> Option<usize> {
    let size = tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Returns the width in columns of the terminal on stderr.
pub(crate) fn stderr_width() -> Option<usize> {
    let size = tcgetwinsize(std::io::stderr()).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// Returns whether colours may be used, i.e. `NO_COLOR` is unset or empty.
pub(crate) fn has_colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Input that was typed before a prompt asked for it.
static TYPED: Mutex<String> = Mutex::new(String::new());

/// The terminal's modes before g3 changed them.
static FOUND: Mutex<Option<Termios>> = Mutex::new(None);

/// Whether a question is open; nothing else is drawn then.
static QUESTION: AtomicBool = AtomicBool::new(false);

/// Returns whether a question is open.
pub(crate) fn is_asking() -> bool {
    QUESTION.load(Ordering::Relaxed)
}

/// Prevents typed input from being echoed into the output while it is alive. The input stays in the
/// terminal's queue for the next prompt. It does nothing if stdin is not a terminal or g3 is not
/// its foreground process group.
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

/// Lets a question read its answer while it is alive: input is echoed, and input from before the
/// question does not answer it.
#[must_use]
pub(crate) struct QuestionInput {
    before: Option<Termios>,
}

impl QuestionInput {
    /// Saves earlier input for the next prompt, and switches the echo on.
    pub(crate) fn begin() -> QuestionInput {
        // Set before anything is shown, so that nothing is drawn over the question.
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

/// Takes the input that was typed before a question, for the next prompt.
pub(crate) fn take_typed() -> String {
    std::mem::take(&mut *typed())
}

fn typed() -> MutexGuard<'static, String> {
    base::sync::lock(&TYPED)
}

/// Reads the input that is in the terminal's queue.
fn drain() {
    let mut bytes = [0; 1024];
    while let Ok(read @ 1..) = rustix::io::read(std::io::stdin(), &mut bytes) {
        typed().push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
}

/// Changes the terminal's modes and returns the previous ones.
fn change(with: impl FnOnce(&mut Termios)) -> Option<Termios> {
    let stdin = std::io::stdin();
    let stdin = stdin.as_fd();
    // The kernel stops a background job that changes its terminal.
    if !stdin.is_terminal() || !base::process::is_in_foreground(stdin) {
        return None;
    }
    let before = tcgetattr(stdin).ok()?;
    base::sync::lock(&FOUND).get_or_insert_with(|| before.clone());
    let mut after = before.clone();
    with(&mut after);
    tcsetattr(stdin, OptionalActions::Now, &after).ok()?;
    Some(before)
}

/// Restores the terminal's original modes, for an exit without other cleanup.
pub(crate) fn give_back() {
    restore(base::sync::lock(&FOUND).take());
}

fn restore(before: Option<Termios>) {
    let Some(before) = before else { return };
    // A terminal that is gone needs no restoring.
    let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
}
