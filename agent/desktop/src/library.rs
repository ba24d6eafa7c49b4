//! Pointer and keyboard by the library that knows X11 and macOS.

use base::desktop::Button;
use base::failure::{Failure, OrFail, Result};
use enigo::{Axis, Coordinate, Enigo, Keyboard as _, Mouse as _, Settings};

use crate::hands::{Event, Hands};

/// The library; dropped, it lets go of every key.
pub struct Library(pub Enigo);

impl Library {
    /// Opens it.
    pub fn open() -> Result<Library> {
        Enigo::new(&Settings::default()).map(Library).map_err(|error| {
            Failure::failed("pointer and keyboard cannot be steered")
                .because(error)
                .next("an X server needs its XTEST extension and free keycodes")
                .next("macOS asks for the permission `Accessibility`")
        })
    }

    /// The size of the screen.
    #[cfg(target_os = "macos")]
    pub fn area(&self) -> Result<base::desktop::Area> {
        let (width, height) = self.0.main_display().or_fail(|| "the screen has no size")?;
        let (width, height) = (width.unsigned_abs(), height.unsigned_abs());
        Ok(base::desktop::Area { x: 0, y: 0, width, height })
    }
}

impl Hands for Library {
    fn make(&mut self, event: Event) -> Result<()> {
        let what = || "the input was not taken";
        let hands = &mut self.0;
        match event {
            Event::Go(x, y) => hands.move_mouse(x, y, Coordinate::Abs).or_fail(what),
            Event::Button(button, direction) => {
                let button = match button {
                    Button::Left => enigo::Button::Left,
                    Button::Right => enigo::Button::Right,
                    Button::Middle => enigo::Button::Middle,
                };
                hands.button(button, direction).or_fail(what)
            }
            Event::Wheel(down, right) => {
                hands.scroll(down, Axis::Vertical).or_fail(what)?;
                hands.scroll(right, Axis::Horizontal).or_fail(what)
            }
            Event::Key(key, direction) => hands.key(key, direction).or_fail(what),
        }
    }

    #[cfg(target_os = "linux")]
    fn type_text(&mut self, text: &str) -> Result<()> {
        crate::typing::type_text(self, text)
    }

    #[cfg(not(target_os = "linux"))]
    fn type_text(&mut self, text: &str) -> Result<()> {
        self.0.text(text).or_fail(|| "the text was not taken")
    }

    fn place(&self) -> Result<Option<(i32, i32)>> {
        self.0.location().map(Some).or_fail(|| "nobody says where the pointer is")
    }
}
