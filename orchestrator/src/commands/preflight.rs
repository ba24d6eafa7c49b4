//! Checks the prerequisites of g3 sessions before they start: flags, persona, provider, API key,
//! model, and the price if there is a budget. Errors are reported once instead of once per session.

use std::collections::BTreeSet;
use std::path::Path;

use base::config::studio::{AgentProtocol, AgentRow};
use base::failure::{Failure, OrFail, Result};
use base::process::{Command, OutputLimits};
use serde_json::Value;

use crate::commands::context::CommandContext;
use studio_core::launch::requirements;
use studio_core::session::record;
use studio_core::session::spec::SessionSpec;

/// Timeout of the check: a user's command may have to fetch the API key.
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(90);

/// Refuses sessions that no agent could work on. Each command line is checked once.
pub(crate) fn check(context: &CommandContext, specs: &[SessionSpec]) -> Result<()> {
    let configured = context.config.studio.limits.budget_usd;
    let mut checked = BTreeSet::new();
    for spec in specs {
        let agent = spec.agent.as_deref().unwrap_or("g3");
        let mut options = requirements::AgentOptions::from(spec);
        // A persona of the base commit is found in the session's worktree, not necessarily here.
        if options.persona.is_some_and(|name| is_in_base(context, spec, name)) {
            options.persona = None;
        }
        let row =
            requirements::agent_for(&context.config, agent, options, &spec.plan_ref, &spec.checks)?;
        check_limits(&row, agent, &spec.limits)?;
        let budget = spec.limits.usd.or(configured);
        if is_g3(&row) && checked.insert((row.command.clone(), budget.map(f64::to_bits))) {
            dry_run(context, &row, budget)?;
        }
    }
    Ok(())
}

/// Refuses a plan if no model can refine or split its texts.
pub(crate) fn planner(context: &CommandContext) -> Result<()> {
    let mut row = requirements::agent_for(
        &context.config,
        "g3",
        requirements::AgentOptions::default(),
        &record::PlanRef::default(),
        &[],
    )?;
    if let Some(planner) = &context.config.providers.planner {
        row.command.extend(["--provider".to_owned(), planner.clone()]);
    }
    dry_run(context, &row, None)
}

/// Refuses limits on values that the agent does not report.
fn check_limits(row: &AgentRow, agent: &str, limits: &record::RunLimits) -> Result<()> {
    if row.protocol != AgentProtocol::Command {
        return Ok(());
    }
    let flags = [
        ("--budget", limits.usd.is_some(), row.output.has_cost(), "cost"),
        ("--max-tokens", limits.tokens.is_some(), row.output.has_tokens(), "tokens"),
        ("--max-turns", limits.turns.is_some(), row.output.has_turns(), "turns"),
    ];
    match flags.iter().find(|(_, is_set, is_reported, _)| *is_set && !is_reported) {
        Some((flag, _, _, value)) => {
            Err(Failure::usage(format!("{flag} cannot be used with agent `{agent}`"))
                .because(format!("the output of its command contains no {value}"))
                .hint("--timeout SECONDS"))
        }
        None => Ok(()),
    }
}

fn is_g3(row: &AgentRow) -> bool {
    let program = row.command.first().map(Path::new).and_then(Path::file_name);
    row.protocol == AgentProtocol::Acp && program.is_some_and(|name| name == "g3")
}

fn is_in_base(context: &CommandContext, spec: &SessionSpec, persona: &str) -> bool {
    let find = || -> Option<()> {
        let base = context.repository.base(spec.base.as_deref()).ok()?;
        let repository = context.repository.open().ok()?;
        let commit = repository.find_commit(studio_git::refs::oid(&base.commit).ok()?).ok()?;
        let file = format!("agents/{persona}.md");
        commit.tree().ok()?.get_path(Path::new(&file)).ok().map(|_| ())
    };
    find().is_some()
}

/// Makes g3 check its command line with `--dry-run`.
fn dry_run(context: &CommandContext, row: &AgentRow, budget: Option<f64>) -> Result<()> {
    let Some((program, args)) = row.command.split_first() else { return Ok(()) };
    let top = context.repository.main_checkout.as_deref().unwrap_or(&context.repository.common_dir);
    let directory = context.directory.as_deref().unwrap_or(top);
    let mut command = Command::new(program, directory).args(args).arg("--dry-run");
    if let Some(file) = &context.config_file {
        command = command.arg("--config").arg(file);
    }
    if let Some(usd) = budget.filter(|usd| *usd > 0.0) {
        command = command.arg("--budget").arg(usd.to_string());
    }
    let limits = OutputLimits { time: Some(TIMEOUT), bytes: 1 << 20 };
    let output =
        command.input("").output(limits).or_fail(|| format!("cannot start `{program}`"))?;
    if output.ok() {
        return Ok(());
    }
    let reply: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    // Other failures are left to the session's own start.
    match reply.and_then(|reply| Failure::from_json(&reply["error"])) {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}
