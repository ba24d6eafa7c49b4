//! The scripted agent of the self-test: the hidden command `studio __scripted-agent PROMPT`. It
//! speaks the simplest agent protocol (a command that runs once per turn), and uses no model.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};

use base::failure::{OrFail, Result};
use base::process::{Command, Output, OutputLimits};

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
/// uncommitted; the files are named after the last word of the prompt. It overwrites nothing that is
/// not committed, so that whatever is lost is not lost by it.
fn work(prompt: &str) -> io::Result<()> {
    let word = prompt.split_whitespace().next_back().unwrap_or("none");
    let name: String = word.chars().filter(char::is_ascii_alphanumeric).collect();
    if git(&["diff", "--quiet", "HEAD", "--", "shared"])?.ok() {
        let digits: String = name.chars().filter(char::is_ascii_digit).collect();
        let number = digits.parse::<usize>().unwrap_or(0) % SHARED_LINES;
        let shared = fs::read_to_string("shared")?;
        let mut lines: Vec<&str> = shared.lines().collect();
        if let Some(line) = lines.get_mut(number) {
            *line = &name;
        }
        fs::write("shared", lines.join("\n") + "\n")?;
    }
    write_new(&format!("{name}-committed"), &format!("committed by the agent: {prompt}\n"))?;
    for args in [vec!["add", "-A"], vec!["commit", "-q", "-m", &format!("Add {name}")]] {
        let output = git(&args)?;
        let is_repeated = args[0] == "commit" && output.text().contains("nothing");
        if !output.ok() && !is_repeated {
            return Err(io::Error::other(format!("git {}: {}", args[0], output.error_text())));
        }
    }
    write_new(&format!("{name}-open"), &format!("left open by the agent: {prompt}\n"))
}

fn git(args: &[&str]) -> io::Result<Output> {
    Command::new("git", ".").args(args).output(OutputLimits::seconds(60))
}

/// Writes a file unless there is one.
fn write_new(path: &str, text: &str) -> io::Result<()> {
    match fs::File::create_new(path) {
        Ok(mut file) => file.write_all(text.as_bytes()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e),
    }
}
