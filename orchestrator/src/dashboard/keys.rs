//! The keys of the dashboard: one table, from which the help, the footer and the key handling are
//! read.

use studio_core::overview::OverviewRow;
use studio_core::session::state::SessionState;

/// A key, as far as the dashboard distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A character.
    Char(char),
    /// A character with Ctrl.
    Ctrl(char),
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
    Enter,
    Esc,
    Tab,
    BackTab,
    Backspace,
    Delete,
}

impl Key {
    /// Returns its name for display.
    pub(crate) fn label(self) -> String {
        match self {
            Key::Char(' ') => "Space".to_owned(),
            Key::Char(c) => c.to_string(),
            Key::Ctrl(c) => format!("Ctrl-{}", c.to_ascii_uppercase()),
            Key::Up => "Up".to_owned(),
            Key::Down => "Down".to_owned(),
            Key::Left => "Left".to_owned(),
            Key::Right => "Right".to_owned(),
            Key::Home => "Home".to_owned(),
            Key::End => "End".to_owned(),
            Key::PageUp => "PgUp".to_owned(),
            Key::PageDown => "PgDn".to_owned(),
            Key::Enter => "Enter".to_owned(),
            Key::Esc => "Esc".to_owned(),
            Key::Tab => "Tab".to_owned(),
            Key::BackTab => "Shift-Tab".to_owned(),
            Key::Backspace => "Backspace".to_owned(),
            Key::Delete => "Del".to_owned(),
        }
    }
}

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Allow,
    Deny,
    AllowAlways,
    Review,
    Accept,
    Send,
    Stop,
    Resume,
    Discard,
    Undo,
    NewTask,
    PageDiff,
    Attach,
    Shell,
    Previous,
    Next,
    First,
    Last,
    Enlarge,
    NextTab,
    PreviousTab,
    Timeline,
    Diff,
    Log,
    ScrollUp,
    ScrollDown,
    Filter,
    ToggleDone,
    ToggleMouse,
    Redraw,
    Suspend,
    Help,
    Quit,
    Interrupt,
}

/// A row of the table.
pub(crate) struct Binding {
    /// The keys; the first one is shown in the footer.
    pub keys: &'static [Key],
    /// What they do.
    pub action: Action,
    /// The name in the footer; empty for keys that are only in the help.
    pub name: &'static str,
    /// The text of the help.
    pub help: &'static str,
    /// Whether it applies to the selected row, if there is one.
    pub applies: fn(Option<&OverviewRow>) -> bool,
}

const fn binding(
    keys: &'static [Key],
    action: Action,
    name: &'static str,
    help: &'static str,
    applies: fn(Option<&OverviewRow>) -> bool,
) -> Binding {
    Binding { keys, action, name, help, applies }
}

/// All keys, in the order of the help. In the footer those that apply come in the same order.
pub(crate) static BINDINGS: &[Binding] = &[
    binding(&[Key::Char('y')], Action::Allow, "allow", "allow the request", is_request),
    binding(&[Key::Char('n')], Action::Deny, "deny", "deny the request", is_request),
    binding(
        &[Key::Char('a')],
        Action::AllowAlways,
        "always",
        "allow the request, and further ones of its kind in this session; a host: in all sessions",
        is_request,
    ),
    binding(&[Key::Char('v')], Action::Review, "review", "review the changes", has_changes),
    binding(&[Key::Char('A')], Action::Accept, "accept", "land the work on its branch", is_ready),
    binding(&[Key::Char('s')], Action::Send, "send", "send a message to the agent", is_open),
    binding(
        &[Key::Char('x')],
        Action::Stop,
        "stop",
        "stop the session; its work is kept",
        is_running,
    ),
    binding(&[Key::Char('r')], Action::Resume, "resume", "resume the session", is_resumable),
    binding(
        &[Key::Char('X')],
        Action::Discard,
        "discard",
        "discard the session (asks first)",
        is_open,
    ),
    binding(
        &[Key::Char('u')],
        Action::Undo,
        "undo",
        "undo the accept or discard of the session, else the last one",
        always,
    ),
    binding(
        &[Key::Char('t')],
        Action::NewTask,
        "new task",
        "start a session: write its task in your editor",
        always,
    ),
    binding(
        &[Key::Char('d')],
        Action::PageDiff,
        "diff",
        "show the changes in the pager",
        has_changes,
    ),
    binding(
        &[Key::Char('w')],
        Action::Attach,
        "attach",
        "attach to the running session",
        is_running,
    ),
    binding(
        &[Key::Char('!')],
        Action::Shell,
        "",
        "open a shell in the session's worktree and sandbox",
        is_open,
    ),
    binding(&[Key::Char('k'), Key::Up], Action::Previous, "", "previous row", always),
    binding(&[Key::Char('j'), Key::Down], Action::Next, "", "next row", always),
    binding(&[Key::Char('g'), Key::Home], Action::First, "", "first row", always),
    binding(&[Key::Char('G'), Key::End], Action::Last, "", "last row", always),
    binding(&[Key::Enter], Action::Enlarge, "", "enlarge the preview, or reduce it", always),
    binding(&[Key::Tab, Key::Right], Action::NextTab, "", "next preview", always),
    binding(&[Key::BackTab, Key::Left], Action::PreviousTab, "", "previous preview", always),
    binding(&[Key::Char('1')], Action::Timeline, "", "preview of the timeline", always),
    binding(&[Key::Char('2')], Action::Diff, "", "preview of the changes", always),
    binding(&[Key::Char('3')], Action::Log, "", "preview of the log", always),
    binding(&[Key::PageUp, Key::Ctrl('b')], Action::ScrollUp, "", "scroll the preview up", always),
    binding(
        &[Key::PageDown, Key::Char(' '), Key::Ctrl('f')],
        Action::ScrollDown,
        "",
        "scroll the preview down",
        always,
    ),
    binding(
        &[Key::Char('/')],
        Action::Filter,
        "filter",
        "show only rows with these words; Esc shows all",
        always,
    ),
    binding(
        &[Key::Char('h')],
        Action::ToggleDone,
        "",
        "hide or show accepted and discarded sessions",
        always,
    ),
    binding(
        &[Key::Char('m')],
        Action::ToggleMouse,
        "",
        "switch the mouse off, to select text, or on",
        always,
    ),
    binding(&[Key::Ctrl('l')], Action::Redraw, "", "draw the screen again", always),
    binding(&[Key::Ctrl('z')], Action::Suspend, "", "suspend the dashboard", always),
    binding(&[Key::Char('?')], Action::Help, "help", "this help", always),
    binding(&[Key::Char('q')], Action::Quit, "quit", "quit; the sessions continue", always),
    binding(&[Key::Ctrl('c')], Action::Interrupt, "", "quit with exit code 130", always),
];

/// Returns the binding of a key.
pub(crate) fn find(key: Key) -> Option<&'static Binding> {
    BINDINGS.iter().find(|binding| binding.keys.contains(&key))
}

fn always(_: Option<&OverviewRow>) -> bool {
    true
}

fn is_request(row: Option<&OverviewRow>) -> bool {
    row.is_some_and(|row| row.key.request.is_some())
}

fn is_ready(row: Option<&OverviewRow>) -> bool {
    row.is_some_and(|row| row.state == SessionState::Ready)
}

fn is_open(row: Option<&OverviewRow>) -> bool {
    row.is_some_and(|row| !row.state.is_over() && row.state != SessionState::Landing)
}

fn is_running(row: Option<&OverviewRow>) -> bool {
    row.is_some_and(|row| row.state.is_active() || row.state == SessionState::Queued)
}

fn is_resumable(row: Option<&OverviewRow>) -> bool {
    row.is_some_and(|row| {
        matches!(
            row.state,
            SessionState::Crashed
                | SessionState::Stopped
                | SessionState::Failed { .. }
                | SessionState::Empty
                | SessionState::Queued
        )
    })
}

fn has_changes(row: Option<&OverviewRow>) -> bool {
    is_open(row) && row.is_some_and(|row| row.changes.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_meaning_and_every_action_a_help_text() {
        let mut keys = Vec::new();
        for binding in BINDINGS {
            assert!(!binding.help.is_empty() && !binding.keys.is_empty());
            for key in binding.keys {
                assert!(!keys.contains(key), "{} has two meanings", key.label());
                keys.push(*key);
            }
        }
    }
}
