//! The scripted agent of the self-test: the hidden command `studio __scripted-agent PROMPT`. It
//! speaks the simplest agent protocol (a command that runs once per turn), and uses no model.

use std::ffi::OsString;
use std::fs;
use std::io;

use base::failure::{OrFail, Result};
use base::process::{Command, OutputLimits};

/// The hidden command.
pub(crate) const COMMAND: &str = "__scripted-agent";

/// The number of lines of the file `shared`, which each task changes.
pub(crate) const SHARED_LINES: usize = 8;

/// Runs the agent if the arguments are its own.
pub fn main(mut args: impl Iterator<Item = OsString>) -> Option<Result<()>> {
    if args.next()? != COMMAND {
        return None;
    }
    let prompt = args.next()?.into_string().ok()?;
    Some(work(&prompt).or_fail(|| "the scripted agent failed"))
}

/// Commits one file and a line of `shared`, so that some tasks conflict, and leaves another file
/// uncommitted; the files are named after the last word of the prompt. A repetition changes nothing.
fn work(prompt: &str) -> io::Result<()> {
    let name: String = prompt
        .split_whitespace()
        .next_back()
        .unwrap_or("none")
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    let number = digits.parse::<usize>().unwrap_or(0) % SHARED_LINES;
    let shared = fs::read_to_string("shared")?;
    let mut lines: Vec<&str> = shared.lines().collect();
    if let Some(line) = lines.get_mut(number) {
        *line = &name;
    }
    fs::write("shared", lines.join("\n") + "\n")?;
    fs::write(format!("{name}-committed"), format!("committed by the agent: {prompt}\n"))?;
    for args in [vec!["add", "-A"], vec!["commit", "-q", "-m", &format!("Add {name}")]] {
        let output = Command::new("git", ".").args(&args).output(OutputLimits::seconds(60))?;
        let is_repeated = args[0] == "commit" && output.text().contains("nothing");
        if !output.ok() && !is_repeated {
            return Err(io::Error::other(format!("git {}: {}", args[0], output.error_text())));
        }
    }
    fs::write(format!("{name}-open"), format!("left open by the agent: {prompt}\n"))
}
