//! `studio accept`: lands the work of sessions on its target.

use std::path::PathBuf;

use base::failure::{Failure, FailureKind, Result};
use base::id::Id;
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::{accept_all, other_attempts, queue_status, resolve};
use crate::report;
use studio_core::interrupt::Interrupt;
use studio_core::landing::{self, Landed, LandingOptions, Rejection, stack, syntax_merges};
use studio_core::recheck;
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;
use studio_git::compat;
use studio_git::landed_work::LandedWork;
use studio_git::merge::MergeStrategy;
use studio_git::transaction;

/// The command line of `accept`.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Args {
    /// Sessions to land (default: the only one that can land)
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
    /// Land all ready sessions, in the best order, as far as they pass together
    #[arg(long, conflicts_with_all = ["ids", "hunks", "message", "edit", "force", "match_tree"])]
    pub all: bool,
    /// Print how far the queue of --all is, and what the next one would take; land nothing
    #[arg(long, requires = "all", conflicts_with_all = ["dry_run", "resolve"])]
    pub status: bool,
    /// Land only these hunks of one session, by id; the session stays open with the rest
    #[arg(long, value_name = "HUNK", value_delimiter = ',')]
    pub hunks: Vec<String>,
    /// Merge strategy
    #[arg(long, value_enum, default_value = "squash")]
    pub strategy: StrategyArg,
    /// Branch to land on (default: the branch the session started from)
    #[arg(long, value_name = "BRANCH")]
    pub onto: Option<String>,
    /// Commit message (default: written by a model)
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Merge conflicting files by syntax, where both sides only added; the checks must pass
    #[arg(long)]
    pub merge_by_syntax: bool,
    /// Allow this large file (repeatable)
    #[arg(long, value_name = "PATH")]
    pub include: Vec<PathBuf>,
    /// Edit the commit message before landing
    #[arg(long)]
    pub edit: bool,
    /// Allow lines that look like a private key or a token
    #[arg(long)]
    pub allow_secrets: bool,
    /// Allow changes of the files that decide what the checks say
    #[arg(long)]
    pub allow_check_changes: bool,
    /// Land work that changed since you last looked at it, without a question
    #[arg(short, long)]
    pub yes: bool,
    /// Refuse work that is not this tree
    #[arg(long, value_name = "TREE")]
    pub match_tree: Option<String>,
    /// Let the agent resolve conflicts in at most this many turns (default: 3), then land
    #[arg(
        long,
        value_name = "TURNS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "3",
        value_parser = clap::value_parser!(u32).range(1..=20),
        conflicts_with = "dry_run"
    )]
    pub resolve: Option<u32>,
    /// Merge and check without landing
    #[arg(long)]
    pub dry_run: bool,
    /// Also land stopped, failed, crashed or empty sessions; their checks must still pass
    #[arg(long)]
    pub force: bool,
    /// Do not run the checks (recorded in the receipt)
    #[arg(long)]
    pub no_checks: bool,
    /// Discard the other attempts at the session's task, in the same operation
    #[arg(long, conflicts_with_all = ["all", "keep_others", "hunks", "dry_run"])]
    pub drop_others: bool,
    /// Keep the other attempts at the session's task, without a question
    #[arg(long)]
    pub keep_others: bool,
}

/// The merge strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StrategyArg {
    /// One commit on the target
    Squash,
    /// A merge commit
    Merge,
    /// The session's commits, rebased onto the target
    Rebase,
    /// The session's own commits, if the target can be fast-forwarded
    Ff,
}

impl StrategyArg {
    fn strategy(self) -> MergeStrategy {
        match self {
            StrategyArg::Squash => MergeStrategy::Squash,
            StrategyArg::Merge => MergeStrategy::Merge,
            StrategyArg::Rebase => MergeStrategy::Rebase,
            StrategyArg::Ff => MergeStrategy::Ff,
        }
    }
}

impl Args {
    fn options(&self) -> LandingOptions {
        LandingOptions {
            strategy: self.strategy.strategy(),
            onto: self.onto.clone(),
            message: self.message.clone(),
            edit: self.edit,
            dry_run: self.dry_run,
            force: self.force,
            no_checks: self.no_checks,
            merge_by_syntax: self.merge_by_syntax,
            include: self.include.clone(),
            allow_secrets: self.allow_secrets,
            allow_check_changes: self.allow_check_changes,
            yes: self.yes,
            match_tree: self.match_tree.clone(),
            hunks: self.hunks.clone(),
            dropped: Vec::new(),
        }
    }
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    if args.status {
        return queue_status::run(&CommandContext::open(common)?);
    }
    let interrupt = Interrupt::listen()?;
    let context = CommandContext::open(common)?.with_interrupt(interrupt);
    for note in transaction::recover(&context.repository)? {
        report::say(&note);
    }
    if args.message.as_ref().is_some_and(|text| text.trim().is_empty()) {
        return Err(Failure::usage("the commit message is empty")
            .hint("studio accept -m 'what the commit does'")
            .hint("or omit -m to let a model write it"));
    }
    if !args.hunks.is_empty() && args.ids.len() > 1 {
        return Err(Failure::usage("--hunks cannot be used with several sessions")
            .hint("studio accept ID --hunks HUNK,…"));
    }
    syntax_merges::refuse_strategy(&args.options())?;
    if args.all {
        return accept_all::run(&context, &args.options(), args.resolve.unwrap_or(0));
    }
    let is_landable = |state: &SessionState| match state {
        SessionState::Ready => true,
        SessionState::Stopped | SessionState::Crashed => args.force,
        SessionState::Empty => args.force || !args.include.is_empty(),
        SessionState::Failed { .. } => args.force || args.no_checks,
        _ => false,
    };
    let mut views = context.find_all(&args.ids, is_landable)?;
    stack::sort(&mut views);
    let options = args.options();
    let mut landed = Vec::new();
    let mut rejections = Vec::new();
    for view in &views {
        match land_with_others(&context, args, view, &options) {
            Ok(landed_session) => {
                if !context.json {
                    print_landed(&landed_session, views.len() > 1);
                }
                landed.push(landed_session);
            }
            Err(mut rejection) => {
                let id = view.record.id.as_str();
                if views.len() > 1 && !rejection.failure.what.contains(id) {
                    rejection.failure.what = format!("{id}: {}", rejection.failure.what);
                }
                if !context.json {
                    report::say(&rejection.failure.to_string());
                }
                let is_interrupted = rejection.failure.kind == FailureKind::Interrupted;
                rejections.push((view.record.id.clone(), rejection));
                if is_interrupted {
                    break;
                }
            }
        }
    }
    finish(&context, &landed, &rejections, None)
}

/// Lands a session, and discards the other attempts at its task if the user wants that.
fn land_with_others(
    context: &CommandContext,
    args: &Args,
    view: &SessionView,
    options: &LandingOptions,
) -> std::result::Result<Landed, Rejection> {
    let others = other_attempts::to_drop(context, args, view)?;
    if !others.is_empty() && args.resolve.is_none() {
        // A landing that is refused, whatever the user confirms, stops no other attempt.
        let trial = LandingOptions { dry_run: true, edit: false, ..options.clone() };
        match land_one(context, view, &trial) {
            Err(rejection) if rejection.confirmation.is_none() => return Err(rejection),
            Ok(_) | Err(_) => {}
        }
    }
    let _locks = other_attempts::prepare(context, &others)?;
    let dropped = others.iter().map(|view| view.record.session_repo.clone()).collect();
    let options = LandingOptions { dropped, ..options.clone() };
    let land = || land_one(context, view, &options);
    match args.resolve {
        Some(turns) => resolve::until_it_lands(context, &view.record.id, turns, land),
        None => land(),
    }
}

/// Starts what waited for the landings, prints JSON, and returns the exit code. `failure` is an error
/// that concerns no session alone: it is printed last, and decides the exit code.
pub(super) fn finish(
    context: &CommandContext,
    landed: &[Landed],
    rejections: &[(Id, Rejection)],
    mut failure: Option<Failure>,
) -> Result<u8> {
    if landed.iter().any(|landed| landed.commit.is_some()) {
        for note in compat::skipped_features(&context.repository, &context.config.studio) {
            report::say(&format!("note: {note}"));
        }
        if let Err(error) = follow_up(context) {
            failure.get_or_insert(error);
        }
    }
    if context.json {
        print_json(landed, rejections, failure.as_ref());
    }
    if let Some(failure) = failure {
        report::say(&failure.to_string());
        return Ok(failure.exit_code());
    }
    let interrupted = rejections
        .last()
        .filter(|(_, rejection)| rejection.failure.kind == FailureKind::Interrupted);
    Ok(interrupted.or(rejections.first()).map_or(0, |(_, rejection)| rejection.failure.exit_code()))
}

/// Starts the sessions and the checks that waited for a landing.
pub(super) fn follow_up(context: &CommandContext) -> Result<()> {
    let scheduled = context.schedule();
    // If it cannot be started, the next landing runs the checks.
    let _ = recheck::start(context);
    scheduled.map(|_| ())
}

/// Lands a session after taking its lock.
pub(crate) fn land_one(
    context: &CommandContext,
    view: &SessionView,
    options: &LandingOptions,
) -> std::result::Result<Landed, Rejection> {
    let id = &view.record.id;
    let lock = landing::lock(context, id)?;
    // The session may have changed before the lock was taken.
    landing::land(context, &context.view(id)?, options, &lock)
}

pub(crate) fn print_landed(landed: &Landed, is_one_of_many: bool) {
    let id = &landed.id;
    for note in &landed.notes {
        match is_one_of_many {
            true => report::say(&format!("note: {id}: {note}")),
            false => report::say(&format!("note: {note}")),
        }
    }
    if let Some(elsewhere) = &landed.elsewhere {
        print_elsewhere(landed, elsewhere);
        return;
    }
    if !landed.merged_by_syntax.is_empty() {
        let files = landed.merged_by_syntax.join(", ");
        report::say(&format!("note: {id}: merged by syntax, and the checks passed: {files}"));
    }
    match (&landed.commit, &landed.operation) {
        (Some(commit), Some(operation)) => {
            let short = base::text::head(commit, 12);
            let target = &landed.target;
            report::out(&match &landed.hunks {
                None => format!("{id} landed on {target} as {short}"),
                Some(hunks) => {
                    let count = base::text::count(hunks.ids.len(), "hunk");
                    format!("{count} of {id} landed on {target} as {short}")
                }
            });
            if let Some(hunks) = &landed.hunks {
                let count = base::text::count(hunks.remaining, "hunk");
                report::say(&format!("remaining in the session: {count}: studio review {id}"));
            }
            for id in &landed.dropped {
                report::out(&format!("{id} discarded"));
            }
            report::say(&format!("undo: studio undo {operation}"));
        }
        (_, _) => report::out(&format!("{id} would land on {}", landed.target)),
    }
}

/// Prints that a session's work was in its target before.
fn print_elsewhere(landed: &Landed, elsewhere: &LandedWork) {
    let (id, clause) = (&landed.id, elsewhere.clause(landed.target.as_str()));
    match &landed.operation {
        Some(operation) => {
            report::out(&format!("{id} landed elsewhere: {clause}; the session is closed"));
            report::say(&format!("undo: studio undo {operation}"));
        }
        None => report::out(&format!("{id} landed elsewhere: {clause}; it would be closed")),
    }
}

fn print_json(landed: &[Landed], rejections: &[(Id, Rejection)], failure: Option<&Failure>) {
    let operation = landed.iter().rev().find_map(|session| session.operation.clone());
    let rejections: Vec<_> = rejections
        .iter()
        .map(|(id, rejection)| {
            json!({
                "id": id,
                "why": rejection.failure.full_text(),
                "exit": rejection.failure.exit_code(),
                "files": rejection.files.paths,
                "merges_by_syntax": rejection.files.merges_by_syntax,
                "confirm": rejection.confirmation,
                "fails_with": rejection.fails_with,
            })
        })
        .collect();
    let landed: Vec<_> = landed.iter().map(Landed::json).collect();
    let mut outcome = json!({
        "schema": 1, "operation": operation, "landed": landed, "refused": rejections,
    });
    if let Some(failure) = failure {
        outcome["error"] = failure.to_json();
    }
    report::json_line(&outcome);
}
