//! Elements of a page: finds, describes, clicks and fills them, and parses the names of keys.

use super::session::BrowserSession;
use super::webdriver::{BrowserError, ELEMENT, element};
use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use gate::paths;
use serde_json::{Value, json};
use tools::call::Invocation;
use tools::output::{ToolError, ToolErrorKind};

/// The script that inspects a page.
const LOOK: &str = include_str!("look.js");
/// Script that returns the kind of an element, and whether it takes a value.
const KIND: &str = "const e = arguments[0]; \
    return [e.localName, e.type || '', e.multiple === true, e.isContentEditable === true, \
        e.matches(':disabled') || e.getAttribute('aria-disabled') === 'true', e.readOnly === true];";
/// Script that returns whether an element ignores clicks because it is disabled.
const DISABLED: &str = "const e = arguments[0]; \
    return e.matches(':disabled') || e.getAttribute('aria-disabled') === 'true';";
/// Types of `<input>` that are clicked instead of filled.
const CLICKED: [&str; 7] = ["button", "checkbox", "color", "image", "radio", "reset", "submit"];

/// Runs one function of the script [`LOOK`].
pub(crate) async fn look(
    session: &BrowserSession,
    what: &str,
    args: [Value; 2],
) -> Result<Value, BrowserError> {
    let [first, second] = args;
    session.script(LOOK, &[json!(what), first, second]).await
}

/// Returns the first element that matches a selector; the driver waits for it for a moment.
pub(crate) async fn first(session: &BrowserSession, selector: &str) -> Result<String, ToolError> {
    match session.find_all(selector).await {
        Ok(elements) => elements.into_iter().next().ok_or_else(|| {
            let text = format!(
                "no element fits `{selector}`; webdriver_get_page_source shows what is there"
            );
            ToolError::new(ToolErrorKind::NotFound, text)
        }),
        Err(BrowserError::Other(message)) => {
            Err(ToolError::invalid(format!("invalid CSS selector `{selector}`: {message}")))
        }
        Err(error) => Err(session.tool_error(error).await),
    }
}

/// Describes elements, one line each.
pub(crate) async fn described(
    session: &BrowserSession,
    ids: &[String],
) -> Result<Vec<String>, BrowserError> {
    let elements: Vec<Value> = ids.iter().map(|id| element(id)).collect();
    let facts = look(session, "describe", [Value::Array(elements), Value::Null]).await?;
    Ok(facts.as_array().into_iter().flatten().map(line).collect())
}

/// Formats an element as a line: its tag with attributes, its text, its state.
fn line(facts: &Value) -> String {
    let mut tag = facts["tag"].as_str().unwrap_or_default().to_owned();
    let mut state = String::new();
    for (key, value) in facts.as_object().into_iter().flatten() {
        match (key.as_str(), value) {
            ("tag" | "text" | "role", _) => {}
            ("value" | "checked" | "selected" | "disabled" | "expanded" | "level", value) => {
                state.push_str(&format!(" {key}={value}"));
            }
            ("visible", _) => state.push_str(" (cannot be seen)"),
            (key, value) => tag.push_str(&format!(" {key}={value}")),
        }
    }
    let role = facts["role"].as_str().map(|role| format!(" {role}")).unwrap_or_default();
    let text = facts["text"].as_str().filter(|text| !text.is_empty());
    let text = text.map(|text| format!(" {text:?}")).unwrap_or_default();
    format!("<{tag}>{role}{text}{state}")
}

/// Clicks an element, which is scrolled into view first. A disabled element is an error, because
/// the click would have no effect.
pub(crate) async fn click(session: &BrowserSession, id: &str) -> Result<(), BrowserError> {
    if session.script(DISABLED, &[element(id)]).await? == true {
        return Err(BrowserError::Other(
            "the element is disabled, so a click does nothing; look at the page for what enables it"
                .to_owned(),
        ));
    }
    session.following(session.click(id)).await
}

/// Enters a text, or selects the option with this text. A file is uploaded only from within the
/// working directory, which may be read without a question.
pub(crate) async fn enter(
    call: &Invocation<'_>,
    session: &BrowserSession,
    id: &str,
    (text, clear): (&str, bool),
) -> Result<(), ToolError> {
    let done = async {
        let kind = session.script(KIND, &[element(id)]).await?;
        if let Some(reason) = refusal(&kind) {
            return Ok(Some(ToolError::invalid(reason)));
        }
        let (tag, kind) =
            (kind[0].as_str().unwrap_or_default(), kind[1].as_str().unwrap_or_default());
        if tag == "select" {
            let refused = look(session, "choose", [element(id), json!(text)]).await?;
            return Ok(refused.as_str().map(|reason| ToolError::invalid(reason.to_owned())));
        }
        let text = match kind == "file" {
            true => match files(call, text) {
                Ok(paths) => paths,
                Err(trouble) => return Ok(Some(trouble)),
            },
            false => text.to_owned(),
        };
        if clear && kind != "file" {
            session.clear(id).await?;
        }
        session.following(session.send_keys(id, &text)).await?;
        Ok(None)
    };
    match done.await {
        Ok(None) => Ok(()),
        Ok(Some(trouble)) => Err(trouble),
        Err(error) => Err(session.tool_error(error).await),
    }
}

/// Returns why an element takes no value, and what to do instead; `None` if it takes one. `facts`
/// is the result of [`KIND`].
fn refusal(facts: &Value) -> Option<String> {
    let (tag, kind) =
        (facts[0].as_str().unwrap_or_default(), facts[1].as_str().unwrap_or_default());
    let is_field = match tag {
        "input" => !CLICKED.contains(&kind),
        "textarea" | "select" => true,
        _ => facts[3] == true,
    };
    if !is_field {
        let kind = if tag == "input" { format!(" type=\"{kind}\"") } else { String::new() };
        return Some(format!(
            "a <{tag}{kind}> takes no text: click it, or fill a text field, a list or a file field"
        ));
    }
    if facts[4] == true {
        return Some("the field is disabled; look at the page for what enables it".to_owned());
    }
    (facts[5] == true).then(|| "the field is read-only and takes no text".to_owned())
}

/// Returns the files of an upload, one per line.
fn files(call: &Invocation<'_>, text: &str) -> Result<String, ToolError> {
    let root = &call.context.root;
    let mut paths = Vec::new();
    for name in text.lines().filter(|line| !line.trim().is_empty()) {
        let path = paths::resolve(&call.context.cwd, name)
            .map_err(|error| ToolError::io(&format!("cannot upload {name}"), &error))?;
        if !paths::is_inside(&path, root) {
            let text = format!(
                "denied: {} is outside the working directory, and only files within it are uploaded",
                path.display()
            );
            return Err(ToolError::new(ToolErrorKind::Denied, text));
        }
        if !path.is_file() {
            let text = format!("cannot upload {}: no such file", path.display());
            return Err(ToolError::invalid(text));
        }
        paths.push(path.to_string_lossy().into_owned());
    }
    if paths.is_empty() {
        return Err(ToolError::invalid("the field takes a file: give its path as the text"));
    }
    Ok(paths.join("\n"))
}

/// Replaces the elements in a script's value with a placeholder: their references are meaningless
/// outside of the driver.
pub(crate) fn plain(value: Value) -> Value {
    match value {
        Value::Object(map) if map.contains_key(ELEMENT) => json!("[element]"),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, plain(value))).collect(),
        Value::Array(all) => all.into_iter().map(plain).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Names of keys, in lower case.
const NAMED: &[(&str, char)] = &[
    ("enter", '\u{e007}'),
    ("return", '\u{e006}'),
    ("tab", '\u{e004}'),
    ("escape", '\u{e00c}'),
    ("esc", '\u{e00c}'),
    ("backspace", '\u{e003}'),
    ("delete", '\u{e017}'),
    ("insert", '\u{e016}'),
    ("space", ' '),
    ("arrowup", '\u{e013}'),
    ("up", '\u{e013}'),
    ("arrowdown", '\u{e015}'),
    ("down", '\u{e015}'),
    ("arrowleft", '\u{e012}'),
    ("left", '\u{e012}'),
    ("arrowright", '\u{e014}'),
    ("right", '\u{e014}'),
    ("home", '\u{e011}'),
    ("end", '\u{e010}'),
    ("pageup", '\u{e00e}'),
    ("pagedown", '\u{e00f}'),
    ("control", '\u{e009}'),
    ("ctrl", '\u{e009}'),
    ("shift", '\u{e008}'),
    ("alt", '\u{e00a}'),
    ("option", '\u{e00a}'),
    ("meta", '\u{e03d}'),
    ("cmd", '\u{e03d}'),
    ("command", '\u{e03d}'),
    ("super", '\u{e03d}'),
];
/// F1; the other function keys follow it.
const F1: u32 = 0xe031;

/// Parses `Enter`, `a`, `F5` or `ctrl+shift+k` into keys, in the order in which they are pressed.
pub(crate) fn parse(text: &str) -> Result<Vec<char>, String> {
    // A `+` by itself, or after another one, is the key.
    let (modifiers, last) = match text.strip_suffix('+') {
        Some(modifiers) => (modifiers.trim_end_matches('+'), "+"),
        None => text.rsplit_once('+').unwrap_or(("", text)),
    };
    let modifiers = modifiers.split('+').filter(|name| !name.trim().is_empty());
    modifiers.chain([last]).map(key).collect()
}

fn key(name: &str) -> Result<char, String> {
    let mut letters = name.chars();
    if let (Some(letter), None) = (letters.next(), letters.next()) {
        return Ok(letter);
    }
    let small = name.trim().to_lowercase();
    let named = NAMED.iter().find(|(known, _)| *known == small).map(|(_, key)| *key);
    let number = small.strip_prefix('f').and_then(|text| text.parse().ok());
    let function =
        number.filter(|n| (1..=12).contains(n)).and_then(|n: u32| char::from_u32(F1 + n - 1));
    named.or(function).ok_or_else(|| {
        format!(
            "unknown key `{name}`: use a letter, F1 to F12, Enter, Tab, Escape, Backspace, \
             Delete, ArrowDown and its kin, Home, End, PageUp, PageDown, or several with `+`, for \
             example ctrl+a"
        )
    })
}

/// Returns the keys as one action: all are pressed, then released in reverse order.
pub(crate) fn pressed(keys: &[char]) -> KeyActions {
    let down = keys.iter().map(|key| KeyAction::Down { value: *key });
    let up = keys.iter().rev().map(|key| KeyAction::Up { value: *key });
    down.chain(up).fold(KeyActions::new("keyboard".to_owned()), KeyActions::then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_take_a_value() {
        let facts = |tag: &str, kind: &str| json!([tag, kind, false, false, false, false]);
        assert_eq!(refusal(&facts("input", "text")), None);
        assert_eq!(refusal(&facts("select", "select-one")), None);
        assert_eq!(refusal(&json!(["div", "", false, true, false, false])), None);
        let why = refusal(&facts("button", "submit")).unwrap();
        assert!(why.starts_with("a <button> takes no text: click it"), "{why}");
        let why = refusal(&facts("input", "submit")).unwrap();
        assert!(why.contains("<input type=\"submit\">"), "{why}");
        assert!(refusal(&json!(["input", "text", false, false, true, false])).is_some());
        assert!(refusal(&json!(["input", "text", false, false, false, true])).is_some());
    }

    #[test]
    fn keys_are_parsed_alone_and_in_combination() {
        let keys = |text: &str| parse(text).unwrap();
        assert_eq!(keys("Enter"), ['\u{e007}']);
        assert_eq!(keys("é"), ['é']);
        assert_eq!(keys("+"), ['+']);
        assert_eq!(keys("ctrl++"), ['\u{e009}', '+']);
        assert_eq!(keys("Ctrl+Shift+k"), ['\u{e009}', '\u{e008}', 'k']);
        assert_eq!(keys("F12"), ['\u{e03c}']);
        for bad in ["", "F13", "Hyper", "ctrl+Hyper"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let shown = format!("{:?}", pressed(&keys("ctrl+a")));
        let order = ["Down { value: '\\u{e009}' }", "Down { value: 'a' }", "Up { value: 'a' }"];
        let places: Vec<_> = order.iter().map(|action| shown.find(action).unwrap()).collect();
        assert!(places.is_sorted(), "{shown}");
    }
}
