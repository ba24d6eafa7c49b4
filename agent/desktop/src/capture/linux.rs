//! Screenshots of an X server or a Wayland compositor.

use base::desktop_protocol::{Area, CaptureTarget, Picture};
use base::failure::{Failure, Result};

use super::area::{output, part};
use crate::window_system::WindowSystem;

/// Takes a screenshot.
pub(crate) fn capture(system: WindowSystem, wanted: &CaptureTarget) -> Result<Picture> {
    match system {
        WindowSystem::X11 => of_x11(wanted),
        WindowSystem::Wayland => of_wayland(wanted),
        WindowSystem::Mac => Err(system.unsupported("taking a picture of the screen")),
    }
}

fn of_x11(wanted: &CaptureTarget) -> Result<Picture> {
    // `:1` is another X display; anything else is an output of this one.
    let display_name = wanted.display.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let server = display_name.filter(|name| name.contains(':'));
    let display = crate::x11::X11Display::open(server)?;
    if let Some(window) = &wanted.window {
        let open_window = display.find(window)?;
        if open_window.info.minimized {
            let failure = Failure::failed(format!("`{}` is not shown", open_window.info.title));
            return Err(failure.because("it is minimized").hint("restore it first"));
        }
        let shown_area = part(open_window.info.area, wanted.area, display.area())?;
        return crate::picture::to_picture(
            display.grab_window(&open_window, shown_area)?,
            shown_area,
            wanted,
            "x11",
        );
    }
    let full_area = match display_name {
        Some(name) if server.is_none() => output(&display.outputs()?, name)?,
        Some(_) | None => display.area(),
    };
    let shown_area = part(full_area, wanted.area, display.area())?;
    crate::picture::to_picture(display.grab(shown_area)?, shown_area, wanted, "x11")
}

/// Takes a screenshot through the portal.
fn of_wayland(wanted: &CaptureTarget) -> Result<Picture> {
    for (target, what) in [(&wanted.window, "a window"), (&wanted.display, "an output")] {
        if target.is_some() {
            return Err(
                WindowSystem::Wayland.unsupported(&format!("taking a picture of {what} alone"))
            );
        }
    }
    let pixels = crate::portal::Portal::open()?.picture()?;
    let (width, height) = pixels.dimensions();
    let full_area = Area { x: 0, y: 0, width, height };
    let shown_area = part(full_area, wanted.area, full_area)?;
    let (x, y) = (shown_area.x.unsigned_abs(), shown_area.y.unsigned_abs());
    let pixels =
        image::imageops::crop_imm(&pixels, x, y, shown_area.width, shown_area.height).to_image();
    crate::picture::to_picture(pixels, shown_area, wanted, "portal")
}
