//! A picture of the desktop, of an output, of a window, or of a part of one.

#[cfg(target_os = "linux")]
mod linux;

use base::desktop::{Capture, Picture};
use base::failure::Result;

use crate::system;

/// Takes the picture.
#[cfg(target_os = "linux")]
pub fn capture(wanted: &Capture) -> Result<Picture> {
    linux::capture(system::here()?, wanted)
}

/// Says that there is none.
#[cfg(not(target_os = "linux"))]
pub fn capture(_: &Capture) -> Result<Picture> {
    Err(system::here()?.lacks("taking a picture of the screen"))
}
