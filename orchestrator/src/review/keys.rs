//! The keys of a review: one table, from which the help and the footer are made.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewCommand {
    /// Moves by hunks.
    NextHunk,
    /// Moves by hunks, backwards.
    PreviousHunk,
    /// Moves to the next file.
    NextFile,
    /// Moves to the previous file.
    PreviousFile,
    /// Moves by lines.
    Down,
    /// Moves by lines, backwards.
    Up,
    /// Moves by screens.
    PageDown,
    /// Moves by screens, backwards.
    PageUp,
    /// Moves to the first line.
    First,
    /// Moves to the last line.
    Last,
    /// Shows what is to the left of long lines.
    Left,
    /// Shows what is to the right of long lines.
    Right,
    /// Accepts the hunk.
    Accept,
    /// Returns the hunk.
    Return,
    /// Removes the decision.
    Undecide,
    /// Writes a comment in place.
    Comment,
    /// Writes a comment in the editor.
    CommentInEditor,
    /// Edits a comment.
    EditComment,
    /// Removes a comment.
    DeleteComment,
    /// Starts or ends a selection of lines.
    Select,
    /// Folds or unfolds the hunk.
    Fold,
    /// Shows both sides beside each other, or not.
    SideBySide,
    /// Opens the next session.
    NextSession,
    /// Opens the previous session.
    PreviousSession,
    /// Sends comments and returned hunks.
    Send,
    /// Lands the accepted hunks.
    LandAccepted,
    /// Lands the session.
    LandSession,
    /// Shows the help.
    Help,
    /// Ends the review.
    Quit,
}

/// A key and its command.
pub struct KeyBinding {
    /// The key.
    pub code: KeyCode,
    /// Its name.
    pub label: &'static str,
    /// What it does.
    pub command: ReviewCommand,
    /// The line of the help.
    pub help: &'static str,
    /// The word in the footer, if it is shown there.
    pub footer: Option<&'static str>,
}

const fn key(
    code: KeyCode,
    label: &'static str,
    command: ReviewCommand,
    help: &'static str,
    footer: Option<&'static str>,
) -> KeyBinding {
    KeyBinding { code, label, command, help, footer }
}

/// All keys.
pub static KEYS: &[KeyBinding] = {
    use ReviewCommand as C;
    &[
        key(KeyCode::Char('j'), "j", C::NextHunk, "next hunk", Some("hunk")),
        key(KeyCode::Char('k'), "k", C::PreviousHunk, "previous hunk", None),
        key(KeyCode::Char('J'), "J", C::NextFile, "next file", None),
        key(KeyCode::Char('K'), "K", C::PreviousFile, "previous file", None),
        key(KeyCode::Down, "down", C::Down, "next line", None),
        key(KeyCode::Up, "up", C::Up, "previous line", None),
        key(KeyCode::PageDown, "PgDn", C::PageDown, "next page", None),
        key(KeyCode::PageUp, "PgUp", C::PageUp, "previous page", None),
        key(KeyCode::Char(' '), "space", C::PageDown, "next page", None),
        key(KeyCode::Home, "Home", C::First, "start", None),
        key(KeyCode::End, "End", C::Last, "end", None),
        key(KeyCode::Left, "left", C::Left, "left part of long lines", None),
        key(KeyCode::Right, "right", C::Right, "right part of long lines", None),
        key(KeyCode::Char('a'), "a", C::Accept, "accept the hunk", Some("accept")),
        key(KeyCode::Char('r'), "r", C::Return, "return the hunk to the agent", Some("return")),
        key(KeyCode::Char('u'), "u", C::Undecide, "remove the decision", None),
        key(KeyCode::Char('c'), "c", C::Comment, "comment on the line or hunk", Some("comment")),
        key(KeyCode::Char('C'), "C", C::CommentInEditor, "comment in your editor", None),
        key(KeyCode::Char('v'), "v", C::Select, "select lines for a comment", None),
        key(KeyCode::Char('e'), "e", C::EditComment, "edit the comment", None),
        key(KeyCode::Char('d'), "d", C::DeleteComment, "delete the comment", None),
        key(KeyCode::Char('f'), "f", C::Fold, "fold or unfold the hunk", Some("fold")),
        key(KeyCode::Char('s'), "s", C::SideBySide, "side by side or unified", None),
        key(KeyCode::Char('n'), "n", C::NextSession, "next session", Some("next")),
        key(KeyCode::Char('p'), "p", C::PreviousSession, "previous session", None),
        key(KeyCode::Char('S'), "S", C::Send, "send comments and returned hunks", Some("send")),
        key(KeyCode::Char('L'), "L", C::LandAccepted, "land the accepted hunks", Some("land")),
        key(KeyCode::Char('A'), "A", C::LandSession, "land the whole session", Some("land all")),
        key(KeyCode::Char('?'), "?", C::Help, "this help", Some("help")),
        key(KeyCode::Char('q'), "q", C::Quit, "quit; everything is saved", Some("quit")),
    ]
};

/// Returns the command of a key.
pub fn command(event: KeyEvent) -> Option<ReviewCommand> {
    if event.modifiers.contains(KeyModifiers::CONTROL) {
        return (event.code == KeyCode::Char('c')).then_some(ReviewCommand::Quit);
    }
    KEYS.iter().find(|key| key.code == event.code).map(|key| key.command)
}

/// Returns the footer in this many columns: the keys that fit.
pub fn footer(columns: usize) -> String {
    let mut text = String::new();
    // The way out and the help are always there.
    let is_last =
        |key: &&KeyBinding| matches!(key.command, ReviewCommand::Help | ReviewCommand::Quit);
    let part = |key: &KeyBinding| key.footer.map(|word| format!("{} {word}  ", key.label));
    let end: String = KEYS.iter().filter(is_last).filter_map(part).collect();
    for part in KEYS.iter().filter(|key| !is_last(key)).filter_map(part) {
        if text.len() + part.len() + end.len() <= columns + 2 {
            text.push_str(&part);
        }
    }
    (text + &end).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_one_command_and_the_footer_fits() {
        for (index, key) in KEYS.iter().enumerate() {
            let first = KEYS.iter().position(|other| other.code == key.code);
            assert_eq!(first, Some(index), "{} is there twice", key.label);
        }
        for columns in [40, 60, 80, 200] {
            let footer = footer(columns);
            assert!(footer.len() <= columns && footer.contains("q quit"), "{footer}");
        }
        assert_eq!(
            footer(80),
            "j hunk  a accept  r return  c comment  f fold  n next  S send  ? help  q quit"
        );
    }
}
