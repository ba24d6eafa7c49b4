//! Questions that are answered with yes or no.

use std::io::{BufRead, IsTerminal};

use crate::report;

/// Returns what the user says; no at the end of input. `None` where nobody can be asked.
pub(crate) fn yes(question: &str) -> Option<bool> {
    if !std::io::stdin().is_terminal() {
        return None;
    }
    report::say(&format!("{question} [y/N]"));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    Some(read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes"))
}
