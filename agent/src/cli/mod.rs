//! The command line as types, and its dispatch to the modes and subcommands.

pub mod agents;
pub mod config;
pub mod login;
pub mod mcp;
pub mod mode;
pub mod model;
pub mod plan;
pub mod sandbox;
pub mod sessions;
pub mod settings;
mod show;
pub mod skills;
pub mod tool;
pub mod trace;
pub mod trust;
pub mod usage_error;

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use base::clock::Clock;
use base::failure::{Failure, OrFail, Result};
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::modes::autonomous::RunTerms;
use crate::modes::interactive::Opening;
use crate::modes::{
    accumulative, acp, attachments, autonomous, complete, interactive, planning, single_task,
};
use crate::ui;
use crate::ui::plain_output::PlainOutput;
use agent_core::bus::Bus;
use agent_core::run::SessionSelector;
use agent_core::run::outcome::report_failure;
use mode::{ExplicitFlags, Mode, ModeArgs};
use provider::message::Image;
use settings::{BrowserArgs, cwd_of_user, settings};
use show::ShowOptions;
use tools::services::Toolset;

/// A coding agent: it asks a model, runs the tools that the model calls, and shows the result.
#[derive(Debug, Parser)]
#[command(name = "g3", version, max_term_width = 100, args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Examples:\n  g3 \"make the tests pass\"\n  g3 - < task.md\n  g3 --resume\n  \
                        git diff | g3 complete\n\nExit codes: 0 done, 1 failed, 2 usage or \
                        configuration, 3 not approved or a limit reached, 130 interrupted."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    common: GlobalArgs,
    #[command(flatten)]
    agent: AgentArgs,
}

/// Flags that every mode accepts.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GlobalArgs {
    /// Provider to use (TYPE or TYPE.NAME from the configuration)
    #[arg(long, value_name = "TYPE[.NAME]")]
    pub provider: Option<String>,
    /// Model to use instead of the configured one
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    pub model: Option<String>,
    /// Fallback model to use when the model is overloaded
    #[arg(long, value_name = "MODEL", value_parser = NonEmptyStringValueParser::new())]
    pub fallback_model: Option<String>,
    /// Read this file instead of the user's and the repository's configuration
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Run as if started in this directory
    #[arg(short = 'w', long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    #[command(flatten)]
    trace: trace::TraceArgs,
}

/// Flags of the modes that run an agent.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AgentArgs {
    /// Task to run (`-` for stdin); starts an interactive session if omitted
    task: Option<String>,
    /// Tool profile: g3, egirl, tools-api, core or all
    #[arg(long)]
    pub profile: Option<String>,
    /// Resume a session: the latest in this directory, or the one with this id (or start of an id)
    #[arg(long, value_name = "ID", num_args = 0..=1, conflicts_with = "new_session")]
    resume: Option<Option<String>>,
    /// Start a new session (default)
    #[arg(long)]
    new_session: bool,
    /// Chat only: the model gets no tools
    #[arg(long)]
    pub chat: bool,
    /// Move each finished turn out of the conversation into a file that the model can read
    /// again
    #[arg(long)]
    pub acd: bool,
    /// Work as this persona (see --list-agents)
    #[arg(long, value_name = "NAME")]
    pub agent: Option<String>,
    /// Attach this image (PNG, JPEG, GIF or WebP) to the task or the first message (repeatable)
    #[arg(long = "image", value_name = "FILE")]
    images: Vec<PathBuf>,
    /// Run as if started in this directory, and give the model a report about its code first:
    /// languages, layout, build files, names
    #[arg(long, value_name = "DIR", conflicts_with_all = ["workspace", "resume"])]
    codebase_fast_start: Option<PathBuf>,
    #[command(flatten)]
    mode: ModeArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    notes: NoteArgs,
    #[command(flatten)]
    browser: BrowserArgs,
    #[command(flatten)]
    show: ShowOptions,
}

/// Flags for the workspace notes.
#[derive(Clone, Debug, Default, Args)]
struct NoteArgs {
    /// Keep the workspace notes in this file instead of analysis/memory.md
    #[arg(long, value_name = "PATH")]
    memory: Option<PathBuf>,
    /// Ask the model for notes after a turn with new findings
    #[arg(long, overrides_with = "no_auto_memory")]
    auto_memory: bool,
    /// Never ask for notes
    #[arg(long)]
    no_auto_memory: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the Agent Client Protocol on stdin and stdout (for editors and studio)
    Acp(AcpArgs),
    /// Answer one question from stdin, without tools
    Complete(GlobalArgs),
    /// Refine a feature request, or split requirements into tasks (used by `studio plan`)
    Plan(plan::PlanArgs),
    /// List tools, or run one
    Tool(tool::ToolArgs),
    /// Trust this repository's configuration, by its content
    Trust(trust::TrustArgs),
    /// Run any program in the sandbox of g3's commands
    #[command(
        after_help = "Examples:\n  g3 sandbox -- make test\n  g3 sandbox -- sh -c 'cat ~/.ssh/id_ed25519'"
    )]
    Sandbox(sandbox::SandboxCommandArgs),
    /// Show the configuration
    Config(config::ConfigArgs),
    /// Sign in to a provider through the browser
    Login(login::LoginArgs),
    /// List, download, add, serve and remove local models
    Model(model::ModelArgs),
    /// Manage MCP servers, or serve g3's tools over MCP
    Mcp(mcp::McpArgs),
    /// List, show, export, fork, delete or import sessions of this directory, or message a running one
    Sessions(sessions::SessionsArgs),
    /// List the available skills, or check them
    Skills(skills::SkillsArgs),
    /// Print a shell completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// `g3 acp`.
#[derive(Clone, Debug, Args)]
struct AcpArgs {
    #[command(flatten)]
    common: GlobalArgs,
    /// Tool profile: g3, egirl, tools-api, core or all
    #[arg(long)]
    profile: Option<String>,
    /// Move each finished turn out of the conversation into a file
    #[arg(long)]
    acd: bool,
    /// Work as this persona (see --list-agents)
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    #[command(flatten)]
    rounds: RoundArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    browser: BrowserArgs,
    /// Do not send g3's own events (`_g3/event`)
    #[arg(long)]
    no_events: bool,
    /// Check flags, configuration and provider, print an error as JSON, and exit
    #[arg(long)]
    dry_run: bool,
}

/// Flags for player and coach over ACP.
#[derive(Clone, Debug, Args)]
struct RoundArgs {
    /// Run prompts with a player and a coach; the first prompt states the requirements
    #[arg(long, conflicts_with = "agent")]
    autonomous: bool,
    /// With --autonomous: check that must pass, run with `sh -c` (repeatable)
    #[arg(long = "check", value_name = "LINE", requires = "autonomous")]
    checks: Vec<String>,
}

/// Limits of one run (over ACP: one prompt). A run that reaches a limit ends with exit code 3.
#[derive(Clone, Debug, Default, Args)]
struct LimitArgs {
    /// Maximum number of model requests; with --autonomous and --auto, maximum number of rounds
    /// of player and coach [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_turns: Option<u32>,
    /// Maximum number of tokens, input and output, including cached ones
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tokens: Option<u64>,
    /// Maximum cost in US dollars (requires a model with a known price)
    #[arg(long, value_name = "USD", value_parser = dollars)]
    budget: Option<f64>,
    /// Maximum running time in seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
}

/// Parses an amount of money: finite and greater than 0.
fn dollars(text: &str) -> std::result::Result<f64, String> {
    let amount: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let usable = amount.is_finite() && amount > 0.0;
    usable.then_some(amount).ok_or_else(|| "must be greater than 0".to_owned())
}

/// Parses the command line, runs it and returns the exit code.
pub fn main(toolset: &'static dyn Toolset) -> u8 {
    let matches = Cli::command().try_get_matches();
    let parsed = matches
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, ExplicitFlags::of(&matches))));
    let (cli, explicit_flags) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return usage_error::report(&error),
    };
    match run(cli, &explicit_flags, toolset) {
        Ok(code) => code,
        Err(failure) => {
            ui::fail(&failure);
            failure.exit_code()
        }
    }
}

fn run(cli: Cli, explicit_flags: &ExplicitFlags, toolset: &'static dyn Toolset) -> Result<u8> {
    match cli.command {
        None => in_runtime(agent((cli.common, cli.agent), explicit_flags, toolset)),
        Some(Command::Acp(args)) => in_runtime(serve(args, toolset)),
        Some(Command::Complete(common)) => in_runtime(answer(common, toolset)),
        Some(Command::Plan(args)) => in_runtime(plan::run(args, toolset)),
        Some(Command::Tool(args)) => tool::run(&args, toolset),
        Some(Command::Trust(args)) => trust::run(&args),
        Some(Command::Sandbox(args)) => sandbox::run(&args),
        Some(Command::Config(args)) => config::run(&args),
        Some(Command::Login(args)) => in_runtime(login::run(&args)),
        Some(Command::Model(args)) => model::run(&args),
        Some(Command::Mcp(args)) => mcp::run(args, toolset),
        Some(Command::Sessions(args)) => sessions::run(&args),
        Some(Command::Skills(args)) => skills::run(&args),
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "g3", &mut script);
            ui::print(&String::from_utf8_lossy(&script)).map(|()| 0)
        }
    }
}

fn in_runtime<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = base::runtime::current_thread().or_fail(|| "cannot start the runtime")?;
    let result = runtime.block_on(work);
    // A thread that still waits for a line from the terminal must not delay the exit.
    runtime.shutdown_background();
    result
}

async fn agent(
    (mut common, mut args): (GlobalArgs, AgentArgs),
    explicit_flags: &ExplicitFlags,
    toolset: &'static dyn Toolset,
) -> Result<u8> {
    if args.mode.list_agents {
        explicit_flags.check_mode(Mode::List)?;
        return agents::list(&common, args.show.json);
    }
    let bus = Bus::new(Clock::from_env(), args.show.sinks()?);
    let mut setup = || -> Result<_> {
        common.workspace = args.codebase_fast_start.clone().or(common.workspace.take());
        let task = task(&args)?;
        let mode = Mode::of(&args.mode, task.is_some());
        explicit_flags.check_mode(mode)?;
        let cwd = common.workspace.clone().unwrap_or_else(|| PathBuf::from("."));
        common.workspace = args.mode.code_path(&cwd)?.or(common.workspace.take());
        if let Some(requested) = &args.resume
            && args.agent.is_none()
            && !args.mode.is_some()
        {
            let agent = agents::of_session(&common, requested.as_deref());
            args.agent = agent.map_err(|failure| match requested {
                Some(text) if args.task.is_none() => {
                    failure.hint(format!("if this is the task: g3 --resume -- {text:?}"))
                }
                Some(_) | None => failure,
            })?;
        }
        let settings = settings(&common, &args, toolset)?;
        let pictures = args.images.iter().map(|file| attachments::picture(&cwd_of_user(), file));
        let pictures = pictures.collect::<Result<Vec<Image>>>()?;
        let trace = trace::begin(&common, &settings.config, mode.name())?;
        Ok((settings, trace, (task, pictures), mode))
    };
    let (settings, trace, (task, pictures), mode) =
        setup().inspect_err(|failure| report_failure(&bus, failure))?;
    let asker = args.show.asker(&bus);
    let selector = match &args.resume {
        Some(requested) => SessionSelector::Resume(requested.clone()),
        None => SessionSelector::New(task.clone().unwrap_or_default()),
    };
    let request = |settings| {
        mode::run_request(settings, &args, mode)
            .inspect_err(|failure| report_failure(&bus, failure))
    };
    let work = async {
        let status = match mode {
            Mode::List => return Ok(0),
            Mode::Once => {
                let task = task.unwrap_or_default();
                single_task::run(&settings, &selector, (&task, pictures), bus.clone(), asker)
                    .await?
            }
            Mode::Interactive => {
                let opening = Opening { selector, pictures };
                interactive::run(settings, opening, bus.clone(), asker).await?
            }
            Mode::Autonomous => autonomous::alone(&request(settings)?, bus.clone(), asker).await?,
            Mode::Accumulative => accumulative::run(request(settings)?, bus.clone(), asker).await?,
            Mode::Planning => {
                planning::run(mode::plan_request(settings, &args)?, bus.clone(), asker).await?
            }
        };
        Ok(status.exit())
    };
    trace.finish(work.await)
}

async fn serve(args: AcpArgs, toolset: &'static dyn Toolset) -> Result<u8> {
    let AcpArgs { common, profile, acd, agent, rounds, limits, browser, no_events, dry_run } = args;
    let terms = RunTerms { rounds: limits.max_turns, checks: rounds.checks };
    let rounds = rounds.autonomous.then_some(terms);
    let agent = AgentArgs { profile, acd, agent, limits, browser, ..AgentArgs::default() };
    if dry_run {
        let result = settings(&common, &agent, toolset).and_then(|settings| {
            let roles = &settings.config.providers;
            let roles = rounds.as_ref().map(|_| [&roles.player, &roles.coach]);
            let roles = roles.into_iter().flatten().flatten().cloned();
            provider::check(&settings.config, &settings.choice, roles)
        });
        return match result {
            Ok(()) => Ok(0),
            Err(failure) => {
                let report = serde_json::json!({ "error": failure.to_json() });
                ui::print(&format!("{report}\n")).map(|()| failure.exit_code())
            }
        };
    }
    let trace = trace::begin_anywhere(&common, "acp")?;
    let settings_for = move |cwd: &std::path::Path| {
        let common = GlobalArgs { workspace: Some(cwd.to_owned()), ..common.clone() };
        settings(&common, &agent, toolset)
    };
    let service = acp::AcpService { settings: Box::new(settings_for), rounds, events: !no_events };
    trace.finish(acp::run(service).await.map(|()| 0))
}

async fn answer(common: GlobalArgs, toolset: &'static dyn Toolset) -> Result<u8> {
    let settings = settings(&common, &AgentArgs::default(), toolset)?;
    let trace = trace::begin(&common, &settings.config, "complete")?;
    let work = async {
        let question = stdin_text()?;
        let output = PlainOutput::new(std::io::stdout(), Some(std::io::stderr()));
        let bus = Bus::new(Clock::from_env(), vec![Box::new(output)]);
        let text = complete::run(&settings, &question, bus).await?.text;
        let newline = if text.ends_with('\n') { "" } else { "\n" };
        ui::print(&format!("{text}{newline}")).map(|()| 0)
    };
    trace.finish(work.await)
}

/// Returns the task: the argument, or stdin for `-`. Without an argument, if stdin is not a terminal,
/// `--resume` asks the model to go on and `--agent` uses [`agents::MISSION`]. `None` starts an
/// interactive session or a mode that reads its own input.
fn task(args: &AgentArgs) -> Result<Option<String>> {
    let task = match args.task.as_deref() {
        Some("-") => Some(stdin_text()?),
        Some(word) if usage_error::is_misspelled_command(word) => {
            return Err(usage_error::unknown_command(word));
        }
        Some(task) => Some(task.to_owned()),
        None if args.mode.is_some() => None,
        None if args.resume.is_some() && !std::io::stdin().is_terminal() => {
            Some("Go on with the task where you stopped.".to_owned())
        }
        None if args.agent.is_some() && !std::io::stdin().is_terminal() => {
            Some(agents::MISSION.to_owned())
        }
        None => None,
    };
    match task {
        Some(task) if task.trim().is_empty() => {
            Err(Failure::usage("the task is empty").hint("g3 \"your task\""))
        }
        task => Ok(task),
    }
}

fn stdin_text() -> Result<String> {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes).or_fail(|| "cannot read stdin")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
