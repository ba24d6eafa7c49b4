//! Fuzz target: the parser of shell lines, and the judgement of them.

use std::path::Path;

use base::config::agent::GateAction;

use crate::shell::judge;
use crate::shell_parse::parse_line;

/// Whatever follows on the next lines, a command that destroys the machine is denied and one that
/// writes outside asks; nothing is allowed without a sandbox by its text alone.
pub fn shell(data: &[u8]) {
    let text = String::from_utf8_lossy(data).replace('\0', " ");
    let parsed = parse_line(&text);
    let length: usize = parsed.commands.iter().map(|command| command.text.len()).sum();
    assert!(length <= 64 * text.len() + 64, "{length} bytes of {}", text.len());
    let (root, elsewhere) = (Path::new("/nonexistent/root"), Path::new("/nonexistent/other"));
    let judged = |line: &str| judge(line, root, root, false).action;
    assert_ne!(judged(&text), GateAction::Box);
    assert_ne!(judge(&text, elsewhere, root, false).action, GateAction::Allow);
    assert_eq!(judged(&format!("rm -rf /\n{text}")), GateAction::Deny);
    assert_ne!(judged(&format!("echo x > /nonexistent/file\n{text}")), GateAction::Allow);
}

#[cfg(test)]
mod short_runs {
    #[test]
    fn what_follows_a_command_does_not_hide_it() {
        short_fuzz::run_times("shell", 400, super::shell);
    }
}
