//! A control: its role, its states and its properties.

use base::desktop_protocol::{Area, Control};
use base::text;

use super::bus::{A11yBus, ObjectRef};

/// State bits of AT-SPI.
pub(crate) const ACTIVE: u32 = 1;
const CHECKED: u32 = 4;
const ENABLED: u32 = 8;
pub(crate) const EXPANDABLE: u32 = 9;
pub(crate) const EXPANDED: u32 = 10;
pub(crate) const FOCUSABLE: u32 = 11;
pub(crate) const FOCUSED: u32 = 12;
const PRESSED: u32 = 20;
const SENSITIVE: u32 = 24;
const SHOWING: u32 = 25;
const VISIBLE: u32 = 30;

/// The interfaces of AT-SPI that are used.
pub(crate) const ACCESSIBLE: &str = "org.a11y.atspi.Accessible";
pub(crate) const ACTION: &str = "org.a11y.atspi.Action";
pub(crate) const COMPONENT: &str = "org.a11y.atspi.Component";
pub(crate) const EDITABLE: &str = "org.a11y.atspi.EditableText";
pub(crate) const SELECTION: &str = "org.a11y.atspi.Selection";
const TEXT: &str = "org.a11y.atspi.Text";
pub(crate) const VALUE: &str = "org.a11y.atspi.Value";

/// Roles of interactive controls.
const INTERACTIVE: &[&str] = &[
    "button",
    "check box",
    "check menu item",
    "combo box",
    "entry",
    "link",
    "list item",
    "menu",
    "menu item",
    "page tab",
    "password text",
    "push button",
    "radio button",
    "radio menu item",
    "slider",
    "spin button",
    "switch",
    "table cell",
    "text",
    "toggle button",
    "tree item",
];
/// Roles of controls that can be on or off.
const SWITCHED: &[&str] =
    &["check box", "check menu item", "radio button", "radio menu item", "switch", "toggle button"];
/// Maximum number of bytes of a text.
const MAX_TEXT: usize = 2000;

/// A control with the facts collected by a walk.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The object to query about it.
    pub place: ObjectRef,
    /// Its program.
    pub app: String,
    /// Its role.
    pub role: String,
    /// Its name.
    pub name: String,
    /// Its state bits.
    states: u64,
    /// The index of its parent in the tree.
    pub parent: Option<usize>,
    /// Its index among the parent's children.
    pub index: i32,
}

impl Node {
    /// Reads role, states and name. Returns `None` if the control is gone or its program hangs.
    pub(crate) fn read(bus: &A11yBus, place: ObjectRef, app: &str) -> Option<Node> {
        let role: String = bus.call(&place, ACCESSIBLE, "GetRoleName", &())?;
        let states: Vec<u32> = bus.call(&place, ACCESSIBLE, "GetState", &())?;
        let state_word = |index: usize| u64::from(states.get(index).copied().unwrap_or_default());
        let states = state_word(0) | state_word(1) << 32;
        let name = string(bus, &place, "Name");
        Some(Node { place, app: app.to_owned(), role, name, states, parent: None, index: 0 })
    }

    /// Reads the same control again.
    pub(crate) fn reread(&self, bus: &A11yBus) -> Option<Node> {
        let (parent, index) = (self.parent, self.index);
        Some(Node { parent, index, ..Node::read(bus, self.place.clone(), &self.app)? })
    }

    /// Whether it has this state.
    pub(crate) fn has(&self, state: u32) -> bool {
        self.states & (1 << state) != 0
    }

    /// Whether it is enabled.
    pub(crate) fn is_enabled(&self) -> bool {
        self.has(ENABLED) || self.has(SENSITIVE)
    }

    /// Whether it is visible on the screen.
    pub(crate) fn is_visible(&self) -> bool {
        self.has(VISIBLE) && self.has(SHOWING)
    }

    /// Whether it is interactive.
    pub(crate) fn is_interactive(&self) -> bool {
        INTERACTIVE.contains(&self.role.as_str())
    }

    /// Whether it can be on or off.
    pub(crate) fn is_switch(&self) -> bool {
        SWITCHED.contains(&self.role.as_str())
    }

    /// Returns its interfaces.
    pub(crate) fn interfaces(&self, bus: &A11yBus) -> Vec<String> {
        bus.call(&self.place, ACCESSIBLE, "GetInterfaces", &()).unwrap_or_default()
    }

    /// Returns its automation id.
    pub(crate) fn automation_id(&self, bus: &A11yBus) -> String {
        string(bus, &self.place, "AccessibleId")
    }

    /// Returns the names of its actions.
    pub(crate) fn actions(&self, bus: &A11yBus) -> Vec<String> {
        let action_list: Option<Vec<(String, String, String)>> =
            bus.call(&self.place, ACTION, "GetActions", &());
        action_list.unwrap_or_default().into_iter().map(|(name, ..)| name).collect()
    }

    /// Returns all its properties, or `None` if its program no longer answers.
    pub(crate) fn to_control(&self, bus: &A11yBus) -> Option<Control> {
        let interfaces =
            bus.call::<_, Vec<String>>(&self.place, ACCESSIBLE, "GetInterfaces", &())?;
        let has = |interface: &str| interfaces.iter().any(|known| known == interface);
        Some(Control {
            name: self.name.clone(),
            role: self.role.clone(),
            automation_id: self.automation_id(bus),
            app: self.app.clone(),
            area: has(COMPONENT).then(|| self.area(bus)).flatten(),
            enabled: self.is_enabled(),
            visible: self.is_visible(),
            value: self.value(bus, has),
            actions: if has(ACTION) { self.actions(bus) } else { Vec::new() },
        })
    }

    fn area(&self, bus: &A11yBus) -> Option<Area> {
        // 0: relative to the corner of the screen.
        let extents: ((i32, i32, i32, i32),) =
            bus.call(&self.place, COMPONENT, "GetExtents", &0u32)?;
        let (x, y, width, height) = extents.0;
        let (width, height) = (u32::try_from(width).ok()?, u32::try_from(height).ok()?);
        // Hidden controls report the smallest integer as position.
        (x > i32::MIN && width > 0 && height > 0).then_some(Area { x, y, width, height })
    }

    /// Returns its value. Passwords are omitted.
    fn value(&self, bus: &A11yBus, has: impl Fn(&str) -> bool) -> Option<String> {
        if self.role == "password text" {
            return None;
        }
        if self.is_switch() {
            let is_on = self.has(CHECKED) || self.has(PRESSED);
            return Some(if is_on { "on" } else { "off" }.to_owned());
        }
        if self.role == "combo box" && has(SELECTION) {
            let selected: Option<(ObjectRef,)> =
                bus.call(&self.place, SELECTION, "GetSelectedChild", &0i32);
            return selected
                .map(|(selected,)| string(bus, &selected, "Name"))
                .filter(|name| !name.is_empty());
        }
        if has(VALUE) {
            let current = bus.property(&self.place, VALUE, "CurrentValue")?;
            return f64::try_from(current).ok().map(|number| number.to_string());
        }
        if has(TEXT) && self.role != "label" {
            let full_text: String = bus.call(&self.place, TEXT, "GetText", &(0i32, -1i32))?;
            return Some(text::cut_columns(&full_text, MAX_TEXT));
        }
        None
    }
}

/// Returns a text property; empty if absent.
pub(crate) fn string(bus: &A11yBus, place: &ObjectRef, name: &str) -> String {
    let property = bus.property(place, ACCESSIBLE, name);
    property.and_then(|property| String::try_from(property).ok()).unwrap_or_default()
}
