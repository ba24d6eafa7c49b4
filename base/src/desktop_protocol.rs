//! The protocol between g3 and `g3-desktop`: one JSON object per line, over stdin and stdout.
//!
//! g3 sends [`DesktopRequestLine`]s; each is answered by exactly one [`DesktopResponseLine`] with
//! the same id, in order. Coordinates are native pixels of the whole desktop, from the top left
//! corner; g3 does the scaling for models. `g3-desktop` exits at the end of its stdin.

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, FailureKind};

/// A request from g3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DesktopRequestLine {
    /// The id, chosen by g3.
    pub id: u64,
    /// The request.
    #[serde(flatten)]
    pub what: DesktopRequest,
}

/// A request from g3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum DesktopRequest {
    /// Captures the desktop or one window; answered by `picture`.
    Capture(CaptureTarget),
    /// Moves and presses pointer and keyboard, step by step; answered by `done`. If one of the
    /// steps is refused, none is done.
    Input {
        /// The steps, in order.
        steps: Vec<InputStep>,
        /// Whether to refuse while the pointer is in a corner of the screen.
        fail_safe: bool,
    },
    /// Reads the screen size and the pointer position; answered by `screen`.
    Screen,
    /// Lists the open windows, topmost first; answered by `windows`.
    Windows,
    /// Maximizes the active window; answered by `maximized`.
    Maximize,
    /// Lists the controls that programs report; answered by `controls`.
    Controls(ControlQuery),
    /// Acts on one control; answered by `acted`.
    Act(ControlAction),
    /// Reads the words in a picture by OCR; answered by `words`.
    Read {
        /// PNG or JPEG, base64.
        picture: String,
    },
    /// A request of a later version; answered by a fault.
    #[serde(other)]
    Unknown,
}

/// A rectangle in native pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// Distance from the left edge.
    pub x: i32,
    /// Distance from the top edge.
    pub y: i32,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

/// The target of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureTarget {
    /// A [`WindowInfo::id`], or a part of a program's name or a title, ignoring case; the whole
    /// desktop when absent.
    pub window: Option<String>,
    /// The output to capture, e.g. `HDMI-1`, or another X display, e.g. `:1`; all outputs of this
    /// display when absent.
    pub display: Option<String>,
    /// A part of the desktop, or of the window relative to its corner.
    pub area: Option<Area>,
    /// The maximum size; larger pictures are scaled down, keeping the aspect ratio.
    pub fit: Option<(u32, u32)>,
    /// The JPEG quality (1 to 100); PNG when absent.
    pub jpeg: Option<u8>,
}

/// One pointer or keyboard action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum InputStep {
    /// Moves the pointer.
    Move {
        /// Native pixels.
        x: i32,
        /// Native pixels.
        y: i32,
    },
    /// Clicks at the pointer position.
    Click {
        /// The button.
        button: Button,
        /// The number of clicks: 2 for a double click.
        times: u32,
    },
    /// Presses the left button, moves the pointer to this position within half a second, and
    /// releases the button.
    Drag {
        /// Native pixels.
        x: i32,
        /// Native pixels.
        y: i32,
    },
    /// Turns the wheel.
    Scroll {
        /// Notches down; negative scrolls up.
        down: i32,
        /// Notches right; negative scrolls left.
        right: i32,
    },
    /// Types any text, including characters without a key on the keyboard.
    Type {
        /// The text; a newline is Return.
        text: String,
    },
    /// Presses a key combination, e.g. `ctrl`, `shift`, `t`, `f5`, `enter`, `page_down`.
    Keys {
        /// The keys, pressed in this order.
        keys: Vec<String>,
    },
}

/// A mouse button.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Button {
    /// The left button.
    Left,
    /// The right button.
    Right,
    /// The middle button.
    Middle,
}

/// A query for controls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlQuery {
    /// A part of a window's title or a program's name; the active window when absent.
    pub window: Option<String>,
    /// Whether to search all programs instead.
    pub everywhere: bool,
    /// The number of levels below the window; 0 for all.
    pub depth: u32,
    /// The maximum number of controls; 0 for 200.
    pub limit: u32,
    /// Whether to return only interactive controls; otherwise labels and panels are included.
    pub interactive: bool,
}

/// An action on a control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlAction {
    /// Where to search for the control.
    #[serde(flatten)]
    pub look: ControlQuery,
    /// A part of the control's name, ignoring case.
    pub name: Option<String>,
    /// The exact automation id.
    pub automation_id: Option<String>,
    /// The exact role, e.g. `push button`.
    pub role: Option<String>,
    /// The action.
    pub action: ControlVerb,
    /// The text for `set_value`, or the entry for `select`.
    pub value: Option<String>,
}

/// An action on a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlVerb {
    /// Runs its default action.
    Click,
    /// Sets a text or number.
    SetValue,
    /// Toggles a check box or switch.
    Toggle,
    /// Selects a list entry, a tab or a radio button.
    Select,
    /// Expands a tree row or a combo box.
    Expand,
    /// Collapses a tree row or a combo box.
    Collapse,
    /// Moves the keyboard focus to it.
    Focus,
}

/// A response from `g3-desktop`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DesktopResponseLine {
    /// The id of the request.
    pub id: u64,
    /// The response.
    #[serde(flatten)]
    pub what: DesktopResponse,
}

/// A response from `g3-desktop`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "snake_case")]
pub enum DesktopResponse {
    /// The response to `capture`.
    Picture(Picture),
    /// The response to `input`.
    Done,
    /// The response to `screen`.
    Screen(ScreenInfo),
    /// The response to `windows`.
    Windows {
        /// The windows, topmost first.
        windows: Vec<WindowInfo>,
    },
    /// The response to `maximize`.
    Maximized {
        /// The window's title.
        title: String,
        /// Whether it was already maximized.
        already: bool,
    },
    /// The response to `controls`.
    Controls(Controls),
    /// The response to `act`.
    Acted(ControlResult),
    /// The response to `read`.
    Words {
        /// The words, in reading order.
        words: Vec<OcrWord>,
    },
    /// The request failed.
    Fault(DesktopFault),
}

/// A picture and the area that it shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picture {
    /// The data, as base64.
    pub data: String,
    /// `image/png` or `image/jpeg`.
    pub mime: String,
    /// Width of the picture in pixels.
    pub width: u32,
    /// Height of the picture in pixels.
    pub height: u32,
    /// The area of the desktop that it shows.
    pub shows: Area,
    /// The program or library that captured it.
    pub backend: String,
}

/// The desktop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScreenInfo {
    /// The area of all outputs together.
    pub area: Area,
    /// The pointer position. Wayland does not report it: the last position that was set, else the
    /// middle.
    pub pointer: (i32, i32),
    /// The window system: `x11`, `wayland` or `macos`.
    pub system: String,
}

/// An open window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowInfo {
    /// The id that the window system assigned.
    pub id: String,
    /// The name of its program.
    pub app: String,
    /// Its title.
    pub title: String,
    /// The area, including the frame.
    pub area: Area,
    /// Whether it has the focus.
    pub active: bool,
    /// Whether it is maximized.
    pub maximized: bool,
    /// Whether it is minimized.
    pub minimized: bool,
}

/// The controls of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controls {
    /// The title of the active window.
    pub active: String,
    /// The control with the keyboard focus.
    pub focused: Option<Control>,
    /// The controls from top to bottom, in the order that programs report.
    pub controls: Vec<Control>,
    /// Whether there were more than the limit.
    pub cut: bool,
    /// Why the list is empty, e.g. no accessibility bus.
    pub note: Option<String>,
}

/// One control.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// The name.
    pub name: String,
    /// The role in the accessibility service, e.g. `push button`.
    pub role: String,
    /// The automation id; empty if it has none.
    pub automation_id: String,
    /// The name of its program.
    pub app: String,
    /// The area, if it reports one.
    pub area: Option<Area>,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Whether it is visible.
    pub visible: bool,
    /// The text or number in it, `on` or `off` for a switch, the selected entry; `None` for a
    /// password.
    pub value: Option<String>,
    /// The actions that it reports.
    pub actions: Vec<String>,
}

/// The result of an action on a control.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlResult {
    /// The control; `None` if it was not found.
    pub control: Option<Control>,
    /// The available controls if it was not found, at most 15: `name (role[, disabled][, hidden])`.
    pub available: Vec<String>,
}

/// A word that OCR found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OcrWord {
    /// The word.
    pub text: String,
    /// The area, in pixels of the picture.
    pub area: Area,
    /// The confidence, 0 to 100.
    pub sure: u8,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesktopFault {
    /// The failure, in one sentence.
    pub what: String,
    /// The cause, if known.
    pub why: Option<String>,
    /// Hints for the user.
    pub next: Vec<String>,
}

impl DesktopFault {
    /// Converts a failure for the protocol.
    pub fn of(failure: Failure) -> Self {
        Self {
            why: failure.cause.map(|cause| cause.to_string()),
            what: failure.what,
            next: failure.hints,
        }
    }

    /// Converts it back to a failure.
    pub fn failure(self) -> Failure {
        let cause = self.why.map(Into::into);
        Failure { kind: FailureKind::Failed, what: self.what, cause, hints: self.next }
    }
}
