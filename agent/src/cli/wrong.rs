//! A wrong command line, told with a way out.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::ui;

/// Prints what is wrong and what to try; gives the exit code. Help and versions go to stdout.
pub fn tell(error: &clap::Error) -> u8 {
    let _ = error.print();
    if !error.use_stderr() {
        return 0;
    }
    if is_second_word(error) {
        ui::say("  try: quotes around a task of several words: g3 \"make the tests pass\"");
    }
    ui::say("  try: g3 --help");
    2
}

/// Whether a second word follows a task, which clap takes for a subcommand.
fn is_second_word(error: &clap::Error) -> bool {
    let before = match error.get(ContextKind::PriorArg) {
        Some(ContextValue::String(before)) => vec![before.as_str()],
        Some(ContextValue::Strings(all)) => all.iter().map(String::as_str).collect(),
        Some(_) | None => Vec::new(),
    };
    error.kind() == ErrorKind::ArgumentConflict && before.contains(&"[TASK]")
}
