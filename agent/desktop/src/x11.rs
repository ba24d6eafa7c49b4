//! The X server: its size, outputs, pointer and window properties.

mod grab;
mod maximize;
mod windows;

use base::desktop_protocol::Area;
use base::failure::{Failure, OrFail, Result};
use x11rb::connection::Connection;
use x11rb::protocol::randr::ConnectionExt as _;
use x11rb::protocol::xproto::{Atom, AtomEnum, ConnectionExt as _, KeyButMask, Screen};
use x11rb::rust_connection::RustConnection;

pub(crate) use windows::OpenWindow;

x11rb::atom_manager! {
    /// The EWMH atoms that are used.
    Atoms: AtomsCookie {
        UTF8_STRING,
        WM_STATE,
        _NET_ACTIVE_WINDOW,
        _NET_CLIENT_LIST_STACKING,
        _NET_FRAME_EXTENTS,
        _NET_SUPPORTING_WM_CHECK,
        _NET_WM_NAME,
        _NET_WM_PID,
        _NET_WM_STATE,
        _NET_WM_STATE_HIDDEN,
        _NET_WM_STATE_MAXIMIZED_HORZ,
        _NET_WM_STATE_MAXIMIZED_VERT,
    }
}

/// A connection to an X display.
pub(crate) struct X11Display {
    conn: RustConnection,
    screen: Screen,
    atoms: Atoms,
}

/// The keycodes and their keysyms.
#[derive(Debug)]
pub(crate) struct Keyboard {
    /// The first keycode.
    pub first: u8,
    /// Number of keysyms per keycode.
    pub width: usize,
    /// The keysyms of all keycodes.
    pub symbols: Vec<u32>,
    /// Whether Caps Lock is on.
    pub caps: bool,
}

impl X11Display {
    /// Connects to a display by name, or to that of the environment.
    pub(crate) fn open(display: Option<&str>) -> Result<X11Display> {
        let display_name = display.map(str::to_owned).or_else(|| std::env::var("DISPLAY").ok());
        let display_name = display_name.unwrap_or_default();
        let what = || format!("the X display `{display_name}` cannot be reached");
        let (conn, number) = x11rb::connect(display).or_fail(what)?;
        let screen = conn.setup().roots[number].clone();
        let atoms = Atoms::new(&conn).or_fail(what)?.reply().or_fail(what)?;
        Ok(X11Display { conn, screen, atoms })
    }

    /// Returns the area of all outputs.
    pub(crate) fn area(&self) -> Area {
        // The setup data dates from the connection, which is recent: a connection lives for one
        // request.
        let (width, height) = (self.screen.width_in_pixels, self.screen.height_in_pixels);
        Area { x: 0, y: 0, width: width.into(), height: height.into() }
    }

    /// Returns the pointer position.
    pub(crate) fn pointer(&self) -> Result<(i32, i32)> {
        let what = || "the X server does not say where the pointer is";
        let reply =
            self.conn.query_pointer(self.screen.root).or_fail(what)?.reply().or_fail(what)?;
        Ok((reply.root_x.into(), reply.root_y.into()))
    }

    /// Returns the current keyboard map.
    pub(crate) fn keyboard(&self) -> Result<Keyboard> {
        let what = || "the X server does not say how the keyboard is mapped";
        let setup = self.conn.setup();
        let (first, last) = (setup.min_keycode, setup.max_keycode);
        let cookie = self.conn.get_keyboard_mapping(first, last - first + 1).or_fail(what)?;
        let reply = cookie.reply().or_fail(what)?;
        let pointer = self.conn.query_pointer(self.screen.root).or_fail(what)?.reply();
        let caps_lock = pointer.or_fail(what)?.mask.contains(KeyButMask::LOCK);
        let width = usize::from(reply.keysyms_per_keycode).max(1);
        Ok(Keyboard { first, width, symbols: reply.keysyms, caps: caps_lock })
    }

    /// Returns the active outputs by name.
    pub(crate) fn outputs(&self) -> Result<Vec<(String, Area)>> {
        let what = || "the X server does not name its outputs";
        let root = self.screen.root;
        let resources = self.conn.randr_get_screen_resources_current(root).or_fail(what)?;
        let resources = resources.reply().or_fail(what)?;
        let mut named_outputs = Vec::new();
        for output in resources.outputs {
            let info = self.conn.randr_get_output_info(output, resources.config_timestamp);
            let info = info.or_fail(what)?.reply().or_fail(what)?;
            if info.crtc == 0 {
                continue;
            }
            let crtc = self.conn.randr_get_crtc_info(info.crtc, resources.config_timestamp);
            let crtc = crtc.or_fail(what)?.reply().or_fail(what)?;
            let (width, height) = (crtc.width.into(), crtc.height.into());
            let area = Area { x: crtc.x.into(), y: crtc.y.into(), width, height };
            named_outputs.push((String::from_utf8_lossy(&info.name).into_owned(), area));
        }
        Ok(named_outputs)
    }

    /// Returns the numbers in a property; empty if it is absent or the window is gone.
    fn numbers(&self, window: u32, property: Atom) -> Vec<u32> {
        let cookie = self.conn.get_property(false, window, property, AtomEnum::ANY, 0, 1 << 16);
        let reply = cookie.ok().and_then(|cookie| cookie.reply().ok());
        reply.and_then(|reply| reply.value32().map(Iterator::collect)).unwrap_or_default()
    }

    /// Returns the bytes in a property; empty if it is absent or the window is gone.
    fn bytes(&self, window: u32, property: Atom) -> Vec<u8> {
        let cookie = self.conn.get_property(false, window, property, AtomEnum::ANY, 0, 1 << 16);
        let reply = cookie.ok().and_then(|cookie| cookie.reply().ok());
        reply.filter(|reply| reply.format == 8).map(|reply| reply.value).unwrap_or_default()
    }

    /// Fails if there is no EWMH window manager.
    fn managed(&self) -> Result<()> {
        let check = self.atoms._NET_SUPPORTING_WM_CHECK;
        let manager = self.numbers(self.screen.root, check);
        let is_alive =
            manager.first().is_some_and(|window| self.numbers(*window, check) == manager);
        if is_alive {
            return Ok(());
        }
        Err(Failure::failed("no window manager on this display")
            .because("_NET_SUPPORTING_WM_CHECK is not set on the root window")
            .hint("start one, e.g. openbox"))
    }
}
