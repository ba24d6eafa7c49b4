//! What can be asked, and who answers it.

use base::desktop::{Act, Acted, Ask, Controls, Look, Tell};
use base::failure::{Failure, Result};

use crate::system::{self, System};
use crate::{capture, input, read};

/// The answer to a question.
pub fn answer(ask: Ask) -> Result<Tell> {
    match ask {
        Ask::Capture(wanted) => capture::capture(&wanted).map(Tell::Picture),
        Ask::Input { steps, fail_safe } => input::run(&steps, fail_safe).map(|()| Tell::Done),
        Ask::Screen => system::screen().map(Tell::Screen),
        Ask::Windows => windows(),
        Ask::Maximize => maximize(),
        Ask::Controls(look) => controls(&look).map(Tell::Controls),
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
    system::here()?.only(System::X11, "listing windows")?;
    let desk = crate::x11::Desk::open(None)?;
    Ok(Tell::Windows { windows: desk.windows()?.into_iter().map(|open| open.told).collect() })
}

#[cfg(target_os = "linux")]
fn maximize() -> Result<Tell> {
    system::here()?.only(System::X11, "maximizing a window")?;
    let (title, already) = crate::x11::Desk::open(None)?.maximize()?;
    Ok(Tell::Maximized { title, already })
}

/// The accessibility bus serves X11 and Wayland alike.
#[cfg(target_os = "linux")]
fn controls(look: &Look) -> Result<Controls> {
    system::here()?;
    Ok(crate::a11y::controls(look))
}

#[cfg(target_os = "linux")]
fn act(wanted: &Act) -> Result<Acted> {
    system::here()?;
    crate::a11y::act(wanted)
}

#[cfg(not(target_os = "linux"))]
fn controls(_: &Look) -> Result<Controls> {
    let note = Some(system::here()?.lacks("asking programs for their controls").in_full());
    Ok(Controls { note, ..Controls::default() })
}

#[cfg(not(target_os = "linux"))]
fn act(_: &Act) -> Result<Acted> {
    Err(system::here()?.lacks("acting on controls"))
}

#[cfg(not(target_os = "linux"))]
fn windows() -> Result<Tell> {
    Err(system::here()?.lacks("listing windows"))
}

#[cfg(not(target_os = "linux"))]
fn maximize() -> Result<Tell> {
    Err(system::here()?.lacks("maximizing a window"))
}
