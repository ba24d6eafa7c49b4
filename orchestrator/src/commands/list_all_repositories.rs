//! `studio list --all-repositories`: the sessions of all repositories in which studio has sessions.

use std::path::PathBuf;

use base::failure::Result;
use serde_json::{Value, json};

use crate::commands::all_repositories::{self, KnownRepository};
use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::list::SessionList;
use crate::report;

/// The sessions of a repository, or why they cannot be read.
struct RepositorySessions {
    directory: PathBuf,
    sessions: Result<(CommandContext, SessionList)>,
}

impl RepositorySessions {
    fn read(repository: KnownRepository, all: bool) -> RepositorySessions {
        let list = |context| SessionList::read(&context, all).map(|list| (context, list));
        RepositorySessions {
            directory: repository.directory,
            sessions: repository.context.and_then(list),
        }
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
    let repositories =
        all_repositories::open(common).map(|found| RepositorySessions::read(found, all));
    let repositories: Vec<RepositorySessions> =
        repositories.filter(|repository| !repository.is_empty()).collect();
    if common.json {
        let repositories: Vec<Value> = repositories.iter().map(RepositorySessions::json).collect();
        report::json_line(&json!({"schema": 1, "repositories": repositories}));
        return Ok(0);
    }
    let mut separator = "";
    for repository in &repositories {
        match &repository.sessions {
            Ok((context, sessions)) => {
                let cd = all_repositories::change_directory(&repository.directory);
                report::out(&format!("{separator}{cd}"));
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
