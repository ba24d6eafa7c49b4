//! `studio man`: the man pages, made from the command line's definition.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use base::failure::{Failure, OrFail, Result};
use base::process::{Command, Stream};

use crate::report;
use crate::report::man;

/// The command line of `man`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The command whose page is shown; studio's own page by default
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write all pages to this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub write: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(args: &Args, mut studio: clap::Command) -> Result<u8> {
    studio = studio.disable_help_subcommand(true);
    studio.build();
    if let Some(directory) = &args.write {
        return write_all(&studio, directory);
    }
    let page = find(&studio, &args.command)?;
    let text = man::page(page);
    if std::io::stdout().is_terminal() && base::process::find_program("man").is_some() {
        return show(page, &text);
    }
    report::out(text.trim_end());
    Ok(0)
}

/// Finds a command by its words, e.g. `config show`.
fn find<'c>(studio: &'c clap::Command, words: &[String]) -> Result<&'c clap::Command> {
    let unknown = || {
        Failure::usage(format!("no such command: `studio {}`", words.join(" ")))
            .hint("studio --help")
    };
    words.iter().try_fold(studio, |command, word| command.find_subcommand(word).ok_or_else(unknown))
}

/// Shows a page with `man`.
fn show(command: &clap::Command, text: &str) -> Result<u8> {
    let directory = tempfile::tempdir().or_fail(|| "cannot create a temporary directory")?;
    let file = directory.path().join(man::file_name(command));
    std::fs::write(&file, text).or_fail(|| format!("cannot write {}", file.display()))?;
    let viewer = Command::new("man", directory.path())
        .arg(&file)
        .in_parent_group()
        .stdin(Stream::Inherit)
        .stdout(Stream::Inherit)
        .stderr(Stream::Inherit);
    let mut running = viewer.spawn().or_fail(|| "cannot start `man`")?;
    running.wait_until(None).or_fail(|| "cannot wait for `man`")?;
    Ok(0)
}

/// Writes the pages of all commands.
fn write_all(studio: &clap::Command, directory: &Path) -> Result<u8> {
    let fail = || format!("cannot write man pages to {}", directory.display());
    std::fs::create_dir_all(directory).or_fail(fail)?;
    let mut written = 0;
    let mut pending = vec![studio];
    while let Some(command) = pending.pop() {
        let text = man::page(command);
        let path = directory.join(man::file_name(command));
        base::files::replace(&path, text.as_bytes()).or_fail(fail)?;
        written += 1;
        pending.extend(command.get_subcommands().filter(|command| !command.is_hide_set()));
    }
    report::say(&format!("wrote {written} man pages to {}", directory.display()));
    Ok(0)
}
