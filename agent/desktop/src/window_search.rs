//! Finds the window that a caller refers to.

use base::desktop_protocol::WindowInfo;
use base::failure::{Failure, Result};

/// Returns the index of the window with this id, else of the first one whose program or title
/// contains this text.
pub(crate) fn position<'a>(
    windows: impl Iterator<Item = &'a WindowInfo> + Clone,
    query: &str,
) -> Result<usize> {
    let number = number(query).map(|number| number.to_string());
    let query_text = query.trim().to_lowercase();
    let is_named = |window: &WindowInfo| {
        [&window.app, &window.title].iter().any(|name| name.to_lowercase().contains(&query_text))
    };
    let by_number = windows.clone().position(|window| Some(&window.id) == number.as_ref());
    by_number.or_else(|| windows.clone().position(is_named)).ok_or_else(|| {
        let open = windows
            .take(15)
            .map(|window| format!("{} ({}, id {})", window.title, window.app, window.id));
        let open = open.collect::<Vec<_>>().join("; ");
        let not_found =
            if open.is_empty() { "no window is open".to_owned() } else { format!("open: {open}") };
        Failure::not_found(format!("no open window is called `{query}`")).because(not_found)
    })
}

/// Parses a window id, decimal or hexadecimal as in X programs.
fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_id_is_decimal_or_hexadecimal() {
        assert_eq!(number("0x1400003"), Some(0x0140_0003));
        assert_eq!(number(" 20971523 "), Some(20_971_523));
        assert_eq!(number("2048 the game"), None);
    }
}
