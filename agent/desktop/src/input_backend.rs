//! What can be done with pointer and keyboard, whoever does it.

use std::time::Duration;

use base::desktop_protocol::Button;
use base::failure::Result;
use enigo::{Direction, Key};

/// After each character of a text.
pub const SPACING: Duration = Duration::from_millis(20);

/// Where the pointer is, where that can be known.
pub(crate) type PointerPosition = Option<(i32, i32)>;

/// Says whether to go on while the pointer is there.
pub(crate) type PositionCheck<'a> = &'a dyn Fn(PointerPosition) -> Result<()>;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum InputEvent {
    /// The pointer goes there.
    Go(i32, i32),
    /// A button goes down, up, or both.
    Button(Button, Direction),
    /// The wheel turns so many notches down and to the right.
    Wheel(i32, i32),
    /// A key goes down, up, or both.
    Key(Key, Direction),
}

/// Pointer and keyboard.
pub(crate) trait InputBackend {
    /// Makes it happen.
    fn make(&mut self, event: InputEvent) -> Result<()>;
    /// Types a text, as long as it is to go on.
    fn type_text(&mut self, text: &str, watch: PositionCheck<'_>) -> Result<()>;
    /// Where the pointer is.
    fn place(&self) -> Result<PointerPosition>;
}
