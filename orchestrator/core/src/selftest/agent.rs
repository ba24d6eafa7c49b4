//! The scripted agent of the self-test: the hidden command `studio __scripted-agent PROMPT`. It
//! speaks the simplest agent protocol (a command that runs once per turn), and uses no model.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};

use base::failure::{OrFail, Result};
use base::process::{Command, Output, OutputLimits};

/// The hidden command.
pub(crate) const COMMAND: &str = "__scripted-agent";

/// The file that each task changes, and the number of its lines.
pub(crate) const SHARED: &str = "shared";
pub(crate) const SHARED_LINES: usize = 8;

/// The directory of the submodule, which some repositories have.
pub(crate) const MODULE: &str = "module";

/// Runs the agent if the arguments are its own.
pub fn main(mut args: impl Iterator<Item = OsString>) -> Option<Result<()>> {
    if args.next()? != COMMAND {
        return None;
    }
    let prompt = args.next()?.into_string().ok()?;
    Some(work(&prompt).or_fail(|| "the scripted agent failed"))
}

/// Commits one file, a line of `shared`, so that some tasks conflict, and a change of another kind
/// ([`reshape`]), and leaves another file uncommitted; the files are named after the last word of the
/// prompt. It overwrites nothing that is not committed, so that whatever is lost is not lost by it.
fn work(prompt: &str) -> io::Result<()> {
    let word = prompt.split_whitespace().next_back().unwrap_or("none");
    let name: String = word.chars().filter(char::is_ascii_alphanumeric).collect();
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    let number = digits.parse::<usize>().unwrap_or(0);
    if is_committed(SHARED)? {
        let shared = fs::read_to_string(SHARED)?;
        let mut lines: Vec<&str> = shared.lines().collect();
        if let Some(line) = lines.get_mut(number % SHARED_LINES) {
            *line = &name;
        }
        fs::write(SHARED, lines.join("\n") + "\n")?;
    }
    reshape(number, &name)?;
    write_new(&format!("{name}-committed"), &format!("committed by the agent: {prompt}\n"))?;
    succeed(&["add", "-A"])?;
    succeed(&["commit", "-q", "-m", &format!("Add {name}")])?;
    write_new(&format!("{name}-open"), &format!("left open by the agent: {prompt}\n"))
}

/// Deletes, moves or replaces committed files, changes modes or links, or commits in a submodule, as
/// the number says.
fn reshape(number: usize, name: &str) -> io::Result<()> {
    let path = ["tree", "tree/two", "tree/one", "tool", "link", MODULE][number % 6];
    if !is_committed(path)? || fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    let is_directory = fs::symlink_metadata(path)?.is_dir();
    match path {
        "tree" if is_directory => {
            fs::remove_dir_all(path)?;
            fs::write(path, format!("{name}\n"))
        }
        "tree" => {
            fs::remove_file(path)?;
            fs::create_dir(path)?;
            fs::write("tree/one", "one\n")?;
            fs::write("tree/two", format!("{name}\n"))
        }
        MODULE => {
            write_new(&format!("{MODULE}/{name}"), "in a submodule\n")?;
            succeed(&["-C", MODULE, "add", "-A"])?;
            succeed(&["-C", MODULE, "commit", "-q", "-m", name])
        }
        "tree/two" => fs::remove_file(path),
        "tree/one" => fs::rename(path, format!("one-{name}")),
        "tool" => {
            let mode = fs::metadata(path)?.permissions().mode() ^ 0o111;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
        }
        _ => {
            fs::remove_file(path)?;
            symlink(format!("{name}-committed"), path)
        }
    }
}

/// Returns whether everything at a path is in the last commit.
fn is_committed(path: &str) -> io::Result<bool> {
    let status = git(&["status", "--porcelain", "--ignored", "--", path])?;
    Ok(status.ok() && status.text().trim().is_empty())
}

/// Runs git; a commit of nothing is not an error.
fn succeed(args: &[&str]) -> io::Result<()> {
    let output = git(args)?;
    let is_repeated = args.contains(&"commit") && output.text().contains("nothing");
    if output.ok() || is_repeated {
        return Ok(());
    }
    Err(io::Error::other(format!("git {}: {}", args.join(" "), output.error_text())))
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
