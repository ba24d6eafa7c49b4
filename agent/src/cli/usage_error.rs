//! Reports an invalid command line with suggestions.

use base::failure::Failure;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Cli;
use crate::ui;

/// Prints the error and its hints, and returns the exit code. Help and version go to stdout.
pub(crate) fn report(error: &clap::Error) -> u8 {
    let _ = error.print();
    if !error.use_stderr() {
        return 0;
    }
    if let Some(command) = first_word().and_then(|word| nearest(&word)) {
        ui::say(&format!("  try: {command}"));
    } else if is_second_word(error) {
        ui::say("  try: quote a task of several words: g3 \"make the tests pass\"");
    }
    ui::say("  try: g3 --help");
    2
}

/// Returns whether a second word follows a task, which clap takes for a subcommand.
fn is_second_word(error: &clap::Error) -> bool {
    let prior = match error.get(ContextKind::PriorArg) {
        Some(ContextValue::String(prior)) => vec![prior.as_str()],
        Some(ContextValue::Strings(all)) => all.iter().map(String::as_str).collect(),
        Some(_) | None => Vec::new(),
    };
    error.kind() == ErrorKind::ArgumentConflict && prior.contains(&"[TASK]")
}

/// Returns the first word of the command line, unless it is a flag.
fn first_word() -> Option<String> {
    std::env::args().nth(1).filter(|word| !word.starts_with('-'))
}

/// Returns whether a task is a single word that looks like a command or a flag; `--` disables this.
pub(crate) fn is_misspelled_command(task: &str) -> bool {
    let has_separator = std::env::args().any(|arg| arg == "--");
    !has_separator && nearest(task).is_some()
}

/// Returns the error for such a task.
pub(crate) fn unknown_command(task: &str) -> Failure {
    let failure = Failure::usage(format!("no such command: `{task}`"));
    let failure = match nearest(task) {
        Some(command) => failure.hint(command),
        None => failure,
    };
    failure.hint(format!("to run it as a task: g3 -- {task}"))
}

/// Returns the command or flag that a word equals or misspells.
fn nearest(word: &str) -> Option<String> {
    let normalized = word.trim().to_lowercase().replace('_', "-");
    if normalized.contains(char::is_whitespace) {
        return None;
    }
    let cli = Cli::command();
    let commands = cli.get_subcommands().map(|it| (it.get_name().to_owned(), String::new()));
    let flags = cli.get_arguments().filter_map(|it| Some((it.get_long()?.to_owned(), "--".into())));
    let similar = commands.chain(flags).filter(|(name, _)| is_near(&normalized, name));
    let best = similar.min_by_key(|(name, _)| strsim::damerau_levenshtein(&normalized, name));
    best.map(|(name, dashes)| format!("g3 {dashes}{name}"))
}

/// Returns whether a word equals a name, or misspells it: one edit from 4 letters, two from 9.
fn is_near(word: &str, name: &str) -> bool {
    let max_distance = match word.len().min(name.len()) {
        0..=3 => 0,
        4..=8 => 1,
        _ => 2,
    };
    strsim::damerau_levenshtein(word, name) <= max_distance
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelled_command_is_distinguished_from_a_task() {
        for (word, command) in [
            ("resume", "g3 --resume"),
            ("chat", "g3 --chat"),
            ("Resume", "g3 --resume"),
            ("sesions", "g3 sessions"),
            ("session", "g3 sessions"),
            ("modle", "g3 model"),
            ("autonomus", "g3 --autonomous"),
            ("list-agents", "g3 --list-agents"),
            ("new_session", "g3 --new-session"),
            ("acp", "g3 acp"),
        ] {
            assert_eq!(nearest(word).as_deref(), Some(command), "{word}");
        }
        for task in [
            "fix",
            "test",
            "hello",
            "refactor",
            "lint",
            "commit",
            "begin",
            "go",
            "ask",
            "chat a bit",
        ] {
            assert_eq!(nearest(task), None, "{task}");
        }
    }
}
