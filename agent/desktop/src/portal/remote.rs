//! Pointer and keyboard through the portal, in a session to which the user agreed.

use std::cell::RefCell;
use std::collections::HashMap;

use base::desktop_protocol::{Area, Button};
use base::failure::{Failure, Result};
use enigo::{Direction, Key};
use serde::Serialize;
use xkeysym::Keysym;
use zbus::{DynamicType, OwnedObjectPath, Variant};

use super::{NAME, Options, PATH, Portal, Results, within};
use crate::cancel::pause;
use crate::input_backend::{InputBackend, InputEvent, PointerPosition, PositionCheck, SPACING};

const REMOTE: &str = "org.freedesktop.portal.RemoteDesktop";
const CAST: &str = "org.freedesktop.portal.ScreenCast";
/// Bits of the requested devices: keyboard and pointer.
const DEVICES: u32 = 1 | 2;
/// The bit for whole monitors among the source types.
const MONITOR: u32 = 1;
/// Kernel codes of buttons.
const LEFT: i32 = 0x110;
const RIGHT: i32 = 0x111;
const MIDDLE: i32 = 0x112;

thread_local! {
    /// Kept across requests, so that the user is asked only once.
    static SESSION: RefCell<Option<RemoteDesktop>> = const { RefCell::new(None) };
}

/// A session with control over pointer and keyboard.
pub(crate) struct RemoteDesktop {
    portal: Portal,
    session: OwnedObjectPath,
    /// The id of the monitor's stream, to which positions are relative.
    stream: u32,
    /// The area of the desktop that the monitor shows.
    pub area: Area,
    /// The last pointer position that we set; positions set by the user are unknown.
    pub last: PointerPosition,
}

/// Works in the session. A session in which something failed is not reused.
pub(crate) fn with<T>(work: impl FnOnce(&mut RemoteDesktop) -> Result<T>) -> Result<T> {
    let existing = SESSION.with_borrow_mut(Option::take);
    let mut remote = existing.map_or_else(RemoteDesktop::open, Ok)?;
    let result = work(&mut remote)?;
    SESSION.set(Some(remote));
    Ok(result)
}

impl RemoteDesktop {
    /// Asks the user, who selects a monitor.
    fn open() -> Result<RemoteDesktop> {
        let portal = Portal::open()?;
        let created = portal.request(REMOTE, "CreateSession", |mut options| {
            options.insert("session_handle_token", Variant::from("g3"));
            (options,)
        })?;
        let handle = created.get("session_handle").map(|handle| match &**handle {
            Variant::ObjectPath(path) => path.to_string(),
            Variant::Str(path) => path.to_string(),
            _ => String::new(),
        });
        let session = OwnedObjectPath::try_from(handle.unwrap_or_default());
        let session = session.map_err(|_| portal_error("it made no session"))?;
        portal.request(REMOTE, "SelectDevices", |mut options| {
            options.insert("types", Variant::from(DEVICES));
            (session.clone(), options)
        })?;
        portal.request(CAST, "SelectSources", |mut options| {
            options.insert("types", Variant::from(MONITOR));
            (session.clone(), options)
        })?;
        let started = portal.request(REMOTE, "Start", |options| (session.clone(), "", options))?;
        let (stream, area) = monitor(&started)
            .ok_or_else(|| portal_error("no monitor was chosen, so no place has a number"))?;
        Ok(RemoteDesktop { portal, session, stream, area, last: None })
    }

    /// Sends an event to the session.
    fn notify<B>(
        &self,
        method: &str,
        body: impl FnOnce(OwnedObjectPath, Options<'static>) -> B,
    ) -> Result<()>
    where
        B: Serialize + DynamicType,
    {
        let body = body(self.session.clone(), HashMap::new());
        let call =
            self.portal.connection.call_method(Some(NAME), PATH, Some(REMOTE), method, &body);
        within(&self.portal.runtime, super::CALL_TIMEOUT, call).map(drop)
    }

    fn button(&self, button: Button, down: bool) -> Result<()> {
        let number = match button {
            Button::Left => LEFT,
            Button::Right => RIGHT,
            Button::Middle => MIDDLE,
        };
        let state = u32::from(down);
        self.notify("NotifyPointerButton", |session, options| (session, options, number, state))
    }

    fn key(&self, key: Key, down: bool) -> Result<()> {
        let symbol = Keysym::from(key).raw().cast_signed();
        let state = u32::from(down);
        self.notify("NotifyKeyboardKeysym", |session, options| (session, options, symbol, state))
    }

    /// Scrolls an axis; 0 is the vertical one.
    fn wheel(&self, axis: u32, notches: i32) -> Result<()> {
        if notches == 0 {
            return Ok(());
        }
        let method = "NotifyPointerAxisDiscrete";
        self.notify(method, |session, options| (session, options, axis, notches))
    }
}

impl InputBackend for RemoteDesktop {
    fn make(&mut self, event: InputEvent) -> Result<()> {
        match event {
            InputEvent::Go(x, y) => {
                let place = (f64::from(x - self.area.x), f64::from(y - self.area.y));
                let stream = self.stream;
                self.notify("NotifyPointerMotionAbsolute", |session, options| {
                    (session, options, stream, place.0, place.1)
                })?;
                self.last = Some((x, y));
                Ok(())
            }
            InputEvent::Wheel(down, right) => {
                self.wheel(0, down).and_then(|()| self.wheel(1, right))
            }
            InputEvent::Button(button, way) => turns(way, |down| self.button(button, down)),
            InputEvent::Key(key, way) => turns(way, |down| self.key(key, down)),
        }
    }

    fn type_text(&mut self, text: &str, watch: PositionCheck<'_>) -> Result<()> {
        for character in text.replace("\r\n", "\n").chars() {
            let key = match character {
                '\n' | '\r' => Key::Return,
                '\t' => Key::Tab,
                other => Key::Unicode(other),
            };
            self.make(InputEvent::Key(key, Direction::Click))?;
            pause(SPACING)?;
            watch(self.last)?;
        }
        Ok(())
    }

    fn pointer_position(&self) -> Result<PointerPosition> {
        Ok(self.last)
    }
}

/// Presses, releases, or both; releases even if pressing failed.
fn turns(way: Direction, mut turn: impl FnMut(bool) -> Result<()>) -> Result<()> {
    match way {
        Direction::Press => turn(true),
        Direction::Release => turn(false),
        Direction::Click => {
            let pressed = turn(true);
            pressed.and(turn(false))
        }
    }
}

/// Returns the first monitor of a started session: its stream id and its area.
fn monitor(started: &Results) -> Option<(u32, Area)> {
    let Variant::Array(streams) = &**started.get("streams")? else { return None };
    let Variant::Structure(first) = streams.inner().first()? else { return None };
    let [Variant::U32(number), Variant::Dict(properties)] = first.fields() else { return None };
    let pair = |name: &str| {
        let named = |key: &Variant<'_>| matches!(key, Variant::Str(key) if key.as_str() == name);
        properties.iter().find(|(key, _)| named(key)).and_then(|(_, value)| numbers(value))
    };
    let (width, height) = pair("size")?;
    let (x, y) = pair("position").unwrap_or_default();
    let (width, height) = (u32::try_from(width).ok()?, u32::try_from(height).ok()?);
    Some((*number, Area { x, y, width, height }))
}

/// Returns two numbers, plain or in a variant.
fn numbers(value: &Variant<'_>) -> Option<(i32, i32)> {
    match value {
        Variant::Variant(inner) => numbers(inner),
        Variant::Structure(pair) => match pair.fields() {
            [Variant::I32(first), Variant::I32(second)] => Some((*first, *second)),
            _ => None,
        },
        _ => None,
    }
}

fn portal_error(reason: &str) -> Failure {
    Failure::failed("the portal does not let pointer and keyboard be moved").because(reason)
}
