//! `execute_gui`: nine actions of mouse and keyboard, in pixels of the last seen image. Interprets
//! calls without side effects; `g3-desktop` executes them.

use std::time::Instant;

use base::desktop_protocol::{Button, InputStep};
use serde_json::{Map, Value, json};

use super::input::{check_text, echo};
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
const DEFAULT_AND_MAX_NOTCHES: (i64, i64) = (5, 100);

/// The meaning of a call.
#[derive(Debug, PartialEq)]
struct GuiAction {
    steps: Vec<InputStep>,
    /// The point on the screen.
    position: Option<(i32, i32)>,
    description: String,
}

/// The arguments of a call: those in `coordinates`, overridden by those next to it.
struct GuiArgs<'a> {
    map: Map<String, Value>,
    shown_screen: Option<&'a ShownScreen>,
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
    let start_time = Instant::now();
    let map: Map<String, Value> = call.decode()?;
    let shown_screen = ShownScreen::last(call.context);
    let (action, target) = (call.text("action").trim().to_lowercase(), call.text("target"));
    let gui_args = GuiArgs { map: merge_coordinates(map), shown_screen: shown_screen.as_ref() };
    let action_plan = gui_args
        .plan(&action)
        .map_err(|error| ToolError::invalid(format!("{}: {error}", call.profile_tool.name)))?;
    let GuiAction { steps, position, description } = action_plan;
    if let Some(InputStep::Type { text }) = steps.last() {
        check_text(text, &call.profile_tool.name)?;
    }
    host::input(call.context, steps).await?;
    let coordinates = position.map(|(x, y)| json!({ "x": x, "y": y }));
    let extra_fields = json!({ "action": action, "target": target, "coordinates": coordinates });
    Ok(screen_call::action_output(description, start_time, extra_fields))
}

/// Merges both argument forms: arguments next to `coordinates` take precedence.
fn merge_coordinates(mut map: Map<String, Value>) -> Map<String, Value> {
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

    fn integer(&self, key: &str) -> Result<Option<i64>, String> {
        let Some(value) = self.map.get(key) else { return Ok(None) };
        let text = value.as_str().and_then(|text| text.trim().parse::<f64>().ok());
        let number = value.as_f64().or(text).filter(|number| number.abs() < 1e9);
        number.map(|number| Some(number as i64)).ok_or_else(|| format!("`{key}` must be a number"))
    }

    /// Converts a point of the image to a point of the screen. Returns `None` if neither coordinate
    /// is given.
    fn point_from(&self, x: &str, y: &str) -> Result<Option<(i32, i32)>, String> {
        let native = |x: i64, y: i64| match self.shown_screen {
            Some(shown_screen) => shown_screen.native(x, y),
            None => (x as i32, y as i32),
        };
        match (self.integer(x)?, self.integer(y)?) {
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
            if let Some(center) =
                self.shown_screen.and_then(|shown_screen| shown_screen.center_of(id))
            {
                return Ok(Some(center));
            }
            if self.point_from("x", "y")?.is_none() {
                return Err(format!("no such element: {id}; call observe_screen again"));
            }
        }
        self.point_from("x", "y")
    }

    fn required_point(&self, action: &str) -> Result<(i32, i32), String> {
        self.point()?.ok_or_else(|| format!("`{action}` needs coordinates: `x` and `y`"))
    }

    fn plan(&self, action: &str) -> Result<GuiAction, String> {
        match action {
            "click" => self.plan_click(Button::Left, 1, "clicked"),
            "double_click" => self.plan_click(Button::Left, 2, "double-clicked"),
            "right_click" => self.plan_click(Button::Right, 1, "right-clicked"),
            "move_mouse" => {
                let (x, y) = self.required_point(action)?;
                Ok(GuiAction {
                    steps: vec![InputStep::Move { x, y }],
                    position: Some((x, y)),
                    description: format!("moved the mouse to {x},{y}"),
                })
            }
            "type" => self.plan_typing(),
            "scroll" => self.plan_scroll(),
            "hotkey" | "press_key" => self.plan_key_press(action),
            "drag" => self.plan_drag(),
            other => Err(format!("`{other}` is no action; there are {}", ACTIONS.join(", "))),
        }
    }

    fn plan_click(&self, button: Button, times: u32, verb: &str) -> Result<GuiAction, String> {
        let (x, y) = self.required_point("click")?;
        let steps = vec![InputStep::Move { x, y }, InputStep::Click { button, times }];
        Ok(GuiAction { steps, position: Some((x, y)), description: format!("{verb} at {x},{y}") })
    }

    fn plan_typing(&self) -> Result<GuiAction, String> {
        let text = self.text("text").ok_or("`type` needs `text`")?;
        let position = self.point()?;
        let click = |(x, y)| {
            [InputStep::Move { x, y }, InputStep::Click { button: Button::Left, times: 1 }]
        };
        let mut steps: Vec<InputStep> = position.map(click).into_iter().flatten().collect();
        let description = match position {
            Some((x, y)) => format!("typed {} at {x},{y}", echo(&text)),
            None => format!("typed {}", echo(&text)),
        };
        steps.push(InputStep::Type { text });
        Ok(GuiAction { steps, position, description })
    }

    fn plan_scroll(&self) -> Result<GuiAction, String> {
        let notches = self
            .integer("clicks")?
            .unwrap_or(DEFAULT_AND_MAX_NOTCHES.0)
            .clamp(1, DEFAULT_AND_MAX_NOTCHES.1) as i32;
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
        let position = self.point()?;
        let mut steps: Vec<InputStep> =
            position.map(|(x, y)| InputStep::Move { x, y }).into_iter().collect();
        steps.push(InputStep::Scroll { down, right });
        Ok(GuiAction { steps, position, description: format!("scrolled {direction} by {notches}") })
    }

    fn plan_key_press(&self, action: &str) -> Result<GuiAction, String> {
        let list = self.map.get("keys").and_then(Value::as_array);
        let key_list: Vec<String> =
            list.into_iter().flatten().filter_map(Value::as_str).map(keys::name).collect();
        let pressed = match key_list.is_empty() {
            false => key_list,
            true => keys::parse(&self.text("key").unwrap_or_default()),
        };
        let combination = pressed.join("+");
        if pressed.is_empty() {
            return Err(format!("`{action}` needs `key`, for example \"enter\" or \"ctrl+s\""));
        }
        if keys::is_blocked(&pressed) {
            return Err(format!(
                "{combination} is never pressed: it is one of the blocked combinations"
            ));
        }
        let description = format!("pressed {combination}");
        Ok(GuiAction {
            steps: vec![InputStep::Keys { keys: pressed }],
            position: None,
            description,
        })
    }

    fn plan_drag(&self) -> Result<GuiAction, String> {
        let (start, end) =
            (self.point_from("start_x", "start_y")?, self.point_from("end_x", "end_y")?);
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
        Ok(GuiAction { steps, position: Some(to), description })
    }
}

#[cfg(test)]
#[path = "gui_tests.rs"]
mod tests;
