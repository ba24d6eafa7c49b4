//! Pointer and keyboard input with the `enigo` crate, for X11 and macOS.

use std::time::Duration;

use base::desktop_protocol::Button;
use base::failure::{Failure, OrFail, Result};
use enigo::{Axis, Coordinate, Enigo, Key, Keyboard as _, Mouse as _, Settings};

use crate::cancel::pause;
use crate::input_backend::{InputBackend, InputEvent, PointerPosition, PositionCheck};

/// Programs read the keyboard map when a key event arrives, so a keycode that was assigned to a
/// character may be reassigned only after they had time to handle it.
const SETTLE: Duration = Duration::from_millis(300);

/// The backend. On drop, it releases all keys and the keycodes that it assigned.
pub(crate) struct EnigoBackend {
    pub(crate) enigo: Enigo,
    lends: bool,
}

impl Drop for EnigoBackend {
    fn drop(&mut self) {
        if self.lends {
            let _ = pause(SETTLE);
        }
    }
}

impl EnigoBackend {
    /// Opens the backend.
    pub(crate) fn open() -> Result<EnigoBackend> {
        let opened = Enigo::new(&Settings::default());
        opened.map(|enigo| EnigoBackend { enigo, lends: false }).map_err(|error| {
            Failure::failed("pointer and keyboard cannot be steered")
                .because(error)
                .hint("an X server needs its XTEST extension and free keycodes")
                .hint("macOS asks for the permission `Accessibility`")
        })
    }

    /// Returns the area of the screen.
    #[cfg(target_os = "macos")]
    pub(crate) fn area(&self) -> Result<base::desktop_protocol::Area> {
        let (width, height) = self.enigo.main_display().or_fail(|| "the screen has no size")?;
        let (width, height) = (width.unsigned_abs(), height.unsigned_abs());
        Ok(base::desktop_protocol::Area { x: 0, y: 0, width, height })
    }
}

impl InputBackend for EnigoBackend {
    fn make(&mut self, event: InputEvent) -> Result<()> {
        let what = || "the input was not taken";
        let hands = &mut self.enigo;
        match event {
            InputEvent::Go(x, y) => hands.move_mouse(x, y, Coordinate::Abs).or_fail(what),
            InputEvent::Button(button, direction) => {
                let button = match button {
                    Button::Left => enigo::Button::Left,
                    Button::Right => enigo::Button::Right,
                    Button::Middle => enigo::Button::Middle,
                };
                hands.button(button, direction).or_fail(what)
            }
            InputEvent::Wheel(down, right) => {
                hands.scroll(down, Axis::Vertical).or_fail(what)?;
                hands.scroll(right, Axis::Horizontal).or_fail(what)
            }
            InputEvent::Key(key, direction) => {
                // Letters and digits are on nearly every keyboard; other characters may not be.
                let common = |c: char| c.is_ascii_alphanumeric();
                self.lends |= matches!(key, Key::Unicode(c) if !common(c));
                hands.key(key, direction).or_fail(what)
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn type_text(&mut self, text: &str, watch: PositionCheck<'_>) -> Result<()> {
        crate::typing::type_text(text, watch)
    }

    #[cfg(not(target_os = "linux"))]
    fn type_text(&mut self, text: &str, _: PositionCheck<'_>) -> Result<()> {
        self.enigo.text(text).or_fail(|| "the text was not taken")
    }

    fn place(&self) -> Result<PointerPosition> {
        self.enigo.location().map(Some).or_fail(|| "the pointer position is unknown")
    }
}
