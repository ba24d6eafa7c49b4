//! `execute_gui`: nine actions of mouse and keyboard, in pixels of the last seen image. Interprets
//! calls without side effects; `g3-desktop` executes them.

use std::time::Instant;

use base::desktop_protocol::{Button, InputStep};
use serde_json::{Map, Value, json};

use super::input::{checked, echo};
use super::shown_screen::ShownScreen;
use super::{host, keys, screen_call};
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

/// The actions.
pub(crate) const ACTIONS: [&str; 9] = [
    "click",
    "double_click",
    "right_click",
    "type",
    "scroll",
    "hotkey",
    "press_key",
    "move_mouse",
    "drag",
];
/// Default and maximum number of notches to scroll.
const NOTCHES: (i64, i64) = (5, 100);

/// The meaning of a call.
#[derive(Debug, PartialEq)]
struct GuiAction {
    steps: Vec<InputStep>,
    /// The point on the screen.
    place: Option<(i32, i32)>,
    description: String,
}

/// The arguments of a call: those in `coordinates`, overridden by those next to it.
struct GuiArgs<'a> {
    map: Map<String, Value>,
    seen: Option<&'a ShownScreen>,
}

/// The tool that controls mouse and keyboard.
pub(crate) struct GuiTool;

impl Tool for GuiTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("input.gui", Effect::Acts)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        screen_call::controls_screen(call)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Executes one action.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let since = Instant::now();
    let map: Map<String, Value> = call.decode()?;
    let seen = ShownScreen::last(call.context);
    let (action, target) = (call.text("action").trim().to_lowercase(), call.text("target"));
    let given = GuiArgs { map: merged(map), seen: seen.as_ref() };
    let deed = given
        .deed(&action)
        .map_err(|why| ToolError::invalid(format!("{}: {why}", call.profile_tool.name)))?;
    let GuiAction { steps, place, description } = deed;
    if let Some(InputStep::Type { text }) = steps.last() {
        checked(text, &call.profile_tool.name)?;
    }
    host::input(call.context, steps).await?;
    let coordinates = place.map(|(x, y)| json!({ "x": x, "y": y }));
    let more = json!({ "action": action, "target": target, "coordinates": coordinates });
    Ok(screen_call::action_output(description, since, more))
}

/// Merges both argument forms: arguments next to `coordinates` take precedence.
fn merged(mut map: Map<String, Value>) -> Map<String, Value> {
    // Some models send the object as a string.
    let nested = match map.remove("coordinates") {
        Some(Value::Object(nested)) => nested,
        Some(_) | None => Map::new(),
    };
    for (key, value) in nested {
        let key = if key == "amount" { "clicks".to_owned() } else { key };
        if !value.is_null() {
            map.entry(key).or_insert(value);
        }
    }
    map
}

impl GuiArgs<'_> {
    fn text(&self, key: &str) -> Option<String> {
        match self.map.get(key)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    fn whole(&self, key: &str) -> Result<Option<i64>, String> {
        let Some(value) = self.map.get(key) else { return Ok(None) };
        let text = value.as_str().and_then(|text| text.trim().parse::<f64>().ok());
        let number = value.as_f64().or(text).filter(|number| number.abs() < 1e9);
        number.map(|number| Some(number as i64)).ok_or_else(|| format!("`{key}` must be a number"))
    }

    /// Converts a point of the image to a point of the screen. Returns `None` if neither coordinate
    /// is given.
    fn pair(&self, x: &str, y: &str) -> Result<Option<(i32, i32)>, String> {
        let native = |x: i64, y: i64| match self.seen {
            Some(seen) => seen.native(x, y),
            None => (x as i32, y as i32),
        };
        match (self.whole(x)?, self.whole(y)?) {
            (Some(x), Some(y)) => Ok(Some(native(x, y))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(format!("`{x}` is given without `{y}`")),
            (None, Some(_)) => Err(format!("`{y}` is given without `{x}`")),
        }
    }

    /// Returns the point to act on: the named element, if the last observation found it, otherwise
    /// the given point.
    fn point(&self) -> Result<Option<(i32, i32)>, String> {
        if let Some(id) = self.text("element_id").filter(|id| !id.trim().is_empty()) {
            let id = id.trim();
            if id.parse::<u64>().is_err() {
                return Err(format!("`element_id` must be a number of observe_screen, not {id:?}"));
            }
            if let Some(middle) = self.seen.and_then(|seen| seen.middle_of(id)) {
                return Ok(Some(middle));
            }
            if self.pair("x", "y")?.is_none() {
                return Err(format!("no such element: {id}; call observe_screen again"));
            }
        }
        self.pair("x", "y")
    }

    fn needed(&self, action: &str) -> Result<(i32, i32), String> {
        self.point()?.ok_or_else(|| format!("`{action}` needs coordinates: `x` and `y`"))
    }

    fn deed(&self, action: &str) -> Result<GuiAction, String> {
        match action {
            "click" => self.clicked(Button::Left, 1, "clicked"),
            "double_click" => self.clicked(Button::Left, 2, "double-clicked"),
            "right_click" => self.clicked(Button::Right, 1, "right-clicked"),
            "move_mouse" => {
                let (x, y) = self.needed(action)?;
                Ok(GuiAction {
                    steps: vec![InputStep::Move { x, y }],
                    place: Some((x, y)),
                    description: format!("moved the mouse to {x},{y}"),
                })
            }
            "type" => self.typed(),
            "scroll" => self.scrolled(),
            "hotkey" | "press_key" => self.pressed(action),
            "drag" => self.dragged(),
            other => Err(format!("`{other}` is no action; there are {}", ACTIONS.join(", "))),
        }
    }

    fn clicked(&self, button: Button, times: u32, word: &str) -> Result<GuiAction, String> {
        let (x, y) = self.needed("click")?;
        let steps = vec![InputStep::Move { x, y }, InputStep::Click { button, times }];
        Ok(GuiAction { steps, place: Some((x, y)), description: format!("{word} at {x},{y}") })
    }

    fn typed(&self) -> Result<GuiAction, String> {
        let text = self.text("text").ok_or("`type` needs `text`")?;
        let place = self.point()?;
        let click = |(x, y)| {
            [InputStep::Move { x, y }, InputStep::Click { button: Button::Left, times: 1 }]
        };
        let mut steps: Vec<InputStep> = place.map(click).into_iter().flatten().collect();
        let description = match place {
            Some((x, y)) => format!("typed {} at {x},{y}", echo(&text)),
            None => format!("typed {}", echo(&text)),
        };
        steps.push(InputStep::Type { text });
        Ok(GuiAction { steps, place, description })
    }

    fn scrolled(&self) -> Result<GuiAction, String> {
        let notches = self.whole("clicks")?.unwrap_or(NOTCHES.0).clamp(1, NOTCHES.1) as i32;
        let direction = self.text("direction").unwrap_or_else(|| "down".to_owned()).to_lowercase();
        let (down, right) = match direction.as_str() {
            "down" => (notches, 0),
            "up" => (-notches, 0),
            "right" => (0, notches),
            "left" => (0, -notches),
            other => {
                return Err(format!("invalid direction `{other}`: use up, down, left or right"));
            }
        };
        let place = self.point()?;
        let mut steps: Vec<InputStep> =
            place.map(|(x, y)| InputStep::Move { x, y }).into_iter().collect();
        steps.push(InputStep::Scroll { down, right });
        Ok(GuiAction { steps, place, description: format!("scrolled {direction} by {notches}") })
    }

    fn pressed(&self, action: &str) -> Result<GuiAction, String> {
        let list = self.map.get("keys").and_then(Value::as_array);
        let listed: Vec<String> =
            list.into_iter().flatten().filter_map(Value::as_str).map(keys::name).collect();
        let pressed = match listed.is_empty() {
            false => listed,
            true => keys::parse(&self.text("key").unwrap_or_default()),
        };
        let shown = pressed.join("+");
        if pressed.is_empty() {
            return Err(format!("`{action}` needs `key`, for example \"enter\" or \"ctrl+s\""));
        }
        if keys::is_blocked(&pressed) {
            return Err(format!("{shown} is never pressed: it is one of the blocked combinations"));
        }
        let description = format!("pressed {shown}");
        Ok(GuiAction { steps: vec![InputStep::Keys { keys: pressed }], place: None, description })
    }

    fn dragged(&self) -> Result<GuiAction, String> {
        let (start, end) = (self.pair("start_x", "start_y")?, self.pair("end_x", "end_y")?);
        let (from, to) = match (start, end, self.point()?) {
            (start, None, Some(to)) => (start, to),
            (Some(start), Some(end), _) => (Some(start), end),
            (None, Some(end), from) => (from, end),
            (_, None, None) => {
                return Err("`drag` needs coordinates: `x` and `y` of its end".to_owned());
            }
        };
        let mut steps: Vec<InputStep> =
            from.map(|(x, y)| InputStep::Move { x, y }).into_iter().collect();
        steps.push(InputStep::Drag { x: to.0, y: to.1 });
        let description = match from {
            Some((x, y)) => format!("dragged from {x},{y} to {},{}", to.0, to.1),
            None => format!("dragged to {},{}", to.0, to.1),
        };
        Ok(GuiAction { steps, place: Some(to), description })
    }
}

#[cfg(test)]
#[path = "gui_tests.rs"]
mod tests;
