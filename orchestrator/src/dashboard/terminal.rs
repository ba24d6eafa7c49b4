//! The terminal of the dashboard: its modes, which are always restored, and what is drawn on it.

use std::io::{Stdout, Write, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

use base::failure::{OrFail, Result};
use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use crate::dashboard::state::Dashboard;
use crate::dashboard::view::{self, Drawn};

/// Whether the terminal is in the dashboard's modes.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

/// The terminal in the dashboard's modes. They are restored on drop, and when the program panics.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal.
    pub(crate) fn open(has_mouse: bool) -> Result<Screen> {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            previous(info);
        }));
        let terminal = Terminal::new(CrosstermBackend::new(stdout()));
        let terminal = terminal.or_fail(|| "cannot use the terminal")?;
        let mut screen = Screen { terminal };
        screen.enter(has_mouse)?;
        Ok(screen)
    }

    /// Sets the modes of the terminal; the next frame draws everything.
    pub(crate) fn enter(&mut self, has_mouse: bool) -> Result<()> {
        let fail = || "cannot use the terminal";
        enable_raw_mode().or_fail(fail)?;
        IS_ENTERED.store(true, Ordering::SeqCst);
        execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste).or_fail(fail)?;
        self.set_mouse(has_mouse)?;
        self.clear()
    }

    /// Restores the modes of the terminal, for another program or for the end.
    pub(crate) fn leave(&mut self) {
        restore();
    }

    /// Sets whether the terminal reports the mouse.
    pub(crate) fn set_mouse(&mut self, has_mouse: bool) -> Result<()> {
        let result = match has_mouse {
            // Clicks and the wheel, without every movement.
            true => stdout().write_all(b"\x1b[?1000h\x1b[?1006h").and_then(|()| stdout().flush()),
            false => execute!(stdout(), DisableMouseCapture),
        };
        result.or_fail(|| "cannot use the terminal")
    }

    /// Makes the next frame draw everything.
    pub(crate) fn clear(&mut self) -> Result<()> {
        let fail = || "cannot draw on the terminal";
        // `Terminal::clear` would ask the terminal for its cursor and wait for the answer.
        let size = self.terminal.size().or_fail(fail)?;
        self.terminal.resize(size.into()).or_fail(fail)
    }

    /// Draws the cells that differ from the last frame.
    pub(crate) fn draw(&mut self, state: &Dashboard, now: Timestamp) -> Result<Drawn> {
        let mut drawn = Drawn::default();
        let frame = |frame: &mut ratatui::Frame<'_>| {
            drawn = view::draw(state, now, frame.buffer_mut());
            if let Some(position) = drawn.cursor {
                frame.set_cursor_position(position);
            }
        };
        self.terminal.draw(frame).or_fail(|| "cannot draw on the terminal")?;
        Ok(drawn)
    }

    /// Rings the bell.
    pub(crate) fn ring(&mut self) {
        let mut stdout = stdout();
        let _ = stdout.write_all(b"\x07").and_then(|()| stdout.flush());
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if IS_ENTERED.swap(false, Ordering::SeqCst) {
        let _ = execute!(
            stdout(),
            DisableMouseCapture,
            DisableBracketedPaste,
            LeaveAlternateScreen,
            Show
        );
        let _ = disable_raw_mode();
    }
}
