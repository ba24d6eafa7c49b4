//! `g3 trust`: trusts a repository's configuration by its content.

use std::path::{Path, PathBuf};

use base::clock::Clock;
use base::config::{mcp, trust};
use base::failure::{Failure, OrFail, Result};
use clap::{Args, Subcommand};

use super::GlobalArgs;
use super::settings::{directory, sources};
use crate::ui;

/// `g3 trust …`.
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    #[command(subcommand)]
    command: Option<TrustCommand>,
    /// The repository
    #[arg(short = 'w', long, value_name = "DIR", global = true)]
    workspace: Option<PathBuf>,
    /// A file of the repository, e.g. agents/NAME.md, instead of its configuration
    #[arg(long, value_name = "FILE", global = true)]
    file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum TrustCommand {
    /// List the trusted files
    Show,
    /// Revoke the trust
    Revoke,
}

/// Runs `g3 trust …` and returns the exit code.
pub(crate) fn run(args: &TrustArgs) -> Result<u8> {
    let common = GlobalArgs { workspace: args.workspace.clone(), ..GlobalArgs::default() };
    let directory = directory(&common)?;
    let sources = sources(&common, &directory);
    let store = sources
        .trust_store()
        .ok_or_else(|| Failure::usage("no home directory").hint("set HOME"))?;
    let servers = mcp::repository_file(&directory);
    let mut files: Vec<PathBuf> = match &args.file {
        Some(file) => vec![directory.join(file)],
        None => sources.repository.into_iter().collect(),
    };
    if args.file.is_none() && mcp::is_file(&servers) {
        files.retain(|file| mcp::is_file(file) || args.command.is_some());
        files.push(servers);
    }
    let for_each_file = |action: fn(&Path, &Path) -> Result<String>| -> Result<String> {
        files.iter().map(|file| action(&store, file)).collect()
    };
    let text = match args.command {
        None => for_each_file(accept)?,
        Some(TrustCommand::Show) => show(&store)?,
        Some(TrustCommand::Revoke) => for_each_file(revoke)?,
    };
    ui::print(&text).map(|()| 0)
}

fn accept(store: &Path, file: &Path) -> Result<String> {
    let content = std::fs::read(file).map_err(|error| {
        Failure::usage(format!("cannot trust {}", file.display())).because(error)
    })?;
    let earlier = trust::last(store, file)?;
    let entry = trust::accept(store, file, &content, &Clock::from_env())?;
    let text = String::from_utf8_lossy(&content);
    let printed = base::text::printable(
        &changes(earlier.as_ref(), &text).unwrap_or_else(|| text.clone().into_owned()),
    );
    let names: String = entry
        .names
        .iter()
        .map(|(name, sha256)| {
            let known = earlier.as_ref().and_then(|earlier| earlier.names.get(name));
            let changed = match &earlier {
                Some(_) if known.is_none() => ", new",
                Some(_) if known != Some(sha256) => ", changed",
                _ => "",
            };
            format!("  with {} (sha256 {sha256}{changed})\n", name.display())
        })
        .collect();
    let copied = copied_files(file);
    Ok(format!(
        "{printed}\n{copied}trusted {} (sha256 {})\n{names}any change to it, or to a file that \
         it names, requires `g3 trust` again\n",
        file.display(),
        entry.sha256
    ))
}

/// Returns the difference from the content that was trusted before, if there is one.
fn changes(earlier: Option<&trust::TrustEntry>, text: &str) -> Option<String> {
    let earlier = earlier?;
    let content = earlier.content.as_deref().filter(|content| *content != text)?;
    let difference = tools::text_diff::difference(content, text).unified;
    Some(format!("changed since you trusted it on {}:\n{difference}", earlier.time))
}

/// Lists the untracked files that a `.worktreeinclude` matches now; studio copies them into its
/// sessions.
fn copied_files(file: &Path) -> String {
    let Some(directory) = file.parent().filter(|_| file.ends_with(".worktreeinclude")) else {
        return String::new();
    };
    let list = || -> std::result::Result<String, base::git::GitError> {
        let (_, git_dir) = base::git::discover(directory)?;
        let git = base::git::Git::at(git_dir).with_work_tree(directory);
        git.run(&["ls-files", "--others", "--ignored", "--exclude-from=.worktreeinclude"])
    };
    match list() {
        Ok(files) if files.is_empty() => "it matches no existing file\n".to_owned(),
        Ok(files) => {
            format!("it copies these files into sessions:\n{}\n", base::text::printable(&files))
        }
        Err(error) => format!("cannot list the files that it matches: {error}\n"),
    }
}

fn show(store: &Path) -> Result<String> {
    let entries = trust::show(store).or_fail(|| "cannot read what is accepted")?;
    if entries.is_empty() {
        return Ok("no trusted files\n".to_owned());
    }
    let line = |entry: &trust::TrustEntry| {
        let files = copied_files(&entry.path);
        format!("{}  {}  {}\n{files}", &entry.sha256[..12], entry.time, entry.path.display())
    };
    Ok(entries.iter().map(line).collect())
}

fn revoke(store: &Path, file: &Path) -> Result<String> {
    let revoked = trust::revoke(store, file)?;
    let count = revoked.len();
    Ok(match count {
        0 => format!("{} was not trusted\n", file.display()),
        _ => format!("{} is no longer trusted ({count} revoked)\n", file.display()),
    })
}
