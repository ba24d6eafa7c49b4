//! Yes/no questions.

use std::io::{BufRead, IsTerminal};

use crate::report;

/// Asks a question; end of input counts as no. Returns `None` in a non-interactive run.
pub(crate) fn yes(question: &str) -> Option<bool> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    report::say(&format!("{question} [y/N]"));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    Some(read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes"))
}
