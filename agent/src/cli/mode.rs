//! Selects the mode of a command line, and rejects flags that the mode does not support.

use std::path::{Path, PathBuf};

use base::failure::{Failure, Result};
use clap::ArgMatches;
use clap::parser::ValueSource;

use super::AgentArgs;
use crate::modes::autonomous::{RunOrigin, RunRequest, requirements};
use crate::modes::planning;
use agent_core::run::AgentSettings;

/// Flags that select a mode, and flags that belong to one mode.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ModeArgs {
    /// Run a player and a coach in rounds until the requirements are met
    #[arg(long)]
    autonomous: bool,
    /// Read requirements interactively; run --autonomous rounds after each one
    #[arg(long)]
    auto: bool,
    #[command(flatten)]
    plan: PlanArgs,
    /// With --autonomous: requirements, or a file with them [default: requirements.md]
    #[arg(long, value_name = "TEXT|FILE")]
    requirements: Option<String>,
    /// With --autonomous, --auto and --planning: check that must pass, run with `sh -c` (repeatable)
    #[arg(long = "check", value_name = "LINE")]
    checks: Vec<String>,
    /// List the personas
    #[arg(long)]
    pub list_agents: bool,
}

/// Flags of planning mode.
#[derive(Clone, Debug, Default, clap::Args)]
struct PlanArgs {
    /// Plan interactively: refine g3-plan/new_requirements.md, approve it, implement it, commit
    /// it
    #[arg(long)]
    planning: bool,
    /// With --planning: directory with the code and its g3-plan/ [default: the working directory]
    #[arg(long, value_name = "DIR")]
    codepath: Option<String>,
    /// With --planning: do not use git, and do not commit
    #[arg(long)]
    no_git: bool,
    /// With --planning: answer every question with yes
    #[arg(long)]
    yes: bool,
}

impl ModeArgs {
    /// Returns whether a flag selects a mode.
    pub(crate) fn is_some(&self) -> bool {
        self.autonomous || self.auto || self.plan.planning
    }

    /// Returns the directory of `--codepath`, resolved against `cwd`.
    pub(crate) fn code_path(&self, cwd: &Path) -> Result<Option<PathBuf>> {
        self.plan.codepath.as_ref().map(|text| planning::code_path(text, cwd)).transpose()
    }
}

/// A mode of g3 with an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Runs one task and exits.
    Once,
    /// An interactive session.
    Interactive,
    /// Player and coach.
    Autonomous,
    /// Player and coach, run again for each new requirement.
    Accumulative,
    /// Plans a feature, from the request to a commit.
    Planning,
    /// Lists the personas and exits.
    List,
}

use Mode::{Accumulative, Autonomous, Interactive, List, Once, Planning};

impl Mode {
    /// Returns the mode that these flags select.
    pub(crate) fn of(mode: &ModeArgs, has_task: bool) -> Mode {
        match has_task {
            _ if mode.autonomous => Autonomous,
            _ if mode.auto => Accumulative,
            _ if mode.plan.planning => Planning,
            true => Once,
            false => Interactive,
        }
    }

    /// Returns the name of the mode in the trace.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Once => "once",
            Interactive => "interactive",
            Autonomous => "autonomous",
            Accumulative => "accumulative",
            Planning => "planning",
            List => "list",
        }
    }

    fn display_name(self) -> &'static str {
        match self {
            Once => "g3 TASK",
            Interactive => "an interactive session",
            Autonomous => "g3 --autonomous",
            Accumulative => "g3 --auto",
            Planning => "g3 --planning",
            List => "g3 --list-agents",
        }
    }
}

/// A flag: its clap id, how it is typed, the modes that support it, and the hint for other modes.
type Flag = (&'static str, &'static str, &'static [Mode], &'static str);

const RUN_MODES: &[Mode] = &[Once, Interactive, Autonomous, Accumulative, Planning];
const ALL_MODES: &[Mode] = &[Once, Interactive, Autonomous, Accumulative, Planning, List];

/// All flags. A new mode is added to each flag that it supports.
const FLAGS: &[Flag] = &[
    ("task", "a task", &[Once], "g3 --autonomous --requirements \"what must hold\""),
    ("provider", "--provider", RUN_MODES, "omit it"),
    ("model", "--model", RUN_MODES, "omit it"),
    ("fallback_model", "--fallback-model", RUN_MODES, "omit it"),
    ("config", "--config", ALL_MODES, ""),
    ("workspace", "--workspace", ALL_MODES, ""),
    ("trace_file", "--trace-file", RUN_MODES, "omit it"),
    ("profile", "--profile", RUN_MODES, "omit it"),
    ("resume", "--resume", &[Once, Interactive, Autonomous], "g3 --autonomous --resume"),
    ("new_session", "--new-session", RUN_MODES, "omit it"),
    ("chat", "--chat", &[Once, Interactive], "g3 --chat, without a mode"),
    ("acd", "--acd", RUN_MODES, "omit it"),
    ("memory", "--memory", RUN_MODES, "omit it"),
    ("auto_memory", "--auto-memory", RUN_MODES, "omit it"),
    ("no_auto_memory", "--no-auto-memory", RUN_MODES, "omit it"),
    ("webdriver", "--webdriver", RUN_MODES, "omit it"),
    ("chrome_headless", "--chrome-headless", RUN_MODES, "omit it"),
    ("images", "--image", &[Once, Interactive], "g3 --image FILE TASK"),
    ("agent", "--agent", &[Once, Interactive], "g3 --agent NAME TASK"),
    ("codebase_fast_start", "--codebase-fast-start", &[Once, Interactive], "g3 --workspace DIR"),
    ("autonomous", "--autonomous", &[Autonomous], "g3 --autonomous, without another mode"),
    ("auto", "--auto", &[Accumulative], "g3 --auto, without another mode"),
    ("planning", "--planning", &[Planning], "g3 --planning, without another mode"),
    ("codepath", "--codepath", &[Planning], "g3 --workspace DIR"),
    ("no_git", "--no-git", &[Planning], "g3 --planning --no-git"),
    ("yes", "--yes", &[Planning], "omit it"),
    ("requirements", "--requirements", &[Autonomous], "g3 --autonomous --requirements TEXT"),
    ("checks", "--check", &[Autonomous, Accumulative, Planning], "g3 --autonomous --check LINE"),
    ("list_agents", "--list-agents", &[List], ""),
    ("max_turns", "--max-turns", RUN_MODES, "omit it"),
    ("max_tokens", "--max-tokens", RUN_MODES, "omit it"),
    ("budget", "--budget", RUN_MODES, "omit it"),
    ("timeout", "--timeout", RUN_MODES, "omit it"),
    ("json", "--json", &[Once, Autonomous, Planning, List], "g3 --json TASK"),
    ("events", "--events", RUN_MODES, "omit it"),
    ("quiet", "--quiet", RUN_MODES, "omit it"),
];

/// The flags that were set on the command line.
#[derive(Debug)]
pub(crate) struct ExplicitFlags(Vec<&'static Flag>);

impl ExplicitFlags {
    /// Collects the flags that a command line sets.
    pub(crate) fn of(matches: &ArgMatches) -> ExplicitFlags {
        let is_explicit = |(flag, ..): &&Flag| {
            let is_defined = matches.try_contains_id(flag).unwrap_or(false);
            is_defined && matches.value_source(flag) == Some(ValueSource::CommandLine)
        };
        ExplicitFlags(FLAGS.iter().filter(is_explicit).collect())
    }

    /// Fails if this mode does not support a flag.
    pub(crate) fn check_mode(&self, mode: Mode) -> Result<()> {
        match self.0.iter().find(|(_, _, modes, _)| !modes.contains(&mode)) {
            Some((_, flag, _, hint)) => {
                Err(Failure::usage(format!("{flag} cannot be used with {}", mode.display_name()))
                    .hint(*hint))
            }
            None => Ok(()),
        }
    }
}

/// Builds the request for an autonomous run; for `--auto`, the part that all its runs share.
pub(crate) fn run_request(
    settings: AgentSettings,
    args: &AgentArgs,
    mode: Mode,
) -> Result<RunRequest> {
    let requirements = args.mode.requirements.as_deref();
    let origin = match &args.resume {
        Some(_) if requirements.is_some() => {
            return Err(Failure::usage("--resume cannot be used with --requirements")
                .hint("g3 --autonomous --resume")
                .hint("g3 --autonomous --requirements TEXT, for a new run"));
        }
        Some(requested) => RunOrigin::Resume(requested.clone()),
        None if mode == Accumulative => RunOrigin::New(String::new()),
        None => RunOrigin::New(requirements::text(requirements, &settings.cwd)?),
    };
    Ok(RunRequest {
        settings,
        origin,
        rounds: args.limits.max_turns,
        checks: args.mode.checks.clone(),
    })
}

/// Builds the request for a planning run.
pub(crate) fn plan_request(
    settings: AgentSettings,
    args: &AgentArgs,
) -> Result<planning::PlanRequest> {
    let PlanArgs { no_git, yes, .. } = args.mode.plan;
    if args.show.json && !yes {
        return Err(Failure::usage("--json requires --yes").hint("g3 --planning --yes --json"));
    }
    let (rounds, checks) = (args.limits.max_turns, args.mode.checks.clone());
    Ok(planning::PlanRequest { settings, git: !no_git, yes, rounds, checks })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_table_has_exactly_the_flags_of_the_command_line() {
        let command = Cli::command();
        let ids: Vec<&str> = command
            .get_arguments()
            .map(|arg| arg.get_id().as_str())
            .filter(|id| !["help", "version"].contains(id))
            .collect();
        for id in &ids {
            let rows = FLAGS.iter().filter(|(flag, ..)| flag == id).count();
            assert_eq!(rows, 1, "`{id}` needs its row in the table of flags");
        }
        assert_eq!(ids.len(), FLAGS.len());
    }
}
