//! `studio fork`: starts a new session from another one's current work.

use base::config::places::HERE;
use base::failure::{Failure, Result};
use studio_core::fork;
use studio_core::launch::command;
use studio_core::launch::requirements::{self, AgentOptions};
use studio_core::place::configured_place;
use studio_core::session::record::RunMode;
use studio_core::session::spec::SessionSpec;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::preflight;
use crate::commands::run::{self, LimitArgs, Shown};
use crate::report;

/// The command line of `fork`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Session to fork
    #[arg(value_name = "ID")]
    pub id: String,
    /// Task of the new session (default: that of the forked one, continued)
    #[arg(value_name = "TASK")]
    pub task: Option<String>,
    /// Agent (default: that of the forked session)
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Model of the agent (default: that of the forked session)
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Place where it runs, or `here` (default: that of the forked session)
    #[arg(long, value_name = "PLACE")]
    pub on: Option<String>,
    /// A command that must pass, in addition to those of the forked session (repeatable)
    #[arg(long = "check", value_name = "LINE")]
    pub checks: Vec<String>,
    /// When the session is stopped
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Land the session as soon as it is ready
    #[arg(long)]
    pub accept: bool,
    /// Keep permission requests open for `studio answer`, also without a terminal
    #[arg(long)]
    pub ask: bool,
    /// Start and return at once
    #[arg(long)]
    pub detach: bool,
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let source = context.find(Some(&args.id), |state| !state.is_over())?;
    let task = args.task.clone().unwrap_or_default();
    if args.task.as_ref().is_some_and(|task| task.trim().is_empty()) {
        return Err(Failure::usage("the task is empty").hint("studio fork ID 'what to do'"));
    }
    let place = args.on.clone().or_else(|| source.record.run_mode.place.clone());
    let place = place.filter(|name| name != HERE);
    if let Some(name) = &place {
        configured_place::find_for(&context, name, &source.record.session_repo.base)?;
    }
    let mut spec = SessionSpec {
        agent: args.agent.clone(),
        model: args.model.clone(),
        checks: args.checks.clone(),
        limits: args.limits.limits(),
        run_mode: RunMode {
            attended: run::is_attended(args.ask),
            accept: args.accept,
            sandboxed: source.record.run_mode.sandboxed,
            network: source.record.run_mode.network,
            place,
            ..RunMode::default()
        },
        ..SessionSpec::of(task)
    };
    fork::fork(&context, &source, &mut spec)?;
    let agent = spec.agent.clone().unwrap_or_else(|| source.record.agent.clone());
    let options = AgentOptions::from(&spec);
    let row =
        requirements::agent_for(&context.config, &agent, options, &spec.plan_ref, &spec.checks)?;
    command::refuse_too_long(&row, &spec.task)?;
    let specs = [spec];
    preflight::check(&context, &specs)?;
    let work = specs[0].start.as_ref().and_then(|start| start.work.as_ref());
    for path in work.iter().flat_map(|work| &work.omitted).filter(|_| !context.json) {
        report::say(&format!("note: not in the new session: {path}"));
    }
    run::start(&context, &specs, Shown { detach: args.detach, events: false })
}
