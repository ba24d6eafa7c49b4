//! Pointer and keyboard input with the `enigo` crate, for X11 and macOS.

use std::time::Duration;

use base::desktop_protocol::Button;
use base::failure::{Failure, OrFail, Result};
use enigo::{Axis, Coordinate, Enigo, Key, Keyboard as _, Mouse as _, Settings};

use crate::cancel::pause;
use crate::input_backend::{InputBackend, InputEvent, PointerPosition, PositionCheck};

/// Programs read the keyboard map when a key event arrives, so a keycode that was assigned to a
/// character may be reassigned only after they had time to handle it.
const SETTLE_TIME: Duration = Duration::from_millis(300);

/// The backend. On drop, it releases all keys and the keycodes that it assigned.
pub(crate) struct EnigoBackend {
    pub(crate) enigo: Enigo,
    lends: bool,
}

impl Drop for EnigoBackend {
    fn drop(&mut self) {
        if self.lends {
            let _ = pause(SETTLE_TIME);
        }
    }
}

impl EnigoBackend {
    /// Opens the backend.
    pub(crate) fn open() -> Result<EnigoBackend> {
        let result = Enigo::new(&Settings::default());
        result.map(|enigo| EnigoBackend { enigo, lends: false }).map_err(|error| {
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
        let enigo_backend = &mut self.enigo;
        match event {
            InputEvent::Go(x, y) => enigo_backend.move_mouse(x, y, Coordinate::Abs).or_fail(what),
            InputEvent::Button(button, direction) => {
                let button = match button {
                    Button::Left => enigo::Button::Left,
                    Button::Right => enigo::Button::Right,
                    Button::Middle => enigo::Button::Middle,
                };
                enigo_backend.button(button, direction).or_fail(what)
            }
            InputEvent::Wheel(down, right) => {
                enigo_backend.scroll(down, Axis::Vertical).or_fail(what)?;
                enigo_backend.scroll(right, Axis::Horizontal).or_fail(what)
            }
            InputEvent::Key(key, direction) => {
                // Letters and digits are on nearly every keyboard; other characters may not be.
                let is_common = |c: char| c.is_ascii_alphanumeric();
                self.lends |= matches!(key, Key::Unicode(c) if !is_common(c));
                enigo_backend.key(key, direction).or_fail(what)
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn type_text(&mut self, text: &str, check_position: PositionCheck<'_>) -> Result<()> {
        crate::typing::type_text(text, check_position)
    }

    #[cfg(not(target_os = "linux"))]
    fn type_text(&mut self, text: &str, _: PositionCheck<'_>) -> Result<()> {
        self.enigo.text(text).or_fail(|| "the text was not taken")
    }

    fn pointer_position(&self) -> Result<PointerPosition> {
        self.enigo.location().map(Some).or_fail(|| "the pointer position is unknown")
    }
}
