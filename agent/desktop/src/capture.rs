//! A picture of the desktop, of an output, of a window, or of a part of one.

#[cfg(target_os = "linux")]
mod linux;

use base::desktop::{Capture, Picture};
use base::failure::Result;

use crate::system::{self, System};

/// Takes the picture.
pub fn capture(wanted: &Capture) -> Result<Picture> {
    match system::here()? {
        #[cfg(target_os = "linux")]
        System::X11 => linux::of_x11(wanted),
        #[cfg(target_os = "linux")]
        System::Wayland => linux::of_wayland(wanted),
        other => Err(other.lacks("taking a picture of the screen")),
    }
}
