//! Maximizes the active window through the window manager, and waits for the effect.

use std::time::{Duration, Instant};

use base::failure::{Failure, OrFail, Result};
use x11rb::connection::Connection;
use x11rb::protocol::xproto::{ClientMessageEvent, ConnectionExt as _, EventMask};

use super::X11Display;
use crate::cancel::pause;

/// Timeout of the window manager.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Interval between checks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// `_NET_WM_STATE_ADD`, and that the request comes from a pager, not from the program itself.
const ADD: u32 = 1;
const PAGER: u32 = 2;

impl X11Display {
    /// Maximizes the active window. Returns its title, and whether it was already maximized.
    pub(crate) fn maximize(&self) -> Result<(String, bool)> {
        self.managed()?;
        let Some(id) = self.active() else {
            let failure = Failure::failed("no window is active");
            return Err(failure.hint("click into a window first"));
        };
        let title = self.title(id);
        if self.is_maximized(id) {
            return Ok((title, true));
        }
        let atoms = &self.atoms;
        let state_atoms = [atoms._NET_WM_STATE_MAXIMIZED_HORZ, atoms._NET_WM_STATE_MAXIMIZED_VERT];
        let data = [ADD, state_atoms[0], state_atoms[1], PAGER, 0];
        let event = ClientMessageEvent::new(32, id, atoms._NET_WM_STATE, data);
        let mask = EventMask::SUBSTRUCTURE_REDIRECT | EventMask::SUBSTRUCTURE_NOTIFY;
        let what = || "the window manager cannot be asked";
        self.conn.send_event(false, self.screen.root, mask, event).or_fail(what)?;
        self.conn.flush().or_fail(what)?;
        let end = Instant::now() + TIMEOUT;
        while !self.is_maximized(id) {
            if Instant::now() > end {
                let reason = "the window manager did not do it within 3 s";
                let failure = Failure::failed(format!("`{title}` cannot be maximized"));
                return Err(failure.because(reason).hint("it may be a dialog of a fixed size"));
            }
            pause(POLL_INTERVAL)?;
        }
        Ok((title, false))
    }

    fn is_maximized(&self, id: u32) -> bool {
        let state = self.numbers(id, self.atoms._NET_WM_STATE);
        let atoms = &self.atoms;
        [atoms._NET_WM_STATE_MAXIMIZED_HORZ, atoms._NET_WM_STATE_MAXIMIZED_VERT]
            .iter()
            .all(|state_atom| state.contains(state_atom))
    }
}
