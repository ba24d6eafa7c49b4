//! Yes/no questions.

use std::io::{BufRead, IsTerminal};

use crate::report;

/// Asks a question; end of input counts as no. Returns `None` in a non-interactive run.
pub(crate) fn ask(question: &str) -> Option<bool> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    report::say(&format!("{question} [y/N]"));
    let mut answer = String::new();
    let result = std::io::stdin().lock().read_line(&mut answer);
    Some(result.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes"))
}
