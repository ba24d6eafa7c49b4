//! Names of keys, and blocked key combinations.

use base::failure::{Failure, Result};
use enigo::Key;

/// Keys and their names; a single character is a key too.
const NAMES: &[(Key, &[&str])] = &[
    (Key::Control, &["ctrl", "control", "ctl"]),
    (Key::Shift, &["shift"]),
    (Key::Alt, &["alt", "option", "opt"]),
    (Key::Meta, &["super", "win", "windows", "meta", "cmd", "command"]),
    (Key::Return, &["enter", "return"]),
    (Key::Escape, &["esc", "escape"]),
    (Key::Tab, &["tab"]),
    (Key::Space, &["space", "spacebar"]),
    (Key::Backspace, &["backspace", "back_space"]),
    (Key::Delete, &["delete", "del"]),
    #[cfg(target_os = "linux")]
    (Key::Insert, &["insert", "ins"]),
    (Key::Home, &["home"]),
    (Key::End, &["end"]),
    (Key::PageUp, &["page_up", "pageup", "pgup", "prior"]),
    (Key::PageDown, &["page_down", "pagedown", "pgdn", "pgdown", "next"]),
    (Key::UpArrow, &["up", "arrow_up", "arrowup", "up_arrow"]),
    (Key::DownArrow, &["down", "arrow_down", "arrowdown", "down_arrow"]),
    (Key::LeftArrow, &["left", "arrow_left", "arrowleft", "left_arrow"]),
    (Key::RightArrow, &["right", "arrow_right", "arrowright", "right_arrow"]),
    (Key::CapsLock, &["caps_lock", "capslock"]),
    #[cfg(target_os = "linux")]
    (Key::PrintScr, &["print_screen", "printscreen", "prtsc", "print"]),
    #[cfg(target_os = "linux")]
    (Key::LMenu, &["menu", "apps"]),
    (Key::F1, &["f1"]),
    (Key::F2, &["f2"]),
    (Key::F3, &["f3"]),
    (Key::F4, &["f4"]),
    (Key::F5, &["f5"]),
    (Key::F6, &["f6"]),
    (Key::F7, &["f7"]),
    (Key::F8, &["f8"]),
    (Key::F9, &["f9"]),
    (Key::F10, &["f10"]),
    (Key::F11, &["f11"]),
    (Key::F12, &["f12"]),
    (Key::Unicode('+'), &["plus"]),
    (Key::Unicode('-'), &["minus"]),
];

/// Combinations that leave the desktop, close programs or start any. They are always rejected, even
/// if more keys are held.
const BLOCKED: &[(&str, &[Key])] = &[
    ("Win+R", &[Key::Meta, Key::Unicode('r')]),
    ("Ctrl+Alt+Delete", &[Key::Control, Key::Alt, Key::Delete]),
    ("Alt+F4", &[Key::Alt, Key::F4]),
];

/// Maximum number of keys in a combination.
const MOST: usize = 8;

/// Parses the keys of a combination. `ctrl+s` in one piece is the same as two names.
pub(crate) fn combination(names: &[String]) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    for name in names.iter().flat_map(|name| pieces(name)) {
        let key = key(name)?;
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if keys.is_empty() || keys.len() > MOST {
        return Err(Failure::usage(format!(
            "a combination has 1 to {MOST} keys, not {}",
            keys.len()
        )));
    }
    let blocked = BLOCKED
        .iter()
        .find(|(_, combination_keys)| combination_keys.iter().all(|key| keys.contains(key)));
    if let Some((name, _)) = blocked {
        return Err(Failure::refused(format!("{name} is blocked"))
            .because("it leaves the desktop, closes a program or starts any"));
    }
    Ok(keys)
}

/// Splits a text into key names; a lone `+`, or one at the end, is that key.
fn pieces(text: &str) -> Vec<&str> {
    let text = text.trim();
    if text == "+" {
        return vec![text];
    }
    match text.strip_suffix("++") {
        Some(rest) => rest.split('+').chain(["+"]).collect(),
        None => text.split('+').collect(),
    }
}

/// Returns the key of a name.
fn key(name: &str) -> Result<Key> {
    let normalized = name.trim().to_lowercase();
    let mut characters = normalized.chars();
    if let (Some(character), None) = (characters.next(), characters.next())
        && !character.is_control()
    {
        return Ok(Key::Unicode(character));
    }
    let normalized = sided(&normalized.replace([' ', '-'], "_")).to_owned();
    let known_key = NAMES.iter().find(|(_, names)| names.contains(&normalized.as_str()));
    known_key.map(|(key, _)| *key).ok_or_else(|| {
        let key_names: Vec<&str> = NAMES.iter().map(|(_, names)| names[0]).collect();
        Failure::usage(format!("unknown key `{}`", name.trim()))
            .because(format!("the keys are: {}, and every single character", key_names.join(", ")))
    })
}

/// Returns a modifier without its side, since left and right are treated the same.
fn sided(name: &str) -> &str {
    let without_side = name.strip_suffix("_l").or_else(|| name.strip_suffix("_r"));
    let without_side =
        without_side.or_else(|| name.strip_suffix("_left")).or_else(|| name.strip_suffix("_right"));
    let without_side =
        without_side.or_else(|| name.strip_prefix("left_")).or_else(|| name.strip_prefix("right_"));
    match without_side {
        Some(without_side) if NAMES[..4].iter().any(|(_, names)| names.contains(&without_side)) => {
            without_side
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&str]) -> Result<Vec<Key>> {
        combination(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn keys_have_several_names() {
        let same = |a: &[&str], b: &[&str]| assert_eq!(of(a).unwrap(), of(b).unwrap(), "{a:?}");
        same(&["Control", "S"], &["ctrl+s"]);
        same(&["PgDn"], &["page down"]);
        same(&["Page-Down"], &["page_down"]);
        same(&["Return"], &[" enter "]);
        same(&["left ctrl", "ctrl_l", "a"], &["ctrl", "a"]);
        same(&["ctrl++"], &["ctrl", "plus"]);
        same(&["+"], &["plus"]);
        same(&["cmd"], &["Windows"]);
    }

    #[test]
    fn an_unknown_key_is_answered_with_all_names() {
        let failure = of(&["ctrl", "hyperspace"]).unwrap_err();
        let words = failure.sentence();
        assert!(words.contains("`hyperspace`") && words.contains("page_down"), "{words}");
        assert!(of(&[]).is_err() && of(&[""]).is_err() && of(&["ctrl+"]).is_err());
        assert!(of(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]).is_err());
    }

    #[test]
    fn blocked_combinations_are_rejected_in_every_spelling() {
        for names in [
            &["win", "r"][..],
            &["Super+R"],
            &["r", "META"],
            &["command_left", " R "],
            &["ctrl", "alt", "del"],
            &["Delete", "ALT", "Control"],
            &["ctrl+alt+delete"],
            &["alt+f4"],
            &["F4", "Option"],
            &["alt_r", "f4"],
            &["alt", "f4", "shift"],
            &["shift+super+r"],
        ] {
            let failure = of(names).unwrap_err();
            assert!(failure.what.contains("is blocked"), "{names:?}: {failure}");
        }
        for names in [&["alt", "f5"][..], &["ctrl", "r"], &["ctrl", "alt", "t"], &["super"]] {
            assert!(of(names).is_ok(), "{names:?}");
        }
    }
}
