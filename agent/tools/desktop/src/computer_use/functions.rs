//! The table of functions with which a planner acts. The names and parameters are those of Gemini's
//! computer use; coordinates range from 0 to 999 over the image.
//!
//! Format: <https://ai.google.dev/gemini-api/docs/computer-use>.

use serde_json::{Value, json};

use super::address;
use crate::keys;
use provider::ToolDefinition;
use provider::message::ToolCall;

/// An action of the planner.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PlannedAction {
    /// A call of `execute_gui` with these arguments.
    Gui(Value),
    /// Wait this many seconds.
    Wait(f64),
    /// Start the user's browser.
    Browser,
}

/// The meaning of a function call.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PlannerCall {
    /// The actions, in order.
    pub actions: Vec<PlannedAction>,
    /// The page that is open afterwards, if known.
    pub url: Option<String>,
}

/// A function: its name, its description, its parameters as `name:type`, with `?` if optional.
type FunctionRow = (&'static str, &'static str, &'static [&'static str], Meaning);
/// Converts its arguments. The error is for the planner.
type Meaning = fn(&PlannerArgs<'_>) -> Result<PlannerCall, String>;

/// Number of steps of the coordinates.
const GRID_SIZE: i64 = 1000;
/// Default number of notches to scroll.
const DEFAULT_MAGNITUDE: i64 = 3;

/// The functions.
static FUNCTIONS: [FunctionRow; 13] = [
    ("click_at", "Clicks a point.", &["x:integer", "y:integer"], |it| {
        it.gui(json!({ "action": "click" }))
    }),
    ("hover_at", "Moves the mouse to a point.", &["x:integer", "y:integer"], |it| {
        it.gui(json!({ "action": "move_mouse" }))
    }),
    (
        "type_text_at",
        "Clicks a point and types text there. By default, existing text is replaced and Return is \
         pressed at the end.",
        &[
            "x:integer",
            "y:integer",
            "text:string",
            "press_enter:boolean?",
            "clear_before_typing:boolean?",
        ],
        type_text,
    ),
    (
        "scroll_at",
        "Scrolls at a point: up, down, left or right, by a number of notches (default: 3).",
        &["x:integer", "y:integer", "direction:string", "magnitude:integer?"],
        scroll,
    ),
    (
        "scroll_document",
        "Scrolls by a page (up, down), or to its beginning (left) or end (right).",
        &["direction:string"],
        scroll_document,
    ),
    (
        "key_combination",
        "Presses a key combination, for example \"Control+C\".",
        &["keys:string"],
        combine,
    ),
    (
        "drag_and_drop",
        "Drags from one point to another.",
        &["x:integer", "y:integer", "destination_x:integer", "destination_y:integer"],
        drag,
    ),
    ("navigate", "Opens a URL in the focused browser.", &["url:string"], navigate),
    ("go_back", "Goes back in the browser.", &[], |_| Ok(hotkey("alt+left"))),
    ("go_forward", "Goes forward in the browser.", &[], |_| Ok(hotkey("alt+right"))),
    ("search", "Focuses the search field of the browser.", &[], |_| Ok(hotkey("ctrl+k"))),
    ("open_web_browser", "Starts the browser.", &[], |_| {
        Ok(PlannerCall {
            actions: vec![PlannedAction::Browser, PlannedAction::Wait(2.0)],
            url: None,
        })
    }),
    ("wait_5_seconds", "Waits five seconds.", &[], |_| {
        Ok(PlannerCall { actions: vec![PlannedAction::Wait(5.0)], url: None })
    }),
];

/// The function with which a planner asks for confirmation if it has no other way.
const CONFIRM: &str = "ask_confirmation";

/// Returns the functions as tool definitions.
pub(crate) fn specs() -> Vec<ToolDefinition> {
    let functions = FUNCTIONS
        .iter()
        .map(|(name, description, parameters, _)| spec(name, description, parameters));
    let description = "Asks the user to confirm an action that cannot be undone or that commits them: a \
                 purchase, a message, a deletion, accepting terms. Ends the run until they answer.";
    functions.chain([spec(CONFIRM, description, &["explanation:string"])]).collect()
}

fn spec(name: &str, description: &str, parameters: &[&str]) -> ToolDefinition {
    let (mut properties, mut required) = (serde_json::Map::new(), Vec::new());
    for parameter in parameters {
        let (key, kind) = parameter.split_once(':').unwrap_or((parameter, "string"));
        let kind = match kind.strip_suffix('?') {
            Some(kind) => kind,
            None => {
                required.push(key);
                kind
            }
        };
        properties.insert(key.to_owned(), json!({ "type": kind }));
    }
    let parameters = json!({ "type": "object", "properties": properties, "required": required });
    ToolDefinition { name: name.to_owned(), description: description.to_owned(), parameters }
}

/// Returns the meaning of a function call on an image of this size. The error is for the planner.
pub(crate) fn plan_call(name: &str, args: &Value, size: (u32, u32)) -> Result<PlannerCall, String> {
    let row = FUNCTIONS.iter().find(|(function_name, ..)| *function_name == name);
    match row {
        Some((.., meaning)) => meaning(&PlannerArgs { args, size }),
        None => Err(format!("`{name}` does nothing here")),
    }
}

/// Returns why the user must confirm a call, if the planner says so.
pub(crate) fn confirmation_reason(call: &ToolCall) -> Option<String> {
    let decision = &call.args["safety_decision"];
    let decision_text = decision["decision"].as_str().or(decision.as_str());
    let is_required = matches!(decision_text, Some("require_confirmation"));
    let explanation =
        if call.name == CONFIRM { &call.args["explanation"] } else { &decision["explanation"] };
    let reason = || explanation.as_str().unwrap_or("the planner asks for confirmation").to_owned();
    (is_required || call.name == CONFIRM).then(reason)
}

/// Arguments and the size of the image that they refer to.
struct PlannerArgs<'a> {
    args: &'a Value,
    size: (u32, u32),
}

impl PlannerArgs<'_> {
    fn number(&self, key: &str) -> Option<f64> {
        let value = &self.args[key];
        value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())
    }

    fn bool_or(&self, key: &str, default: bool) -> bool {
        self.args[key].as_bool().unwrap_or(default)
    }

    /// Returns a point in pixels of the image.
    fn point(&self, x: &str, y: &str) -> Result<(i64, i64), String> {
        let scale_axis = |key: &str, total: u32| {
            let position =
                self.number(key).ok_or_else(|| format!("`{key}` must be a number"))? as i64;
            match (0..GRID_SIZE).contains(&position) {
                true => Ok(position * i64::from(total) / GRID_SIZE),
                false => Err(format!("`{key}` is {position}: it must be from 0 to 999")),
            }
        };
        Ok((scale_axis(x, self.size.0)?, scale_axis(y, self.size.1)?))
    }

    /// Creates one action at the point of the call.
    fn gui(&self, mut action: Value) -> Result<PlannerCall, String> {
        let (x, y) = self.point("x", "y")?;
        action["x"] = json!(x);
        action["y"] = json!(y);
        Ok(PlannerCall { actions: vec![PlannedAction::Gui(action)], url: None })
    }

    fn direction(&self) -> Result<&str, String> {
        let direction = self.args["direction"].as_str().unwrap_or_default();
        let known = ["up", "down", "left", "right"].into_iter().find(|known| *known == direction);
        known.ok_or_else(|| format!("invalid direction `{direction}`: use up, down, left or right"))
    }
}

fn press(key: &str) -> PlannedAction {
    PlannedAction::Gui(json!({ "action": "hotkey", "key": key }))
}

fn hotkey(key: &str) -> PlannerCall {
    PlannerCall { actions: vec![press(key)], url: None }
}

/// Returns the modifier of shortcuts.
fn command_key() -> &'static str {
    if cfg!(target_os = "macos") { "cmd" } else { "ctrl" }
}

fn type_text(it: &PlannerArgs<'_>) -> Result<PlannerCall, String> {
    let text = it.args["text"].as_str().ok_or("`text` must be given")?;
    let mut planned = it.gui(json!({ "action": "click" }))?;
    if it.bool_or("clear_before_typing", true) {
        planned.actions.push(press(&format!("{}+a", command_key())));
        planned
            .actions
            .push(PlannedAction::Gui(json!({ "action": "press_key", "key": "backspace" })));
    }
    if !text.is_empty() {
        planned.actions.push(PlannedAction::Gui(json!({ "action": "type", "text": text })));
    }
    if it.bool_or("press_enter", true) {
        planned.actions.push(PlannedAction::Gui(json!({ "action": "press_key", "key": "enter" })));
    }
    Ok(planned)
}

fn scroll(it: &PlannerArgs<'_>) -> Result<PlannerCall, String> {
    let magnitude = it.number("magnitude").map_or(DEFAULT_MAGNITUDE, |number| number as i64);
    // Gemini's own magnitude is in coordinate steps: a notch is about a tenth of the screen.
    let notches = if magnitude > 20 { magnitude / 100 } else { magnitude }.clamp(1, 20);
    it.gui(json!({ "action": "scroll", "direction": it.direction()?, "clicks": notches }))
}

fn scroll_document(it: &PlannerArgs<'_>) -> Result<PlannerCall, String> {
    let key = match it.direction()? {
        "up" => "page_up",
        "down" => "page_down",
        "left" => "home",
        _ => "end",
    };
    Ok(PlannerCall {
        actions: vec![PlannedAction::Gui(json!({ "action": "press_key", "key": key }))],
        url: None,
    })
}

fn combine(it: &PlannerArgs<'_>) -> Result<PlannerCall, String> {
    let key_list = it.args["keys"]
        .as_array()
        .map(|keys| keys.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("+"));
    let text = key_list.or_else(|| it.args["keys"].as_str().map(str::to_owned)).unwrap_or_default();
    let key_names = keys::parse(&text);
    if key_names.is_empty() {
        return Err("`keys` must name keys, for example \"Control+C\"".to_owned());
    }
    if keys::is_blocked(&key_names) {
        return Err(format!("{text} is blocked: nothing was pressed"));
    }
    Ok(hotkey(&key_names.join("+")))
}

fn drag(it: &PlannerArgs<'_>) -> Result<PlannerCall, String> {
    let start = it.point("x", "y")?;
    let has_short_names = it.number("dest_x").is_some();
    let (x, y) =
        if has_short_names { ("dest_x", "dest_y") } else { ("destination_x", "destination_y") };
    let end = it.point(x, y)?;
    let args = json!({
        "action": "drag",
        "coordinates": { "start_x": start.0, "start_y": start.1, "end_x": end.0, "end_y": end.1 },
    });
    Ok(PlannerCall { actions: vec![PlannedAction::Gui(args)], url: None })
}

fn navigate(it: &PlannerArgs<'_>) -> Result<PlannerCall, String> {
    let url = address::repair(it.args["url"].as_str().unwrap_or_default())?;
    let actions = vec![
        press(&format!("{}+l", command_key())),
        PlannedAction::Gui(json!({ "action": "type", "text": url })),
        PlannedAction::Gui(json!({ "action": "press_key", "key": "enter" })),
    ];
    Ok(PlannerCall { actions, url: Some(url) })
}

#[cfg(test)]
#[path = "functions_tests.rs"]
mod tests;
