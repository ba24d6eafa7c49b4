//! Dispatches requests to their handlers.

#[cfg(not(target_os = "linux"))]
use base::desktop_protocol::{ControlAction, ControlQuery, ControlResult, Controls};
use base::desktop_protocol::{DesktopRequest, DesktopResponse};
use base::failure::{Failure, Result};

// The accessibility bus works on both X11 and Wayland.
#[cfg(target_os = "linux")]
use crate::a11y::{act, controls};
use crate::{capture, input, ocr, window_system};

/// Returns the response to a request.
pub(crate) fn answer(request: DesktopRequest) -> Result<DesktopResponse> {
    match request {
        DesktopRequest::Capture(wanted) => capture::capture(&wanted).map(DesktopResponse::Picture),
        DesktopRequest::Input { steps, fail_safe } => {
            input::run(&steps, fail_safe).map(|()| DesktopResponse::Done)
        }
        DesktopRequest::Screen => window_system::screen().map(DesktopResponse::Screen),
        DesktopRequest::Windows => windows(),
        DesktopRequest::Maximize => maximize(),
        DesktopRequest::Controls(look) => Ok(DesktopResponse::Controls(controls(&look))),
        DesktopRequest::Act(wanted) => act(&wanted).map(DesktopResponse::Acted),
        DesktopRequest::Read { picture } => {
            Ok(DesktopResponse::Words { words: ocr::words(&picture)? })
        }
        DesktopRequest::Unknown => {
            let reason = "g3 and g3-desktop are of different versions";
            let failure = Failure::failed("this helper does not know what it was asked");
            Err(failure.because(reason).hint("build both from the same source"))
        }
    }
}

#[cfg(target_os = "linux")]
fn windows() -> Result<DesktopResponse> {
    #[cfg(feature = "xcap")]
    if capture::xcap::is_wanted() {
        return Ok(DesktopResponse::Windows { windows: capture::xcap::windows()? });
    }
    window_system::current()?.only(window_system::WindowSystem::X11, "listing windows")?;
    let display = crate::x11::X11Display::open(None)?;
    Ok(DesktopResponse::Windows {
        windows: display.windows()?.into_iter().map(|open| open.info).collect(),
    })
}

#[cfg(target_os = "linux")]
fn maximize() -> Result<DesktopResponse> {
    window_system::current()?.only(window_system::WindowSystem::X11, "maximizing a window")?;
    let (title, is_maximized) = crate::x11::X11Display::open(None)?.maximize()?;
    Ok(DesktopResponse::Maximized { title, already: is_maximized })
}

#[cfg(not(target_os = "linux"))]
fn controls(_: &ControlQuery) -> Controls {
    let none = |system: window_system::WindowSystem| {
        system.unsupported("asking programs for their controls")
    };
    let note = window_system::current().map_or_else(|failure| failure, none).full_text();
    Controls { note: Some(note), ..Controls::default() }
}

#[cfg(not(target_os = "linux"))]
fn act(_: &ControlAction) -> Result<ControlResult> {
    Err(window_system::current()?.unsupported("acting on controls"))
}

#[cfg(not(target_os = "linux"))]
fn windows() -> Result<DesktopResponse> {
    Ok(DesktopResponse::Windows { windows: capture::xcap::windows()? })
}

#[cfg(not(target_os = "linux"))]
fn maximize() -> Result<DesktopResponse> {
    Err(window_system::current()?.unsupported("maximizing a window"))
}
