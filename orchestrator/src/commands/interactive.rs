//! `studio cli` and `studio resume --interactive`: an interactive g3 in a session's worktree and
//! sandbox.

use std::io::IsTerminal;

use base::failure::{Failure, Result};
use base::id::Id;
use base::lock::Lock;
use clap::builder::NonEmptyStringValueParser;
use studio_core::create_session;
use studio_core::interactive;
use studio_core::project::Project;
use studio_core::session::record::RunMode;
use studio_core::session::spec::SessionSpec;
use studio_git::transaction;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::preflight;
use crate::report::{self, table};

/// The command line of `cli`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Title of the session in lists
    #[arg(value_name = "TITLE", default_value = "interactive")]
    pub title: String,
    /// Persona for g3 (see g3 --list-agents)
    #[arg(long, value_name = "NAME")]
    pub persona: Option<String>,
    /// Branch, tag or commit to start from (default: HEAD)
    #[arg(long, value_name = "REF")]
    pub base: Option<String>,
    /// A command that must pass, in addition to the configured ones (repeatable)
    #[arg(long = "check", value_name = "LINE")]
    pub checks: Vec<String>,
    /// Model of the agent (default: the configured one)
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub model: Option<String>,
    /// Tool profile of g3: g3, egirl, tools-api, core or all
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub profile: Option<String>,
}

/// Runs `cli`.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    refuse_without_terminal(&context, "studio run 'your task'")?;
    let spec = SessionSpec {
        agent: Some("g3".to_owned()),
        persona: args.persona.clone(),
        model: args.model.clone(),
        profile: args.profile.clone(),
        base: args.base.clone(),
        checks: args.checks.clone(),
        run_mode: RunMode { attended: true, sandboxed: true, ..RunMode::default() },
        ..SessionSpec::of(args.title.clone())
    };
    preflight::check(&context, std::slice::from_ref(&spec))?;
    let (id, lock) = create_session::create_locked(&context, &spec)?;
    converse(&context, &id, lock)
}

/// Runs an interactive g3 in an existing session.
pub(crate) fn resume(context: &CommandContext, id: &Id) -> Result<u8> {
    refuse_without_terminal(context, &format!("studio resume {id}"))?;
    let lock = context.lock_with_timeout(id)?.ok_or_else(|| {
        Failure::refused(format!("session `{id}` is at work"))
            .because("another process holds its lock")
            .hint(format!("studio attach {id}"))
            .hint(format!("studio stop {id}"))
    })?;
    for note in transaction::recover(&context.repository)? {
        report::say(&note);
    }
    let view = context.view(id)?;
    if view.state.is_over() {
        return Err(Project::already_ended(&view));
    }
    converse(context, id, lock)
}

fn converse(context: &CommandContext, id: &Id, lock: Lock) -> Result<u8> {
    context.repository.remember_checkout()?;
    let result = interactive::run(context, &context.view(id)?, &lock);
    drop(lock);
    context.schedule()?;
    result?;
    let view = context.view(id)?;
    report::say(&table::change(&view));
    for command in view.suggested_commands() {
        report::say(&format!("next: {command}"));
    }
    Ok(0)
}

fn refuse_without_terminal(context: &CommandContext, instead: &str) -> Result<()> {
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !context.json {
        return Ok(());
    }
    Err(Failure::usage("an interactive g3 needs a terminal").hint(instead))
}
