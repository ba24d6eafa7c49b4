//! `studio list --all-repositories`: the sessions of all repositories in which studio has sessions.

use std::path::{Path, PathBuf};

use base::failure::Result;
use base::known_repositories;
use base::text::printable;
use serde_json::{Value, json};

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::list::SessionList;
use crate::report;

/// A repository with its sessions, or why they cannot be read.
struct KnownRepository {
    directory: PathBuf,
    sessions: Result<(CommandContext, SessionList)>,
}

impl KnownRepository {
    /// Reads the repository with this git directory; `None` if it is not one any more, and git finds
    /// another one around it.
    fn read(common: &CommonArgs, git_dir: &Path, all: bool) -> Option<KnownRepository> {
        let directory = main_checkout(git_dir);
        let args = CommonArgs { directory: Some(directory.clone()), ..common.clone() };
        let context = CommandContext::open(&args);
        if context.as_ref().is_ok_and(|context| context.repository.common_dir != git_dir) {
            return None;
        }
        let sessions = context
            .and_then(|context| SessionList::read(&context, all).map(|list| (context, list)));
        Some(KnownRepository { directory, sessions })
    }

    fn is_empty(&self) -> bool {
        self.sessions.as_ref().is_ok_and(|(_, sessions)| sessions.is_empty())
    }

    /// Returns what `list --json` says of the repository, with its directory, or with the error.
    fn json(&self) -> Value {
        let directory = &self.directory;
        match &self.sessions {
            Ok((_, sessions)) => {
                let mut json = sessions.json();
                json["directory"] = json!(directory);
                json
            }
            Err(failure) => json!({"directory": directory, "why": failure.sentence()}),
        }
    }
}

/// Runs the command: one table for each repository, under the command that goes there.
pub(crate) fn run(common: &CommonArgs, all: bool) -> Result<u8> {
    let git_dirs = known_repositories::list().into_iter();
    let repositories = git_dirs.filter_map(|git_dir| KnownRepository::read(common, &git_dir, all));
    let repositories: Vec<KnownRepository> =
        repositories.filter(|repository| !repository.is_empty()).collect();
    if common.json {
        let repositories: Vec<Value> = repositories.iter().map(KnownRepository::json).collect();
        report::json_line(&json!({"schema": 1, "repositories": repositories}));
        return Ok(0);
    }
    let mut separator = "";
    for repository in &repositories {
        match &repository.sessions {
            Ok((context, sessions)) => {
                report::out(&format!("{separator}{}", change_directory(&repository.directory)));
                separator = "\n";
                sessions.print(context)?;
            }
            Err(failure) => report::say(&failure.sentence()),
        }
    }
    if repositories.is_empty() {
        report::say("no open sessions in any repository");
    }
    Ok(0)
}

/// Returns the shell's command for going to a directory.
fn change_directory(directory: &Path) -> String {
    let path = printable(&directory.to_string_lossy());
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@%".contains(c);
    match path.chars().all(is_plain) {
        true => format!("cd {path}"),
        false => format!("cd '{}'", path.replace('\'', r"'\''")),
    }
}

/// Returns the directory of the repository's main checkout, for a bare one that of the repository.
fn main_checkout(git_dir: &Path) -> PathBuf {
    let is_inside = git_dir.file_name().is_some_and(|name| name == ".git");
    git_dir.parent().filter(|_| is_inside).unwrap_or(git_dir).to_owned()
}
