//! `studio sdlc`: a pipeline of personas over the recent commits of a branch. Each stage is a session
//! on top of the one before it, so that all of them land as one stack.

mod output;
mod pipeline;
mod range;
mod record;
mod stages;

use std::fs::OpenOptions;

use base::config::network::NetworkPolicy;
use base::failure::{OrFail, Result};
use clap::Subcommand;
use serde_json::json;
use studio_git::transaction;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::run::{self, LimitArgs};
use crate::commands::subcommand::SubcommandRunner;
use crate::commands::watch::{StopWhen, WatchFrom, WatchOutcome, Watcher};
use crate::report;
use pipeline::Pipeline;
use record::StageSettings;
use studio_core::session::record::RunMode;

/// The command line of `sdlc`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// What to do
    #[command(subcommand)]
    pub verb: SdlcVerb,
}

/// The commands of `sdlc`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum SdlcVerb {
    /// Start the pipeline, or continue it where it stopped
    #[command(
        after_help = "Examples:\n  studio sdlc run                 on the commits since the last complete run\n  studio sdlc run -c 3 --check 'cargo test'\n  studio sdlc run --from v1.2 --detach\n\nExit code 1: a stage did not finish; `studio sdlc run` tries it again"
    )]
    Run(Box<RunArgs>),
    /// Show the stages with their sessions
    #[command(after_help = "Examples:\n  studio sdlc status\n  studio sdlc status --json")]
    Status,
    /// Forget the pipeline and where its last complete run ended; sessions are kept
    #[command(after_help = "Examples:\n  studio sdlc reset")]
    Reset,
}

/// The command line of `sdlc run`. Settings apply to all sessions of the run, also when it continues.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Work on the last N commits (default: those since the last complete run, else 10)
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "from")]
    pub commits: Option<u32>,
    /// Work on the commits after this one
    #[arg(long, value_name = "REF")]
    pub from: Option<String>,
    /// A command that must pass, one `sh -c` line (repeatable; in addition to the configured ones)
    #[arg(long = "check", value_name = "LINE")]
    pub checks: Vec<String>,
    /// Model of the agent (default: the configured one)
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// When each session is stopped
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Land the work of each stage as soon as it is ready
    #[arg(long)]
    pub accept: bool,
    /// Keep permission requests open for `studio answer`, also without a terminal
    #[arg(long)]
    pub ask: bool,
    /// Print the id of the first session, and continue in the background
    #[arg(long)]
    pub detach: bool,
    /// `off` runs the agents without the sandbox
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"])]
    pub sandbox: Option<String>,
    /// Hosts that the agents can reach: all, those of the allow list, or none
    #[arg(long, value_name = "POLICY", value_parser = NetworkPolicy::NAMES.to_vec())]
    pub network: Option<String>,
}

impl RunArgs {
    /// Returns the settings of a run: those given here, else the earlier ones.
    fn settings(&self, earlier: Option<&StageSettings>) -> StageSettings {
        let new = StageSettings {
            run_mode: RunMode { sandboxed: true, ..RunMode::default() },
            ..StageSettings::default()
        };
        let earlier = earlier.cloned().unwrap_or(new);
        let network = self.network.as_deref().and_then(NetworkPolicy::parse);
        let run_mode = RunMode {
            attended: earlier.run_mode.attended || run::is_attended(self.ask),
            accept: earlier.run_mode.accept || self.accept,
            sandboxed: self.sandbox.as_ref().map_or(earlier.run_mode.sandboxed, |it| it != "off"),
            network: network.or(earlier.run_mode.network),
            ..RunMode::default()
        };
        StageSettings {
            checks: if self.checks.is_empty() { earlier.checks } else { self.checks.clone() },
            model: self.model.clone().or(earlier.model),
            limits: self.limits.limits().or(earlier.limits),
            run_mode,
        }
    }
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    match &args.verb {
        SdlcVerb::Run(args) => advance(common, &context, args),
        SdlcVerb::Status => status(&context),
        SdlcVerb::Reset => reset(&context),
    }
}

/// Advances the pipeline until it is complete or a stage does not finish.
fn advance(common: &CommonArgs, context: &CommandContext, args: &RunArgs) -> Result<u8> {
    for note in transaction::recover(&context.repository)? {
        report::say(&note);
    }
    let Some(pipeline) = Pipeline::open(context, args)? else { return Ok(0) };
    if args.detach {
        return detach(common, context, args, pipeline);
    }
    let mut watcher = Watcher::begin(context, WatchFrom::FromNow)?;
    let mut tried = None;
    loop {
        let sessions = pipeline.sessions()?;
        let Some(step) = stages::next(&sessions) else { return pipeline.complete(&sessions) };
        let (stage, _) = step;
        // What does not finish is tried again by the next call.
        if tried == Some(stage) {
            return pipeline.report_unfinished(stage, &sessions);
        }
        tried = Some(stage);
        watcher.add(&pipeline.take(step, &sessions, args)?);
        // Earlier stages are watched too: a stage does not start from work that is changing.
        if watcher.run_until(StopWhen::All)? == WatchOutcome::Interrupted {
            return pipeline.report_interrupted();
        }
    }
}

/// Carries out the next step, prints the id of its session, and continues in the background.
fn detach(
    common: &CommonArgs,
    context: &CommandContext,
    args: &RunArgs,
    pipeline: Pipeline<'_>,
) -> Result<u8> {
    let sessions = pipeline.sessions()?;
    let Some(step) = stages::next(&sessions) else { return pipeline.complete(&sessions) };
    let id = pipeline.take(step, &sessions, args)?;
    // The other process takes the lock.
    drop(pipeline);
    let path = context.repository.studio_dir()?.join("sdlc.log");
    let log = OpenOptions::new().append(true).create(true).open(&path);
    let log = log.or_fail(|| format!("cannot write {}", path.display()))?;
    SubcommandRunner::new(common)?.run_detached(&["sdlc", "run"].map(str::to_owned), log)?;
    match context.json {
        true => report::json_line(&context.view(&id)?.json()),
        false => report::out(id.as_str()),
    }
    Ok(0)
}

/// Shows the pipeline.
fn status(context: &CommandContext) -> Result<u8> {
    let state = record::load(&context.repository)?;
    let Some(record) = &state.pipeline else {
        match context.json {
            true => report::json_line(&output::status_json(context, &state, &[])),
            false => report::say("no pipeline; start one with: studio sdlc run"),
        }
        return Ok(0);
    };
    let sessions = pipeline::sessions_of(context, record)?;
    match context.json {
        true => report::json_line(&output::status_json(context, &state, &sessions)),
        false => output::show(context, record, &sessions),
    }
    Ok(0)
}

/// Forgets the pipeline and the cursors; its sessions are not touched.
fn reset(context: &CommandContext) -> Result<u8> {
    let _lock = pipeline::take_lock(context)?;
    // An unreadable file is deleted too.
    let state = record::load(&context.repository).unwrap_or_default();
    let existed = record::delete(&context.repository)?;
    if context.json {
        report::json_line(&json!({"schema": 1, "reset": existed, "cursors": state.cursors}));
        return Ok(0);
    }
    match existed {
        true => report::say("forgot the pipeline; its sessions are kept: studio list"),
        false => report::say("no pipeline"),
    }
    for (branch, commit) in &state.cursors {
        report::say(&format!(
            "the last complete run on `{branch}` ended at {commit}; to continue from there: studio \
             sdlc run --from {commit}"
        ));
    }
    Ok(0)
}
