//! What can be asked, and who answers it.

use base::desktop::{Ask, Tell};
use base::failure::{Failure, Result};

use crate::system::{self, System};
use crate::{capture, input};

/// The answer to a question.
pub fn answer(ask: Ask) -> Result<Tell> {
    match ask {
        Ask::Capture(wanted) => capture::capture(&wanted).map(Tell::Picture),
        Ask::Input { steps, fail_safe } => input::run(&steps, fail_safe).map(|()| Tell::Done),
        Ask::Screen => system::screen().map(Tell::Screen),
        Ask::Windows => windows(),
        Ask::Maximize => maximize(),
        Ask::Controls(_) | Ask::Act(_) | Ask::Read { .. } | Ask::Unknown => {
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

#[cfg(not(target_os = "linux"))]
fn windows() -> Result<Tell> {
    Err(system::here()?.lacks("listing windows"))
}

#[cfg(not(target_os = "linux"))]
fn maximize() -> Result<Tell> {
    Err(system::here()?.lacks("maximizing a window"))
}
