//! `studio run`: starts one session per task and shows them until they settle.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use base::config::network::NetworkPolicy;
use base::config::places::HERE;
use base::failure::{Failure, FailureKind, OrFail, Result};
use base::id::Id;
use clap::builder::NonEmptyStringValueParser;
use serde_json::json;

use crate::commands::context::{CommandContext, CommonArgs};
use crate::commands::watch::{WatchFrom, WatchOutcome, Watcher};
use crate::commands::{issue, list, preflight, requirements, tasks};
use crate::report;
use crate::report::table;
use studio_core::create_session::{create, draft};
use studio_core::fork;
use studio_core::launch::requirements::AgentOptions;
use studio_core::launch::{command, requirements as agent_requirements};
use studio_core::place::configured_place;
use studio_core::project;
use studio_core::session::record::RunLimits;
use studio_core::session::record::RunMode;
use studio_core::session::spec::{AttemptSpec, SessionSpec, SessionStart};
use studio_core::session::state::SessionState;
use studio_core::session_view::SessionView;
use studio_git::names::WorktreeTemplate;
use studio_git::repo::Base;
use studio_git::{start_notices, start_point, worktree};

/// How long notices may wait for a session that is queued.
const QUEUE_WAIT: Duration = Duration::from_millis(200);
/// How long notices may wait for a session that starts: its worktree may have many files.
const START_WAIT: Duration = Duration::from_secs(3);
/// Maximum size of a task, in bytes.
const MAX_TASK_BYTES: usize = 4 << 20;

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
    /// Value of a parameter `{{NAME}}` of the task file (repeatable)
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = tasks::parameter, requires = "file")]
    pub parameters: Vec<(String, String)>,
    /// Issue to work on: its number or URL (read by `gh` or `glab`), or a Markdown file (repeatable)
    #[arg(long = "issue", value_name = "ISSUE", value_parser = NonEmptyStringValueParser::new())]
    pub issues: Vec<String>,
    /// Words from which the id and the branch of each session are made (default: the task's)
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), conflicts_with = "file")]
    pub name: Option<String>,
    /// Maximum number of sessions that run at the same time
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    /// Number of attempts at each task, from the same commit; see `studio compare`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20), conflicts_with_all = ["file", "accept"])]
    pub attempts: Option<u32>,
    /// Agent (see `studio agents`); several, separated by commas, take the tasks in turn
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub agent: Vec<String>,
    /// Persona for g3 (see g3 --list-agents)
    #[arg(long, value_name = "NAME")]
    pub persona: Option<String>,
    /// Branch, tag or commit to start from (default: HEAD)
    #[arg(long, value_name = "REF")]
    pub base: Option<String>,
    /// Continue an existing branch: start at its tip, and land there
    #[arg(long, value_name = "BRANCH", conflicts_with_all = ["base", "pr", "worktree"])]
    pub branch: Option<String>,
    /// Continue a pull or merge request, on the branch `pr-N`
    #[arg(long, value_name = "N", conflicts_with_all = ["base", "worktree"])]
    pub pr: Option<u32>,
    /// Remote of the pull request
    #[arg(long, value_name = "NAME", default_value = "origin", requires = "pr")]
    pub remote: String,
    /// Start from the current work of this session, and land after it
    #[arg(long, value_name = "ID", conflicts_with_all = ["base", "branch", "pr", "worktree"])]
    pub on_top_of: Option<String>,
    /// Start with the uncommitted work of this worktree, which is not changed
    #[arg(long, value_name = "PATH", conflicts_with = "base")]
    pub worktree: Option<PathBuf>,
    /// A command that must pass, one `sh -c` line (repeatable; in addition to the configured ones)
    #[arg(long = "check", value_name = "LINE")]
    pub checks: Vec<String>,
    /// Model of the agent (default: the configured one)
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
    /// Place where the sessions run (see `studio places`); several, separated by commas, take the tasks in turn
    #[arg(long, value_name = "PLACE", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub on: Vec<String>,
    /// Hosts that the agents can reach: all, those of the allow list, or none
    #[arg(long, value_name = "POLICY", value_parser = NetworkPolicy::NAMES.to_vec())]
    pub network: Option<String>,
}

/// Limits of one session, over all its runs together.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct LimitArgs {
    /// Maximum cost of a session in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub budget: Option<f64>,
    /// Maximum cost of all sessions of this run together in US dollars
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub total_budget: Option<f64>,
    /// Maximum number of tokens of a session
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_tokens: Option<u64>,
    /// Maximum number of model replies in a session
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_turns: Option<u32>,
    /// Maximum working time of a session in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
    /// Maximum memory of a session's processes, e.g. 8G (default: half of the machine's)
    #[arg(long, value_name = "SIZE", value_parser = base::text::parse_size)]
    pub memory: Option<u64>,
    /// Maximum number of a session's processes and threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub processes: Option<u64>,
    /// Maximum size of a session's files on disk, e.g. 20G
    #[arg(long, value_name = "SIZE", value_parser = base::text::parse_size)]
    pub disk: Option<u64>,
}

impl LimitArgs {
    /// Returns the words of a command line with these limits.
    pub(crate) fn words(self) -> Vec<String> {
        let word = |name: &str, value: Option<String>| value.map(|it| format!("--{name}={it}"));
        let number = |name: &str, value: Option<u64>| word(name, value.map(|it| it.to_string()));
        let dollars = |name: &str, value: Option<f64>| word(name, value.map(|it| it.to_string()));
        let words = [
            dollars("budget", self.budget),
            dollars("total-budget", self.total_budget),
            number("max-tokens", self.max_tokens),
            number("max-turns", self.max_turns.map(u64::from)),
            number("timeout", self.timeout),
            number("memory", self.memory),
            number("processes", self.processes),
            number("disk", self.disk),
        ];
        words.into_iter().flatten().collect()
    }

    /// Returns the given limits.
    pub(crate) fn limits(self) -> RunLimits {
        RunLimits {
            seconds: self.timeout,
            turns: self.max_turns,
            tokens: self.max_tokens,
            usd: self.budget,
            total_usd: self.total_budget,
            memory_bytes: self.memory,
            processes: self.processes,
            disk_bytes: self.disk,
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
    let specs = session_specs(&context, args)?;
    preflight::check(&context, &specs)?;
    if args.dry_run {
        return dry_run(&context, &specs);
    }
    if args.sandbox == "off" {
        report::say(
            "warning: the agents run without the sandbox: they can read and write everything that you can",
        );
    }
    let shown = Shown { detach: args.detach, events: args.events };
    if context.json {
        return start(&context, &specs, shown);
    }
    let template = WorktreeTemplate::parse(&context.config.studio.worktree)?;
    let place = start_notices::place_notice(&context.repository, &template);
    start_and(&context, &specs, shown, |ids| {
        place.iter().for_each(|text| report::say(text));
        if !shown.detach {
            await_work(&context, ids);
        }
        match omissions(&context, &specs) {
            Ok(notices) => notices.iter().for_each(|text| report::say(text)),
            Err(failure) => report::say(&format!("warning: {failure}")),
        }
    })
}

/// How much of new sessions is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// Nothing but their ids.
    pub detach: bool,
    /// With `--json`: the events of the agents as well.
    pub events: bool,
}

/// Creates and starts sessions, and shows them until they settle.
pub(crate) fn start(context: &CommandContext, specs: &[SessionSpec], shown: Shown) -> Result<u8> {
    start_and(context, specs, shown, |_| ())
}

/// Creates and starts sessions, does something else, and shows them until they settle.
fn start_and(
    context: &CommandContext,
    specs: &[SessionSpec],
    shown: Shown,
    other: impl FnOnce(&[Id]),
) -> Result<u8> {
    let show = if shown.events { WatchFrom::Events } else { WatchFrom::States };
    // From here on, Ctrl-C stops the sessions instead of this process alone.
    let watcher = (!shown.detach).then(|| Watcher::begin(context, show)).transpose()?;
    let ids = create(context, specs)?;
    context.schedule()?;
    other(&ids);
    if let Some(watcher) = watcher {
        let outcome = watcher.watch(&ids)?;
        return summary(context, &ids, outcome);
    }
    for id in &ids {
        match context.json {
            true => report::json_line(&context.view(id)?.json()),
            false => report::out(id.as_str()),
        }
    }
    Ok(0)
}

/// Waits until an agent works, not long: before, the new worktrees need the processors, and so does
/// the search for uncommitted changes.
fn await_work(context: &CommandContext, ids: &[Id]) {
    let begin = Instant::now();
    let is_to_start = |id| match context.view(id).map(|view| view.state) {
        Ok(SessionState::Queued) => begin.elapsed() < QUEUE_WAIT,
        Ok(SessionState::Starting) => begin.elapsed() < START_WAIT,
        Ok(_) | Err(_) => false,
    };
    while ids.iter().all(is_to_start) {
        project::pause();
    }
}

/// Returns the notices about what the sessions will not contain, without duplicates.
fn omissions(context: &CommandContext, specs: &[SessionSpec]) -> Result<Vec<String>> {
    let repository = &context.repository;
    let template = WorktreeTemplate::parse(&context.config.studio.worktree)?;
    let mut notices: Vec<String> = Vec::new();
    let mut bases: Vec<Option<&str>> =
        specs.iter().filter(|spec| spec.start.is_none()).map(|spec| spec.base.as_deref()).collect();
    bases.dedup();
    for base_ref in bases {
        let base = repository.base(base_ref)?;
        let is_head = base_ref.is_none_or(|base_ref| base_ref == "HEAD");
        for text in start_notices::omission_notices(repository, &base.commit, is_head)? {
            if !notices.contains(&text) {
                notices.push(text);
            }
        }
    }
    for is_here in [true, false] {
        if specs.iter().any(|spec| spec.run_mode.place.is_none() == is_here) {
            notices.extend(start_notices::include_notice(repository, &template, is_here)?);
        }
    }
    Ok(notices)
}

/// Returns the specifications of the sessions, one per task.
fn session_specs(context: &CommandContext, args: &Args) -> Result<Vec<SessionSpec>> {
    let requirements = args.requirements.as_deref().map(requirements::read).transpose()?;
    if requirements.is_some() && args.file.is_some() {
        return Err(Failure::usage("--requirements cannot be used with --tasks")
            .because("the tasks of a list name their own requirements")
            .hint("give the tasks themselves: studio run --requirements FILE 'one' 'two'"));
    }
    let mut specs = Vec::new();
    for task in &args.tasks {
        specs.push(SessionSpec::of(if task == "-" { stdin_task()? } else { task.clone() }));
    }
    if let Some(file) = &args.file {
        specs.extend(tasks::read(file, &args.parameters)?);
    }
    for reference in &args.issues {
        specs.push(SessionSpec::of(issue::read(context, reference)?));
    }
    if let Some(requirements) = requirements.as_ref().filter(|_| specs.is_empty()) {
        specs.push(SessionSpec::of(requirements.title.clone()));
    }
    if specs.is_empty() {
        return Err(Failure::usage("no task is given")
            .hint("studio run 'add a test for the parser'")
            .hint("studio run --tasks FILE")
            .hint("studio run --issue 42")
            .hint("studio run --requirements FILE"));
    }
    let mut specs = with_attempts(specs, args.attempts.unwrap_or(1));
    let start = session_start(context, args)?;
    let (mut agents, mut places) = (args.agent.iter().cycle(), args.on.iter().cycle());
    for spec in &mut specs {
        spec.agent = spec.agent.take().or_else(|| agents.next().cloned());
        let place = spec.run_mode.place.take().or_else(|| places.next().cloned());
        apply_flags(spec, args);
        let default_place = || context.config.studio.on.clone();
        spec.run_mode.place = place.or_else(default_place).filter(|name| name != HERE);
        spec.start = start.clone().filter(|_| spec.base.is_none());
        if let Some(name) = &spec.run_mode.place {
            let base = match &spec.start {
                Some(start) => start.head.clone(),
                None => context.repository.base(spec.base.as_deref())?.commit,
            };
            configured_place::find_for(context, name, &base)?;
        }
        requirements.iter().for_each(|requirements| requirements.apply_to(spec));
        refuse_bad_task(&spec.task)?;
        let agent = spec.agent.take().or_else(|| context.config.studio.agent.clone());
        let agent = agent.unwrap_or_else(|| "g3".to_owned());
        let options = AgentOptions::from(&*spec);
        let row = agent_requirements::agent_for(
            &context.config,
            &agent,
            options,
            &spec.plan_ref,
            &spec.checks,
        )?;
        command::refuse_too_long(&row, &spec.task)?;
        spec.agent = Some(agent);
    }
    Ok(specs)
}

/// Repeats each task for the given number of attempts; the attempts at one task follow each other.
fn with_attempts(specs: Vec<SessionSpec>, attempts: u32) -> Vec<SessionSpec> {
    if attempts == 1 {
        return specs;
    }
    let repeat = |(task, spec): (usize, SessionSpec)| {
        let attempt = move |number| Some(AttemptSpec { task, number });
        (1..=attempts).map(move |n| SessionSpec { attempt: attempt(n), ..spec.clone() })
    };
    specs.into_iter().enumerate().flat_map(repeat).collect()
}

/// Returns where the sessions start, if it is not a plain commit.
fn session_start(context: &CommandContext, args: &Args) -> Result<Option<SessionStart>> {
    let at =
        |base: Base| SessionStart { head: base.commit.clone(), base, work: None, origin: None };
    if let Some(branch) = &args.branch {
        return start_point::branch(&context.repository, branch).map(at).map(Some);
    }
    if let Some(number) = args.pr {
        let base = start_point::pull_request(&context.repository, &args.remote, number)?;
        return Ok(Some(at(base)));
    }
    if let Some(id) = &args.on_top_of {
        let lower = context.find(Some(id), |state| !state.is_over())?;
        return fork::start_on_top_of(context, &lower).map(Some);
    }
    let Some(path) = &args.worktree else { return Ok(None) };
    let path = match &context.directory {
        Some(directory) => directory.join(path),
        None => path.clone(),
    };
    let start = fork::start_from_worktree(context, &path)?;
    for omitted in start.work.iter().flat_map(|work| &work.omitted).filter(|_| !context.json) {
        report::say(&format!("note: not in the session: {omitted}"));
    }
    Ok(Some(start))
}

fn refuse_bad_task(task: &str) -> Result<()> {
    let hint = "studio run 'your task'";
    if task.trim().is_empty() {
        return Err(Failure::usage("the task is empty").hint(hint));
    }
    if task.len() > MAX_TASK_BYTES {
        return Err(Failure::usage(format!("the task has more than {MAX_TASK_BYTES} bytes"))
            .hint("put it into a file in the repository and name that file in the task"));
    }
    if task.contains('\0') {
        return Err(Failure::usage("the task contains a NUL byte").hint(hint));
    }
    Ok(())
}

fn stdin_task() -> Result<String> {
    let mut text = String::new();
    let limit = MAX_TASK_BYTES as u64 + 1;
    std::io::stdin().take(limit).read_to_string(&mut text).or_fail(|| "cannot read the task")?;
    Ok(text.trim_end().to_owned())
}

/// Applies the flags to a task's unset fields.
fn apply_flags(spec: &mut SessionSpec, args: &Args) {
    spec.name = args.name.clone();
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
        network: args.network.as_deref().and_then(NetworkPolicy::parse),
        run: None,
        place: None,
        home: None,
        config: None,
        directory: None,
    };
}

/// Returns whether the user can answer permission requests.
pub(crate) fn is_attended(ask: bool) -> bool {
    ask || (std::io::stdin().is_terminal() && std::io::stderr().is_terminal())
}

fn dry_run(context: &CommandContext, specs: &[SessionSpec]) -> Result<u8> {
    for spec in specs {
        let record = draft(context, spec)?;
        worktree::refuse_blocked_branch(&*context.repository.open()?, &record.session_repo)?;
        if context.json {
            report::json_line(&json!({
                "task": record.task, "attempt": record.attempt, "agent": record.agent, "persona": record.persona,
                "base": record.base, "checks": record.checks, "name": spec.plan_ref.name,
                "after": spec.after, "paths": spec.plan_ref.paths,
                "requirements": spec.plan_ref.requirements, "contract": spec.plan_ref.contract,
            }));
            continue;
        }
        let after = match spec.after.as_slice() {
            [] => String::new(),
            after => format!(", after {}", after.join(", ")),
        };
        let attempt = match spec.attempt {
            Some(attempt) => format!(", attempt {}", attempt.number),
            None => String::new(),
        };
        let rounds = match &spec.plan_ref.contract {
            Some(_) => format!(", player and coach for {}", spec.plan_ref.requirements.join(", ")),
            None => String::new(),
        };
        report::out(&base::text::printable(&format!(
            "would start: {} (agent {}, base {}{attempt}{after}{rounds})",
            table::first_lines(&spec.task, 1),
            table::agent(&record),
            base::text::head(&record.base.commit, 12),
        )));
    }
    Ok(0)
}

/// Prints the summary of `run` and returns its exit code.
fn summary(context: &CommandContext, ids: &[Id], outcome: WatchOutcome) -> Result<u8> {
    let views = ids.iter().map(|id| context.view(id)).collect::<Result<Vec<_>>>()?;
    if context.json {
        let sessions: Vec<_> = views.iter().map(|view| view.json()).collect();
        report::json_line(&json!({"type": "summary", "sessions": sessions}));
    } else {
        list::show(context, &views)?;
    }
    if outcome == WatchOutcome::Interrupted {
        return Ok(130);
    }
    if let Some(view) = views.iter().find(|it| it.record.group.is_some() && !context.json) {
        report::say(&format!("compare the attempts: studio compare {}", view.record.id));
    }
    for view in views.iter().filter(|view| view.is_blocked() && !context.json) {
        let reason = view.reason().unwrap_or_default();
        report::say(&base::text::printable(&format!("{}: {reason}", view.record.id)));
    }
    let is_success = |view: &SessionView| {
        matches!(view.state, SessionState::Ready | SessionState::Accepted | SessionState::Empty)
            || view.is_blocked()
    };
    if !views.iter().all(is_success) {
        return Ok(1);
    }
    let unlanded =
        |view: &&SessionView| view.record.run_mode.accept && view.state == SessionState::Ready;
    let unlanded: Vec<&SessionView> = views.iter().filter(unlanded).collect();
    for view in &unlanded {
        let reason = view.facts.summary.note.as_deref().unwrap_or("it did not land");
        report::say(&base::text::printable(&format!("{}: {reason}", view.record.id)));
    }
    Ok(if unlanded.is_empty() { 0 } else { FailureKind::Refused as u8 })
}
