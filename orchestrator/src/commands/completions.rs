//! `studio completions`: prints a shell completion script, and answers its calls: with commands and
//! flags, and with the sessions, agents, personas, branches and operations of the
//! repository.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use base::config::{Config, ConfigSources};
use base::failure::{OrFail, Result};
use base::process::{OutputLimits, Stream};
use clap::Command;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use serde_json::Value;
use studio_core::launch::registry;
use studio_core::project::Project;
use studio_git::oplog::{self, OperationKind};
use studio_git::repo::Repository;

use crate::report;

/// The variable with the name of the shell, in calls of the script.
const VARIABLE: &str = "STUDIO_COMPLETE";

/// How long g3 may take to list its personas.
const PERSONAS_TIMEOUT: Duration = Duration::from_secs(1);

/// The command line of `completions`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    pub shell: Shell,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<u8> {
    let shells = Shells::builtins();
    let mut script = Vec::new();
    if let Some(shell) = shells.completer(&args.shell.to_string()) {
        shell
            .write_registration(VARIABLE, "studio", "studio", "studio", &mut script)
            .or_fail(|| "cannot write the completion script")?;
    }
    report::out(String::from_utf8_lossy(&script).trim_end());
    Ok(0)
}

/// Answers a call of the completion script. Returns `false` for any other command line.
/// Errors are not shown: the user is typing.
pub fn answer(command: fn() -> Command) -> bool {
    if std::env::var_os(VARIABLE).is_none() {
        return false;
    }
    let directory = std::env::current_dir().ok();
    let completion = CompleteEnv::with_factory(move || with_values(command())).var(VARIABLE);
    completion.try_complete(std::env::args_os(), directory.as_deref()).unwrap_or(true)
}

/// Adds the candidates of values to the command line.
fn with_values(command: Command) -> Command {
    command
        .mut_args(|arg| {
            let value_name = arg.get_value_names().and_then(|names| names.first());
            let value_name = value_name.map(|name| name.as_str().to_owned()).unwrap_or_default();
            let candidates = match (arg.get_id().as_str(), value_name.as_str()) {
                ("agent", _) => ArgValueCandidates::new(agents),
                ("persona", _) => ArgValueCandidates::new(personas),
                (_, "ID") => ArgValueCandidates::new(sessions),
                (_, "OP") => ArgValueCandidates::new(operations),
                (_, "ID [N] allow|deny") => ArgValueCandidates::new(answers),
                (_, "BRANCH") | ("base", _) => ArgValueCandidates::new(branches),
                _ => return arg,
            };
            arg.add(candidates)
        })
        .mut_subcommands(with_values)
}

fn repository() -> Option<Repository> {
    Repository::discover(&directory()).ok()
}

/// Returns the directory of the typed command: that of its `-C`, else the current one.
fn directory() -> PathBuf {
    let typed: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").collect();
    let option = typed.iter().position(|word| word == "-C").and_then(|at| typed.get(at + 1));
    let directory = option.map_or_else(|| PathBuf::from("."), PathBuf::from);
    directory.canonicalize().unwrap_or(directory)
}

fn config() -> Option<Config> {
    base::config::load(&ConfigSources::from_env(&directory())).ok().map(|loaded| loaded.config)
}

fn sessions() -> Vec<CompletionCandidate> {
    let project = repository().map(|repository| Project::new(repository, Config::default()));
    let views = project.and_then(|project| project.views().ok()).unwrap_or_default();
    let open = views.into_iter().filter(|view| !view.state.is_over());
    open.map(|view| {
        let first_line = view.record.task.lines().next().unwrap_or_default();
        let task = base::text::cut_columns(&base::text::printable(first_line), 60);
        candidate(view.record.id.as_str(), &format!("{}: {task}", view.state.name()))
    })
    .collect()
}

fn answers() -> Vec<CompletionCandidate> {
    let decisions = ["allow", "deny"].into_iter().map(CompletionCandidate::new);
    sessions().into_iter().chain(decisions).collect()
}

/// Returns the operations that can be undone, the last first.
fn operations() -> Vec<CompletionCandidate> {
    let all = repository().and_then(|repository| oplog::list(&repository).ok()).unwrap_or_default();
    let open = all.iter().rev().filter(|operation| {
        operation.undone_by.is_none()
            && !matches!(operation.kind, OperationKind::Undo | OperationKind::Relocate)
    });
    open.map(|operation| {
        let sessions: Vec<String> = operation.sessions.iter().map(ToString::to_string).collect();
        candidate(&operation.id, &format!("{} {}", operation.kind.name(), sessions.join(" ")))
    })
    .collect()
}

fn agents() -> Vec<CompletionCandidate> {
    let config = config().unwrap_or_default();
    registry::names(&config).into_iter().map(CompletionCandidate::new).collect()
}

fn branches() -> Vec<CompletionCandidate> {
    let names = repository().and_then(|repository| repository.branches().ok());
    names.unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
}

/// Returns the personas of g3.
fn personas() -> Vec<CompletionCandidate> {
    let limits = OutputLimits { time: Some(PERSONAS_TIMEOUT), bytes: 1 << 20 };
    let output = base::process::Command::new(registry::g3_program(), directory())
        .args(["--list-agents", "--json"])
        .stdin(Stream::Null)
        .output(limits);
    let listed: Value = output
        .ok()
        .and_then(|output| serde_json::from_slice(&output.stdout).ok())
        .unwrap_or_default();
    let personas = listed.as_array().into_iter().flatten();
    personas
        .filter_map(|persona| {
            let help = persona["description"].as_str().unwrap_or_default();
            Some(candidate(persona["name"].as_str()?, &base::text::printable(help)))
        })
        .collect()
}

fn candidate(value: &str, help: &str) -> CompletionCandidate {
    CompletionCandidate::new(value).help(Some(help.to_owned().into()))
}
