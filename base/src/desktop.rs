//! What is said between g3 and `g3-desktop`: JSON, one object a line, over stdin and stdout.
//!
//! g3 sends [`Asked`] lines; each gets exactly one [`Told`] line with the same id, in the order
//! asked. Places are pixels of the whole desktop as the system counts them ("native"), from the
//! top left corner; scaling for a model is g3's work. `g3-desktop` ends with its stdin.

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, FailureKind};

/// One line from g3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DesktopRequestLine {
    /// Chosen by g3.
    pub id: u64,
    /// What it wants.
    #[serde(flatten)]
    pub what: DesktopRequest,
}

/// What g3 wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum DesktopRequest {
    /// A picture of the desktop or of one window; answered by `picture`.
    Capture(CaptureTarget),
    /// Pointer and keyboard, step by step; answered by `done`. Nothing is done when one of the
    /// steps is refused before the first.
    Input {
        /// In this order.
        steps: Vec<InputStep>,
        /// Refuse while the pointer stands in a corner of the screen.
        fail_safe: bool,
    },
    /// Sizes and the pointer's place; answered by `screen`.
    Screen,
    /// The open windows, topmost first; answered by `windows`.
    Windows,
    /// Maximizes the active window; answered by `maximized`.
    Maximize,
    /// What programs say of their controls; answered by `controls`.
    Controls(ControlQuery),
    /// Acts on one control; answered by `acted`.
    Act(ControlAction),
    /// Words in a picture, by OCR; answered by `words`.
    Read {
        /// PNG or JPEG, base64.
        picture: String,
    },
    /// What a later version asks; answered by a fault.
    #[serde(other)]
    Unknown,
}

/// A rectangle in native pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// From the left edge.
    pub x: i32,
    /// From the top edge.
    pub y: i32,
    /// Pixels.
    pub width: u32,
    /// Pixels.
    pub height: u32,
}

/// Which picture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureTarget {
    /// An id of [`Window::id`], or a program's name or title (any part, no matter the case);
    /// else the whole desktop.
    pub window: Option<String>,
    /// The output to take, e.g. `HDMI-1`, or another X display, e.g. `:1`; else all of this one.
    pub display: Option<String>,
    /// A part: of the desktop, or of the window from its own corner.
    pub area: Option<Area>,
    /// Made smaller to fit, keeping its shape; never larger.
    pub fit: Option<(u32, u32)>,
    /// JPEG with this quality (1 to 100); else PNG.
    pub jpeg: Option<u8>,
}

/// One step of pointer or keyboard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum InputStep {
    /// Moves the pointer.
    Move {
        /// Native.
        x: i32,
        /// Native.
        y: i32,
    },
    /// Clicks where the pointer is.
    Click {
        /// Which button.
        button: Button,
        /// 2 for a double click.
        times: u32,
    },
    /// Presses the left button, goes there in half a second, lets go.
    Drag {
        /// Native.
        x: i32,
        /// Native.
        y: i32,
    },
    /// Turns the wheel.
    Scroll {
        /// Notches; negative is up.
        down: i32,
        /// Notches; negative is left.
        right: i32,
    },
    /// Types any text, also what the keyboard has no keys for.
    Type {
        /// The text; a line end is Return.
        text: String,
    },
    /// Keys held together, e.g. `ctrl`, `shift`, `t`, `f5`, `enter`, `page_down`.
    Keys {
        /// Pressed in this order.
        keys: Vec<String>,
    },
}

/// A button of the mouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Button {
    /// The usual one.
    Left,
    /// The one of menus.
    Right,
    /// The wheel.
    Middle,
}

/// Which controls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlQuery {
    /// Part of a window's title or a program's name; else the active window.
    pub window: Option<String>,
    /// Every program instead.
    pub everywhere: bool,
    /// Levels below the window; 0 for all.
    pub depth: u32,
    /// At most so many controls; 0 for 200.
    pub limit: u32,
    /// Those that can be acted on; else labels and panels too.
    pub interactive: bool,
}

/// What is done to which control.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlAction {
    /// Where to look.
    #[serde(flatten)]
    pub look: ControlQuery,
    /// Part of the control's name, no matter the case.
    pub name: Option<String>,
    /// Its exact automation id.
    pub automation_id: Option<String>,
    /// Its exact role, e.g. `push button`.
    pub role: Option<String>,
    /// What to do.
    pub action: ControlVerb,
    /// The text of `set_value`, the entry of `select`.
    pub value: Option<String>,
}

/// What can be done to a control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlVerb {
    /// Its first action.
    Click,
    /// A text or number.
    SetValue,
    /// A check box or switch.
    Toggle,
    /// An entry of a list, a tab, a radio button.
    Select,
    /// A tree row, a combo box.
    Expand,
    /// The reverse.
    Collapse,
    /// The keyboard's focus.
    Focus,
}

/// One line from `g3-desktop`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DesktopResponseLine {
    /// The id of what was asked.
    pub id: u64,
    /// The answer.
    #[serde(flatten)]
    pub what: DesktopResponse,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "snake_case")]
pub enum DesktopResponse {
    /// To `capture`.
    Picture(Picture),
    /// To `input`.
    Done,
    /// To `screen`.
    Screen(ScreenInfo),
    /// To `windows`.
    Windows {
        /// Topmost first.
        windows: Vec<WindowInfo>,
    },
    /// To `maximize`.
    Maximized {
        /// Its title.
        title: String,
        /// Nothing had to be done.
        already: bool,
    },
    /// To `controls`.
    Controls(Controls),
    /// To `act`.
    Acted(ControlResult),
    /// To `read`.
    Words {
        /// In reading order.
        words: Vec<OcrWord>,
    },
    /// It could not be done.
    Fault(DesktopFault),
}

/// A picture and what it shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picture {
    /// base64.
    pub data: String,
    /// `image/png` or `image/jpeg`.
    pub mime: String,
    /// Pixels of the picture.
    pub width: u32,
    /// Pixels of the picture.
    pub height: u32,
    /// What of the desktop it shows.
    pub shows: Area,
    /// The program or library that took it.
    pub backend: String,
}

/// The desktop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScreenInfo {
    /// All outputs together.
    pub area: Area,
    /// Where the pointer is; Wayland does not tell: where it was put last, else the middle.
    pub pointer: (i32, i32),
    /// `x11`, `wayland`, `macos`.
    pub system: String,
}

/// An open window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowInfo {
    /// The window system's number.
    pub id: String,
    /// Its program.
    pub app: String,
    /// Its title.
    pub title: String,
    /// With its frame.
    pub area: Area,
    /// It has the focus.
    pub active: bool,
    /// It is maximized.
    pub maximized: bool,
    /// It is not shown.
    pub minimized: bool,
}

/// The controls of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controls {
    /// The title of the active window.
    pub active: String,
    /// The one that has the keyboard's focus.
    pub focused: Option<Control>,
    /// From the top, as programs order them.
    pub controls: Vec<Control>,
    /// There were more than the limit.
    pub cut: bool,
    /// Why there are none, e.g. no accessibility bus.
    pub note: Option<String>,
}

/// One control.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// What it is called.
    pub name: String,
    /// As the accessibility service calls it, e.g. `push button`.
    pub role: String,
    /// Its automation id, empty if it has none.
    pub automation_id: String,
    /// Its program.
    pub app: String,
    /// Where it is, if it says so.
    pub area: Option<Area>,
    /// It can be used.
    pub enabled: bool,
    /// It is on the screen.
    pub visible: bool,
    /// Text or number in it, `on` or `off` of a switch, the chosen entry; of a password nothing.
    pub value: Option<String>,
    /// What it says it can do.
    pub actions: Vec<String>,
}

/// What came of acting on a control.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlResult {
    /// The control; none was found else.
    pub control: Option<Control>,
    /// `name (role[, disabled][, hidden])`, at most 15, when none was found.
    pub available: Vec<String>,
}

/// A word that was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OcrWord {
    /// The word.
    pub text: String,
    /// In pixels of the picture.
    pub area: Area,
    /// 0 to 100.
    pub sure: u8,
}

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesktopFault {
    /// One sentence.
    pub what: String,
    /// The cause, as far as it is known.
    pub why: Option<String>,
    /// What to try.
    pub next: Vec<String>,
}

impl DesktopFault {
    /// Creates a failure as it is told.
    pub fn of(failure: Failure) -> Self {
        Self {
            why: failure.why.map(|why| why.to_string()),
            what: failure.what,
            next: failure.hints,
        }
    }

    /// Returns the failure that was told.
    pub fn failure(self) -> Failure {
        let why = self.why.map(Into::into);
        Failure { kind: FailureKind::Failed, what: self.what, why, hints: self.next }
    }
}
