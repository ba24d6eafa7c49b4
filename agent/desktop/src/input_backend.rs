//! The interface of input backends.

use std::time::Duration;

use base::desktop_protocol::Button;
use base::failure::Result;
use enigo::{Direction, Key};

/// Delay after each character of a text.
pub const SPACING: Duration = Duration::from_millis(20);

/// The pointer position, if known.
pub(crate) type PointerPosition = Option<(i32, i32)>;

/// Checks whether to continue, given the pointer position.
pub(crate) type PositionCheck<'a> = &'a dyn Fn(PointerPosition) -> Result<()>;

/// An input event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum InputEvent {
    /// Moves the pointer.
    Go(i32, i32),
    /// Presses a button, releases it, or both.
    Button(Button, Direction),
    /// Scrolls by notches down and to the right.
    Wheel(i32, i32),
    /// Presses a key, releases it, or both.
    Key(Key, Direction),
}

/// A pointer and keyboard.
pub(crate) trait InputBackend {
    /// Sends an event.
    fn make(&mut self, event: InputEvent) -> Result<()>;
    /// Types a text while `watch` succeeds.
    fn type_text(&mut self, text: &str, watch: PositionCheck<'_>) -> Result<()>;
    /// Returns the pointer position.
    fn pointer_position(&self) -> Result<PointerPosition>;
}
