//! The parts of Markdown that plans consist of: headings, items, checkboxes.

/// A line of a document that is not part of a code block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'t> {
    /// The number, from 1.
    pub number: usize,
    /// The number of bytes of its indentation.
    pub indent: usize,
    /// The text without indentation.
    pub text: &'t str,
}

/// Returns the lines outside of code blocks and HTML comments.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let (mut fence, mut commented) = (None::<&str>, false);
    text.lines().enumerate().filter_map(move |(index, line)| {
        let text = line.trim();
        if let Some(open) = fence {
            if text.starts_with(open) {
                fence = None;
            }
            return None;
        }
        if commented {
            commented = !text.contains("-->");
            return None;
        }
        fence = ["```", "~~~"].into_iter().find(|mark| text.starts_with(mark));
        if fence.is_some() {
            return None;
        }
        if text.starts_with("<!--") {
            commented = !text.contains("-->");
            return None;
        }
        let indent = line.len() - line.trim_start().len();
        Some(Line { number: index + 1, indent, text })
    })
}

/// Parses a heading: its level and its text.
pub(super) fn heading(text: &str) -> Option<(usize, &str)> {
    let level = text.len() - text.trim_start_matches('#').len();
    let rest = text[level..].strip_prefix(' ')?;
    (1..=6).contains(&level).then(|| (level, rest.trim()))
}

/// Parses `- `, `* `, `1. ` at the start: the rest.
pub(super) fn item(text: &str) -> Option<&str> {
    let marked = ["- ", "* ", "+ "].iter().find_map(|mark| text.strip_prefix(mark));
    let numbered = || {
        let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let rest = rest.strip_prefix(['.', ')']).filter(|_| rest.len() < text.len())?;
        rest.strip_prefix(' ')
    };
    Some(marked.or_else(numbered)?.trim())
}

/// A checkbox at the start of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checkbox<'t> {
    /// The character in it.
    pub mark: char,
    /// Whether a star follows it, which marks an optional task of Kiro.
    pub is_optional: bool,
    /// The rest.
    pub text: &'t str,
}

/// Parses an item with a checkbox: `- [ ] text`, `- [x] text`, `- [ ]* text`.
pub(super) fn checkbox(text: &str) -> Option<Checkbox<'_>> {
    let rest = item(text)?.strip_prefix('[')?;
    let mut chars = rest.chars();
    let mark = chars.next()?;
    let rest = chars.as_str().strip_prefix(']')?;
    let (is_optional, rest) = match rest.strip_prefix('*') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let is_separated = rest.is_empty() || rest.starts_with(char::is_whitespace);
    is_separated.then(|| Checkbox { mark, is_optional, text: rest.trim() })
}

/// Returns the text without the marks of bold, italic and code.
pub(super) fn plain(text: &str) -> String {
    text.replace("**", "").replace('`', "").trim().to_owned()
}

/// Returns the text of the first heading of the first level, without a label such as `Tasks:`.
pub(super) fn title(text: &str) -> Option<String> {
    let title = lines(text).find_map(|line| heading(line.text).filter(|(level, _)| *level == 1))?.1;
    let title = title.split_once(": ").map_or(title, |(_, name)| name);
    Some(plain(title)).filter(|title| !title.is_empty())
}
