//! Where the lines of a comment are now.

use serde::Serialize;

/// The place of a comment in the current work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum CommentPlacement {
    /// Its lines are where they were.
    Current,
    /// Its lines are elsewhere in the file.
    Moved {
        /// The first of them.
        first: u32,
    },
    /// Its lines were changed or removed. The comment is kept, and still sent.
    Stale,
}

/// Finds the lines of a comment in the current content of its file: at their place, else at the
/// nearest one. `first` starts at 1; a comment on a whole file has no lines.
pub fn locate(content: Option<&[String]>, first: u32, snippet: &[String]) -> CommentPlacement {
    let Some(content) = content else { return CommentPlacement::Stale };
    if snippet.is_empty() {
        return CommentPlacement::Current;
    }
    let index = (first as usize).saturating_sub(1);
    if content.get(index..index + snippet.len()) == Some(snippet) {
        return CommentPlacement::Current;
    }
    // Lines without a letter or a digit, such as `}`, are everywhere.
    if !snippet.iter().any(|line| line.chars().any(char::is_alphanumeric)) {
        return CommentPlacement::Stale;
    }
    let found = content.windows(snippet.len()).enumerate().filter(|(_, lines)| *lines == snippet);
    let nearest = found.map(|(found, _)| found).min_by_key(|found| found.abs_diff(index));
    match nearest.and_then(|index| u32::try_from(index + 1).ok()) {
        Some(first) => CommentPlacement::Moved { first },
        None => CommentPlacement::Stale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_comment_follows_its_lines_and_is_stale_without_them() {
        let content = lines("a b c d b } c");
        let place = |first, snippet: &str| locate(Some(&content), first, &lines(snippet));
        assert_eq!(place(2, "b c"), CommentPlacement::Current);
        assert_eq!(place(1, "b c"), CommentPlacement::Moved { first: 2 });
        assert_eq!(place(6, "b"), CommentPlacement::Moved { first: 5 }, "the nearest one");
        assert_eq!(place(1, "b d"), CommentPlacement::Stale);
        assert_eq!(place(1, "}"), CommentPlacement::Stale, "such a line identifies nothing");
        assert_eq!(place(900, "c"), CommentPlacement::Moved { first: 7 });
        assert_eq!(locate(None, 1, &lines("a")), CommentPlacement::Stale);
        assert_eq!(locate(Some(&content), 0, &[]), CommentPlacement::Current);
    }
}
