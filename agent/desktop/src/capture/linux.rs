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
        WindowSystem::Mac => Err(system.lacks("taking a picture of the screen")),
    }
}

fn of_x11(wanted: &CaptureTarget) -> Result<Picture> {
    // `:1` is another X display; anything else is an output of this one.
    let named = wanted.display.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let server = named.filter(|name| name.contains(':'));
    let desk = crate::x11::X11Display::open(server)?;
    if let Some(window) = &wanted.window {
        let open = desk.find(window)?;
        if open.told.minimized {
            let failure = Failure::failed(format!("`{}` is not shown", open.told.title));
            return Err(failure.because("it is minimized").hint("restore it first"));
        }
        let shows = part(open.told.area, wanted.area, desk.area())?;
        return crate::picture::told(desk.grab_window(&open, shows)?, shows, wanted, "x11");
    }
    let whole = match named {
        Some(name) if server.is_none() => output(&desk.outputs()?, name)?,
        Some(_) | None => desk.area(),
    };
    let shows = part(whole, wanted.area, desk.area())?;
    crate::picture::told(desk.grab(shows)?, shows, wanted, "x11")
}

/// Takes a screenshot through the portal.
fn of_wayland(wanted: &CaptureTarget) -> Result<Picture> {
    for (named, what) in [(&wanted.window, "a window"), (&wanted.display, "an output")] {
        if named.is_some() {
            return Err(WindowSystem::Wayland.lacks(&format!("taking a picture of {what} alone")));
        }
    }
    let pixels = crate::portal::Portal::open()?.picture()?;
    let (width, height) = pixels.dimensions();
    let all = Area { x: 0, y: 0, width, height };
    let shows = part(all, wanted.area, all)?;
    let (x, y) = (shows.x.unsigned_abs(), shows.y.unsigned_abs());
    let pixels = image::imageops::crop_imm(&pixels, x, y, shows.width, shows.height).to_image();
    crate::picture::told(pixels, shows, wanted, "portal")
}
