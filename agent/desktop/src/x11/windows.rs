//! The open windows as listed by the window manager.

use base::desktop_protocol::{Area, WindowInfo};
use base::failure::Result;
use x11rb::protocol::xproto::{AtomEnum, ConnectionExt as _, MapState};

use super::X11Display;
use crate::window_search::position;

/// The value of `WM_STATE` for a minimized window.
const ICONIC: u32 = 3;

/// An open window.
#[derive(Clone, Debug)]
pub(crate) struct OpenWindow {
    /// Its id.
    pub id: u32,
    /// Its description.
    pub info: WindowInfo,
}

impl X11Display {
    /// Returns the open windows, topmost first.
    pub(crate) fn windows(&self) -> Result<Vec<OpenWindow>> {
        let active = self.active();
        let ids = match self.managed() {
            Ok(()) => {
                let client_list = self.atoms._NET_CLIENT_LIST_STACKING;
                self.numbers(self.screen.root, client_list)
            }
            Err(_) => self.unmanaged(),
        };
        Ok(ids.into_iter().rev().filter_map(|id| self.window(id, active)).collect())
    }

    /// Returns the focused window.
    pub(super) fn active(&self) -> Option<u32> {
        let active_windows = self.numbers(self.screen.root, self.atoms._NET_ACTIVE_WINDOW);
        // A window manager may name a window that has just closed.
        active_windows.first().copied().filter(|id| *id != 0 && self.frame(*id).is_some())
    }

    /// Returns the window with this id, or whose program or title contains this text.
    pub(crate) fn find(&self, query: &str) -> Result<OpenWindow> {
        let mut windows = self.windows()?;
        let index = position(windows.iter().map(|open| &open.info), query)?;
        Ok(windows.swap_remove(index))
    }

    /// Returns the visible windows of a display without a window manager, bottom to top.
    fn unmanaged(&self) -> Vec<u32> {
        let tree = self.conn.query_tree(self.screen.root).ok().and_then(|tree| tree.reply().ok());
        let children = tree.map(|tree| tree.children).unwrap_or_default();
        let is_shown = |id: &u32| {
            let cookie = self.conn.get_window_attributes(*id).ok();
            let reply = cookie.and_then(|cookie| cookie.reply().ok());
            let is_viewable = reply.is_some_and(|reply| reply.map_state == MapState::VIEWABLE);
            is_viewable && !self.bytes(*id, AtomEnum::WM_CLASS.into()).is_empty()
        };
        children.into_iter().filter(is_shown).collect()
    }

    /// Returns the description of a window, or `None` if it has just closed.
    fn window(&self, id: u32, active: Option<u32>) -> Option<OpenWindow> {
        let area = self.frame(id)?;
        let atoms = &self.atoms;
        let state = self.numbers(id, atoms._NET_WM_STATE);
        let iconic = self.numbers(id, atoms.WM_STATE).first() == Some(&ICONIC);
        let process = self.numbers(id, atoms._NET_WM_PID).first().copied();
        let info = WindowInfo {
            id: id.to_string(),
            app: self.program(id, process),
            title: self.title(id),
            area,
            active: active == Some(id),
            maximized: [atoms._NET_WM_STATE_MAXIMIZED_HORZ, atoms._NET_WM_STATE_MAXIMIZED_VERT]
                .iter()
                .all(|state_atom| state.contains(state_atom)),
            minimized: iconic || state.contains(&atoms._NET_WM_STATE_HIDDEN),
        };
        Some(OpenWindow { id, info })
    }

    /// Returns the area of a window with its frame.
    fn frame(&self, id: u32) -> Option<Area> {
        let inner = self.conn.get_geometry(id).ok()?.reply().ok()?;
        let corner = self.conn.translate_coordinates(id, self.screen.root, 0, 0);
        let corner = corner.ok()?.reply().ok()?;
        let extents = self.numbers(id, self.atoms._NET_FRAME_EXTENTS);
        let [left, right, top, bottom] = extents[..] else {
            let (width, height) = (inner.width.into(), inner.height.into());
            return Some(Area { x: corner.dst_x.into(), y: corner.dst_y.into(), width, height });
        };
        Some(Area {
            x: i32::from(corner.dst_x) - left.cast_signed(),
            y: i32::from(corner.dst_y) - top.cast_signed(),
            width: u32::from(inner.width) + left + right,
            height: u32::from(inner.height) + top + bottom,
        })
    }

    pub(super) fn title(&self, id: u32) -> String {
        let utf8_title = self.bytes(id, self.atoms._NET_WM_NAME);
        if !utf8_title.is_empty() {
            return String::from_utf8_lossy(&utf8_title).into_owned();
        }
        let old = self.bytes(id, AtomEnum::WM_NAME.into());
        // The old property is Latin-1, but many programs write UTF-8 into it.
        String::from_utf8(old)
            .unwrap_or_else(|error| error.into_bytes().into_iter().map(char::from).collect())
    }

    /// Returns the program name for people: the class of a window, or the name of its process.
    fn program(&self, id: u32, process: Option<u32>) -> String {
        let class = self.bytes(id, AtomEnum::WM_CLASS.into());
        let class = class.split(|byte| *byte == 0).nth(1).unwrap_or_default();
        if !class.is_empty() {
            return String::from_utf8_lossy(class).into_owned();
        }
        let named = process.map(|id| std::fs::read_to_string(format!("/proc/{id}/comm")));
        named.and_then(std::result::Result::ok).unwrap_or_default().trim().to_owned()
    }
}
