//! What can be asked, and who answers it.

#[cfg(not(target_os = "linux"))]
use base::desktop::{Act, Acted, Controls, Look};
use base::desktop::{Ask, Tell};
use base::failure::{Failure, Result};

// The accessibility bus serves X11 and Wayland alike.
#[cfg(target_os = "linux")]
use crate::a11y::{act, controls};
use crate::{capture, input, read, system};

/// The answer to a question.
pub fn answer(ask: Ask) -> Result<Tell> {
    match ask {
        Ask::Capture(wanted) => capture::capture(&wanted).map(Tell::Picture),
        Ask::Input { steps, fail_safe } => input::run(&steps, fail_safe).map(|()| Tell::Done),
        Ask::Screen => system::screen().map(Tell::Screen),
        Ask::Windows => windows(),
        Ask::Maximize => maximize(),
        Ask::Controls(look) => Ok(Tell::Controls(controls(&look))),
        Ask::Act(wanted) => act(&wanted).map(Tell::Acted),
        Ask::Read { picture } => Ok(Tell::Words { words: read::words(&picture)? }),
        Ask::Unknown => {
            let why = "g3 and g3-desktop are of different versions";
            let failure = Failure::failed("this helper does not know what it was asked");
            Err(failure.because(why).next("build both from the same source"))
        }
    }
}

#[cfg(target_os = "linux")]
fn windows() -> Result<Tell> {
    #[cfg(feature = "xcap")]
    if capture::xcap::is_wanted() {
        return Ok(Tell::Windows { windows: capture::xcap::windows()? });
    }
    system::here()?.only(system::System::X11, "listing windows")?;
    let desk = crate::x11::Desk::open(None)?;
    Ok(Tell::Windows { windows: desk.windows()?.into_iter().map(|open| open.told).collect() })
}

#[cfg(target_os = "linux")]
fn maximize() -> Result<Tell> {
    system::here()?.only(system::System::X11, "maximizing a window")?;
    let (title, already) = crate::x11::Desk::open(None)?.maximize()?;
    Ok(Tell::Maximized { title, already })
}

#[cfg(not(target_os = "linux"))]
fn controls(_: &Look) -> Controls {
    let none = |system: system::System| system.lacks("asking programs for their controls");
    let note = system::here().map_or_else(|failure| failure, none).in_full();
    Controls { note: Some(note), ..Controls::default() }
}

#[cfg(not(target_os = "linux"))]
fn act(_: &Act) -> Result<Acted> {
    Err(system::here()?.lacks("acting on controls"))
}

#[cfg(not(target_os = "linux"))]
fn windows() -> Result<Tell> {
    Ok(Tell::Windows { windows: capture::xcap::windows()? })
}

#[cfg(not(target_os = "linux"))]
fn maximize() -> Result<Tell> {
    Err(system::here()?.lacks("maximizing a window"))
}
