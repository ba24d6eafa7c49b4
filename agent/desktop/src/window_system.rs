//! Detects the window system, the screen size and the pointer position.

use base::desktop_protocol::ScreenInfo;
use base::failure::{Failure, Result};

/// A supported window system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowSystem {
    /// An X server, including one that serves X programs on Wayland.
    X11,
    /// A Wayland compositor.
    Wayland,
    /// macOS.
    Mac,
}

impl WindowSystem {
    /// Returns the name.
    fn name(self) -> &'static str {
        match self {
            WindowSystem::X11 => "x11",
            WindowSystem::Wayland => "wayland",
            WindowSystem::Mac => "macos",
        }
    }

    /// Fails on every other system.
    #[cfg(target_os = "linux")]
    pub(crate) fn only(self, wanted: WindowSystem, action: &str) -> Result<()> {
        if self == wanted { Ok(()) } else { Err(self.unsupported(action)) }
    }

    /// Returns the error for an unsupported operation.
    pub(crate) fn unsupported(self, action: &str) -> Failure {
        match self {
            WindowSystem::X11 => Failure::failed(format!("{action} does not work under X11")),
            WindowSystem::Wayland => Failure::failed(format!("{action} does not work under Wayland"))
                .because("a Wayland compositor lets no program look at or steer the others")
                .hint("log in to an X11 session, or start the programs on an X server of their own (Xvfb)"),
            WindowSystem::Mac => Failure::failed(format!("{action} is not built for macOS")),
        }
    }
}

/// Returns the window system of this process.
pub(crate) fn current() -> Result<WindowSystem> {
    if cfg!(target_os = "macos") {
        return Ok(WindowSystem::Mac);
    }
    of(|name| std::env::var(name).unwrap_or_default())
}

/// Returns the window system that an environment specifies.
fn of(variable: impl Fn(&str) -> String) -> Result<WindowSystem> {
    let is_set = |name| !variable(name).is_empty();
    match (is_set("DISPLAY"), is_set("WAYLAND_DISPLAY")) {
        // There is an X server for legacy programs, but it does not show the desktop.
        (true, true) if variable("XDG_SESSION_TYPE") == "wayland" => Ok(WindowSystem::Wayland),
        (true, _) => Ok(WindowSystem::X11),
        (false, true) => Ok(WindowSystem::Wayland),
        (false, false) => Err(Failure::failed("no desktop session")
            .because("neither DISPLAY nor WAYLAND_DISPLAY is set")
            .hint("start g3 in a graphical session")
            .hint("or run it on a virtual screen: `xvfb-run g3 …`")),
    }
}

/// Returns the size of the desktop and the pointer position.
pub(crate) fn screen() -> Result<ScreenInfo> {
    let system = current()?;
    let (area, pointer) = match system {
        #[cfg(target_os = "linux")]
        WindowSystem::X11 => {
            let display = crate::x11::X11Display::open(None)?;
            (display.area(), display.pointer()?)
        }
        #[cfg(target_os = "linux")]
        WindowSystem::Wayland => crate::portal::remote::with(|remote| {
            let base::desktop_protocol::Area { x, y, width, height } = remote.area;
            let half_of = |length: u32| i32::try_from(length / 2).unwrap_or_default();
            let center = (x + half_of(width), y + half_of(height));
            Ok((remote.area, remote.last.unwrap_or(center)))
        })?,
        #[cfg(target_os = "macos")]
        WindowSystem::Mac => {
            use crate::input_backend::InputBackend;
            let backend = crate::enigo::EnigoBackend::open()?;
            (backend.area()?, backend.pointer_position()?.unwrap_or_default())
        }
        other => return Err(other.unsupported("asking for the size of the screen")),
    };
    Ok(ScreenInfo { area, pointer, system: system.name().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_determines_the_window_system() {
        let of = |set: &[(&str, &str)]| {
            let found = |name: &str| set.iter().find(|(known, _)| *known == name);
            of(|name| found(name).map_or_else(String::new, |(_, value)| (*value).to_owned())).ok()
        };
        let (x11, wayland) = (("DISPLAY", ":0"), ("WAYLAND_DISPLAY", "wayland-0"));
        assert_eq!(of(&[x11]), Some(WindowSystem::X11));
        assert_eq!(of(&[x11, wayland, ("XDG_SESSION_TYPE", "x11")]), Some(WindowSystem::X11));
        assert_eq!(
            of(&[x11, wayland, ("XDG_SESSION_TYPE", "wayland")]),
            Some(WindowSystem::Wayland)
        );
        assert_eq!(of(&[("DISPLAY", ""), wayland]), Some(WindowSystem::Wayland));
        assert_eq!(of(&[("XDG_SESSION_TYPE", "tty")]), None);
    }
}
