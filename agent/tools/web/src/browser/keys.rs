//! Names of keys, as the driver takes them: <https://www.w3.org/TR/webdriver2/#keyboard-actions>.

use fantoccini::actions::{InputSource, KeyAction, KeyActions};

/// Keys by name, in small letters.
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
/// F1; the others follow it.
const F1: u32 = 0xe031;

/// The keys of `Enter`, `a`, `F5` or `ctrl+shift+k`, in the order in which they go down.
pub(crate) fn parse(text: &str) -> Result<Vec<char>, String> {
    // `+` by itself, or behind another one, is the key.
    let (held, last) = match text.strip_suffix('+') {
        Some(held) => (held.trim_end_matches('+'), "+"),
        None => text.rsplit_once('+').unwrap_or(("", text)),
    };
    let held = held.split('+').filter(|name| !name.trim().is_empty());
    held.chain([last]).map(key).collect()
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

/// The keys as one action: all go down, then up again in the opposite order.
pub(crate) fn pressed(keys: &[char]) -> KeyActions {
    let down = keys.iter().map(|key| KeyAction::Down { value: *key });
    let up = keys.iter().rev().map(|key| KeyAction::Up { value: *key });
    down.chain(up).fold(KeyActions::new("keyboard".to_owned()), KeyActions::then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_name_alone_and_together() {
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
