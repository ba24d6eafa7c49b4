//! Key names as models write them, and blocked combinations.

/// Names that models use, and the names that `g3-desktop` knows.
const NAMES: &[(&str, &str)] = &[
    ("control", "ctrl"),
    ("ctl", "ctrl"),
    ("lctrl", "ctrl"),
    ("rctrl", "ctrl"),
    ("option", "alt"),
    ("opt", "alt"),
    ("win", "super"),
    ("windows", "super"),
    ("meta", "super"),
    ("cmd", "super"),
    ("command", "super"),
    ("return", "enter"),
    ("esc", "escape"),
    ("del", "delete"),
    ("ins", "insert"),
    ("spacebar", "space"),
    ("pageup", "page_up"),
    ("pgup", "page_up"),
    ("pagedown", "page_down"),
    ("pgdn", "page_down"),
    ("pgdown", "page_down"),
    ("arrowup", "up"),
    ("arrowdown", "down"),
    ("arrowleft", "left"),
    ("arrowright", "right"),
    ("capslock", "caps_lock"),
    ("printscreen", "print"),
    ("prtsc", "print"),
    ("plus", "+"),
    ("minus", "-"),
];

/// Combinations that open a command prompt, end the session or close windows.
const BLOCKED: &[&[&str]] = &[&["r", "super"], &["alt", "ctrl", "delete"], &["alt", "f4"]];

/// Parses a combination such as `Ctrl + S` into keys, in order; empty for an empty text.
pub(crate) fn parse(text: &str) -> Vec<String> {
    let text = text.trim();
    let (text, has_plus) = match text.strip_suffix('+') {
        // The plus key itself: alone, or as the last key of a combination.
        Some("") => return vec!["+".to_owned()],
        Some(rest) if rest.trim_end().ends_with('+') => (rest.trim_end(), true),
        Some(_) | None => (text, false),
    };
    let names = text.split('+').map(str::trim).filter(|piece| !piece.is_empty());
    names.map(name).chain(has_plus.then(|| "+".to_owned())).collect()
}

/// Returns the name of a key that `g3-desktop` knows.
pub(crate) fn name(key: &str) -> String {
    let normalized = key.trim().to_lowercase().replace([' ', '-'], "_");
    let normalized =
        if normalized.chars().count() == 1 { key.trim().to_lowercase() } else { normalized };
    let compact = normalized.replace('_', "");
    let known_key = NAMES.iter().find(|(name, _)| *name == normalized || *name == compact);
    known_key.map_or(normalized, |(_, name)| (*name).to_owned())
}

/// Whether these keys include a blocked combination, in any order.
pub(crate) fn is_blocked(keys: &[String]) -> bool {
    let keys: Vec<String> = keys.iter().map(|key| name(key)).collect();
    let is_pressed = |expected: &&str| keys.iter().any(|key| key == expected);
    BLOCKED.iter().any(|combination| combination.iter().all(is_pressed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_one_canonical_name() {
        assert_eq!(parse("Ctrl + Shift+T"), ["ctrl", "shift", "t"]);
        assert_eq!(parse("Control+PageDown"), ["ctrl", "page_down"]);
        assert_eq!(parse("Page Up"), ["page_up"]);
        assert_eq!(parse("Return"), ["enter"]);
        assert_eq!(parse("+"), ["+"]);
        assert_eq!(parse("ctrl++"), ["ctrl", "+"]);
        assert_eq!(parse("ctrl+-"), ["ctrl", "-"]);
        assert_eq!(parse("-"), ["-"]);
        assert_eq!(parse("  "), Vec::<String>::new());
    }

    #[test]
    fn blocked_combinations_are_recognized_in_every_spelling() {
        let blocked = |text: &str| is_blocked(&parse(text));
        for text in [
            "Win+R",
            "Super+R",
            "r+meta",
            " CMD + r ",
            "Ctrl+Alt+Del",
            "Ctrl+Alt+Delete",
            "delete+control+option",
            "Alt+F4",
            "F4 + ALT",
            "Alt+Shift+F4",
        ] {
            assert!(blocked(text), "{text}");
        }
        for text in ["Ctrl+R", "Super+E", "Alt+F5", "Ctrl+Delete", "F4", "R", "Ctrl+Alt+T"] {
            assert!(!blocked(text), "{text}");
        }
    }
}
