//! `studio run`: starts one session per task and shows them until they settle.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use base::failure::{Failure, FailureKind, OrFail, Result};
use base::id::Id;
use clap::builder::NonEmptyStringValueParser;
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::watch::{self, WatchFrom, WatchOutcome};
use crate::commands::{list, preflight, requirements, tasks};
use crate::report;
use crate::report::table;
use studio_core::create_session::{create, draft};
use studio_core::launch::requirements::AgentOptions;
use studio_core::launch::{command, requirements as agent_requirements};
use studio_core::session::record::RunLimits;
use studio_core::session::record::RunMode;
use studio_core::session::spec::SessionSpec;
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;
use studio_git::names::WorktreeTemplate;
use studio_git::{self, worktree};

/// Maximum size of a task, in bytes.
const LONGEST_TASK: usize = 4 << 20;

/// The command line of `run` and `exec`.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Args {
    /// Task to run, one session each (`-` reads it from stdin)
    #[arg(value_name = "TASK")]
    pub tasks: Vec<String>,
    /// Task file: TOML with [[task]], or a Markdown list; `after` orders the tasks
    #[arg(long = "tasks", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Maximum number of sessions that run at the same time
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    /// Agent: g3, or a name from [studio.agents]
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Persona for g3 (see g3 --list-agents)
    #[arg(long, value_name = "NAME")]
    pub persona: Option<String>,
    /// Branch, tag or commit to start from (default: HEAD)
    #[arg(long, value_name = "REF")]
    pub base: Option<String>,
    /// A command that must pass, one `sh -c` line (repeatable; in addition to the configured ones)
    #[arg(long = "check", value_name = "LINE")]
    pub checks: Vec<String>,
    /// Model for g3 (default: the configured one)
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub model: Option<String>,
    /// Tool profile of g3: g3, egirl, tools-api, core or all
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub profile: Option<String>,
    /// When each session is stopped
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Land each session as soon as it is ready
    #[arg(long)]
    pub accept: bool,
    /// Keep permission requests open for `studio answer`, also without a terminal
    #[arg(long)]
    pub ask: bool,
    /// Start and return at once
    #[arg(long)]
    pub detach: bool,
    /// Print what would be started without starting it
    #[arg(long)]
    pub dry_run: bool,
    /// With --json: print the agents' events too
    #[arg(long)]
    pub events: bool,
    /// Work as player and coach until these requirements are met; they are the task if no TASK is given
    #[arg(long, value_name = "FILE")]
    pub requirements: Option<PathBuf>,
    /// `off` runs the agents without the sandbox
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"], default_value = "on")]
    pub sandbox: String,
}

/// Limits of one session, over all its runs together.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct LimitArgs {
    /// Maximum cost of a session in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub budget: Option<f64>,
    /// Maximum number of tokens of a session
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tokens: Option<u64>,
    /// Maximum number of model replies in a session
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_turns: Option<u32>,
    /// Maximum working time of a session in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
}

impl LimitArgs {
    /// Returns the given limits.
    pub(crate) fn limits(self) -> RunLimits {
        RunLimits {
            seconds: self.timeout,
            turns: self.max_turns,
            tokens: self.max_tokens,
            usd: self.budget,
            ..RunLimits::default()
        }
    }
}

/// Parses a non-negative amount of money.
fn dollars(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(usd) if f64::is_finite(usd) && usd >= 0.0 => Ok(usd),
        Ok(_) => Err("must be a non-negative number".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

/// Runs the command.
pub(crate) fn run(common: &CommonArgs, args: &Args) -> Result<u8> {
    let context = CommandContext::open(common)?;
    let orders = orders(&context, args)?;
    preflight::check(&context, &orders)?;
    if args.dry_run {
        return dry_run(&context, &orders);
    }
    if args.sandbox == "off" {
        report::say("warning: the agents run without the box: they can read and write all you can");
    }
    if !context.json {
        omissions(&context, &orders)?.iter().for_each(|text| report::say(text));
    }
    let ids = create(&context, &orders)?;
    context.schedule()?;
    if args.detach {
        for id in &ids {
            match context.json {
                true => report::json_line(&context.view(id)?.json()),
                false => report::out(id.as_str()),
            }
        }
        return Ok(0);
    }
    let show = if args.events { WatchFrom::Events } else { WatchFrom::States };
    let seen = watch::watch(&context, &ids, show)?;
    summary(&context, &ids, seen)
}

/// Returns the notices about what the sessions will not contain, without duplicates.
fn omissions(context: &CommandContext, orders: &[SessionSpec]) -> Result<Vec<String>> {
    let template = WorktreeTemplate::parse(&context.config.studio.worktree)?;
    let mut said: Vec<String> = Vec::new();
    let mut bases: Vec<Option<&str>> = orders.iter().map(|order| order.base.as_deref()).collect();
    bases.dedup();
    for wanted in bases {
        let base = context.repository.base(wanted)?;
        let is_head = wanted.is_none_or(|wanted| wanted == "HEAD");
        for text in studio_git::start_notices::start_notices(
            &context.repository,
            &template,
            &base.commit,
            is_head,
        )? {
            if !said.contains(&text) {
                said.push(text);
            }
        }
    }
    Ok(said)
}

/// Returns the specifications of the sessions, one per task.
fn orders(context: &CommandContext, args: &Args) -> Result<Vec<SessionSpec>> {
    let held = args.requirements.as_deref().map(requirements::read).transpose()?;
    if held.is_some() && args.file.is_some() {
        return Err(Failure::usage("--requirements cannot be used with --tasks")
            .because("the tasks of a list name their own requirements")
            .hint("give the tasks themselves: studio run --requirements FILE 'one' 'two'"));
    }
    let mut orders = Vec::new();
    for task in &args.tasks {
        orders.push(SessionSpec::of(if task == "-" { stdin_task()? } else { task.clone() }));
    }
    if let Some(file) = &args.file {
        orders.extend(tasks::read(file)?);
    }
    if let Some(held) = held.as_ref().filter(|_| orders.is_empty()) {
        orders.push(SessionSpec::of(held.title.clone()));
    }
    if orders.is_empty() {
        return Err(Failure::usage("no task is given")
            .hint("studio run 'add a test for the parser'")
            .hint("studio run --tasks FILE")
            .hint("studio run --requirements FILE"));
    }
    for order in &mut orders {
        take_flags(order, args);
        held.iter().for_each(|held| held.hold(order));
        refuse_bad_task(&order.task)?;
        let agent = order.agent.take().or_else(|| context.config.studio.agent.clone());
        let agent = agent.unwrap_or_else(|| "g3".to_owned());
        let options = AgentOptions::from(&*order);
        let row = agent_requirements::agent_for(
            &context.config,
            &agent,
            options,
            &order.plan_ref,
            &order.checks,
        )?;
        command::refuse_too_long(&row, &order.task)?;
        order.agent = Some(agent);
    }
    Ok(orders)
}

fn refuse_bad_task(task: &str) -> Result<()> {
    let try_this = "studio run 'your task'";
    if task.trim().is_empty() {
        return Err(Failure::usage("the task is empty").hint(try_this));
    }
    if task.len() > LONGEST_TASK {
        return Err(Failure::usage(format!("the task has more than {LONGEST_TASK} bytes"))
            .hint("put it into a file in the repository and name that file in the task"));
    }
    if task.contains('\0') {
        return Err(Failure::usage("the task contains a NUL byte").hint(try_this));
    }
    Ok(())
}

fn stdin_task() -> Result<String> {
    let mut text = String::new();
    let most = LONGEST_TASK as u64 + 1;
    std::io::stdin().take(most).read_to_string(&mut text).or_fail(|| "cannot read the task")?;
    Ok(text.trim_end().to_owned())
}

/// Applies the flags to a task's unset fields.
fn take_flags(spec: &mut SessionSpec, args: &Args) {
    spec.agent = spec.agent.take().or_else(|| args.agent.clone());
    spec.persona = spec.persona.take().or_else(|| args.persona.clone());
    spec.base = spec.base.take().or_else(|| args.base.clone());
    spec.checks.extend(args.checks.iter().cloned());
    spec.model = args.model.clone();
    spec.profile = args.profile.clone();
    spec.limits = args.limits.limits();
    spec.run_mode = RunMode {
        jobs: args.jobs.unwrap_or(0),
        attended: is_attended(args.ask),
        accept: args.accept,
        sandboxed: args.sandbox != "off",
        config: None,
        directory: None,
    };
}

/// Returns whether the user can answer permission requests.
pub(crate) fn is_attended(ask: bool) -> bool {
    ask || (std::io::stdin().is_terminal() && std::io::stderr().is_terminal())
}

fn dry_run(context: &CommandContext, orders: &[SessionSpec]) -> Result<u8> {
    for order in orders {
        let record = draft(context, order)?;
        worktree::refuse_blocked_branch(&context.repository.open()?, &record.session_repo)?;
        if context.json {
            report::json_line(&json!({
                "task": record.task, "agent": record.agent, "persona": record.persona,
                "base": record.base, "checks": record.checks, "name": order.plan_ref.name,
                "after": order.after, "paths": order.plan_ref.paths,
                "requirements": order.plan_ref.requirements, "contract": order.plan_ref.contract,
            }));
            continue;
        }
        let after = match order.after.as_slice() {
            [] => String::new(),
            after => format!(", after {}", after.join(", ")),
        };
        let under = match &order.plan_ref.contract {
            Some(_) => format!(", player and coach for {}", order.plan_ref.requirements.join(", ")),
            None => String::new(),
        };
        report::out(&base::text::printable(&format!(
            "would start: {} (agent {}, base {}{after}{under})",
            table::first_lines(&order.task, 1),
            table::agent(&record),
            base::text::head(&record.base.commit, 12),
        )));
    }
    Ok(0)
}

/// Prints the summary of `run` and returns its exit code.
fn summary(context: &CommandContext, ids: &[Id], seen: WatchOutcome) -> Result<u8> {
    let views = ids.iter().map(|id| context.view(id)).collect::<Result<Vec<_>>>()?;
    if context.json {
        let sessions: Vec<_> = views.iter().map(|view| view.json()).collect();
        report::json_line(&json!({"type": "summary", "sessions": sessions}));
    } else {
        list::show(context, &views)?;
    }
    if seen == WatchOutcome::Interrupted {
        return Ok(130);
    }
    for view in views.iter().filter(|view| view.is_blocked() && !context.json) {
        let why = view.why().unwrap_or_default();
        report::say(&base::text::printable(&format!("{}: {why}", view.record.id)));
    }
    let good = |view: &SessionView| {
        matches!(view.state, SessionState::Ready | SessionState::Accepted | SessionState::Empty)
            || view.is_blocked()
    };
    if !views.iter().all(good) {
        return Ok(1);
    }
    let stuck =
        |view: &&SessionView| view.record.run_mode.accept && view.state == SessionState::Ready;
    let stuck: Vec<&SessionView> = views.iter().filter(stuck).collect();
    for view in &stuck {
        let why = view.facts.summary.note.as_deref().unwrap_or("it did not land");
        report::say(&base::text::printable(&format!("{}: {why}", view.record.id)));
    }
    Ok(if stuck.is_empty() { 0 } else { FailureKind::Refused as u8 })
}
