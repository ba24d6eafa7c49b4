//! Screenshots of the desktop, of an output, of a window, or of a part of one.

mod area;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(any(target_os = "macos", feature = "xcap"))]
pub mod xcap;

use base::desktop_protocol::{CaptureTarget, Picture};
use base::failure::Result;

/// Takes a screenshot.
#[cfg(target_os = "linux")]
pub(crate) fn capture(wanted: &CaptureTarget) -> Result<Picture> {
    #[cfg(feature = "xcap")]
    if xcap::is_wanted() {
        return xcap::capture(wanted);
    }
    linux::capture(crate::window_system::current()?, wanted)
}

/// Takes a screenshot.
#[cfg(target_os = "macos")]
pub(crate) fn capture(wanted: &CaptureTarget) -> Result<Picture> {
    xcap::capture(wanted)
}
