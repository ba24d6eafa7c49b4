//! `g3 tool …`: lists and runs tools without a model, shows permission decisions, and undoes
//! writes.

use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::config::keyless::KeylessConfig;
use base::config::{Config, ConfigSources};
use base::failure::{Failure, OrFail, Result};
use base::id::Id;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::ui::live_area::LiveArea;
use crate::ui::terminal;
use agent_core::call_line::call_line;
use agent_core::run::root_of;
use agent_core::session::sessions_dir;
use gate::Gate;
use memory::Memory;
use tools::args as arguments;
use tools::context::ToolContext;
use tools::dispatch;
use tools::exec::confinement::command_confinement;
use tools::output::{ToolErrorKind, ToolOutput};
use tools::profile::Profile;
use tools::profile::{self, ProfileTool, docs_page};
use tools::screen_access::ScreenAccess;
use tools::services::{BrowserOwner, Toolset};

mod check;
mod undo;

/// `g3 tool …`.
#[derive(Debug, Args)]
pub(crate) struct ToolArgs {
    #[command(subcommand)]
    command: ToolCommand,
}

#[derive(Debug, Subcommand)]
enum ToolCommand {
    /// List the tools of a profile
    List(ListArgs),
    /// Run one tool
    Exec(ExecArgs),
    /// Show the permission decision for a call, without running it
    Check(check::CheckArgs),
    /// Undo the last write of a tool
    Undo(undo::UndoArgs),
    /// Start a browser and end it when no session uses it any more (g3 runs this itself)
    #[command(hide = true)]
    KeepBrowser {
        /// Browser to start, as JSON
        order: String,
    },
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Tool profile
    #[arg(long, value_enum, default_value = "g3")]
    profile: Profile,
    /// Print a JSON array with name, description, parameters and enabling setting of each tool
    #[arg(long)]
    schemas: bool,
    /// Print docs/tools.md: all tools of all profiles
    #[arg(long, conflicts_with_all = ["profile", "schemas"])]
    markdown: bool,
}

/// The flags that describe a tool call.
#[derive(Debug, Args)]
struct CallArgs {
    /// Tool profile
    #[arg(long, value_enum, default_value = "g3")]
    profile: Profile,
    /// The tool
    #[arg(long)]
    name: String,
    /// Arguments: a JSON object, @FILE, or - for stdin
    #[arg(long, default_value = "{}", allow_hyphen_values = true)]
    args: String,
    /// Working directory of the tool
    #[arg(long)]
    cwd: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ExecArgs {
    #[command(flatten)]
    call: CallArgs,
    /// Session whose state is used [default: one per directory]
    #[arg(long)]
    session: Option<String>,
    /// Print one JSON object instead of the text
    #[arg(long)]
    json: bool,
}

/// The id of the call; only one runs.
const CALL: &str = "call";

/// The session of calls without `--session`.
const SESSION: &str = "tool-exec";

/// Runs `g3 tool …` and returns the exit code.
pub(crate) fn run(args: &ToolArgs, toolset: &'static dyn Toolset) -> Result<u8> {
    match &args.command {
        ToolCommand::List(args) => list(args).map(|()| 0),
        ToolCommand::Exec(args) => exec(args, toolset),
        ToolCommand::Check(args) => check::run(args, toolset),
        ToolCommand::Undo(args) => undo::run(args).map(|()| 0),
        ToolCommand::KeepBrowser { order } => keep_browser(order, toolset).map(|()| 0),
    }
}

fn list(args: &ListArgs) -> Result<()> {
    if args.markdown {
        return print(&docs_page::markdown());
    }
    let tools = profile::tools(args.profile);
    if args.schemas {
        let all: Vec<Value> = tools.into_iter().map(schema).collect();
        return print(&format!("{:#}\n", Value::Array(all)));
    }
    let widest = tools.iter().map(|face| face.name.len()).max().unwrap_or(0);
    let width = tools.iter().map(|face| face.enabled_by.len()).max().unwrap_or(0).max(10);
    let mut table = format!("{:widest$}  {:width$}  DESCRIPTION\n", "NAME", "ENABLED BY");
    for face in tools {
        let first = face.description.split(". ").next().unwrap_or_default().trim_end_matches('.');
        table.push_str(&format!("{:widest$}  {:width$}  {first}\n", face.name, face.enabled_by));
    }
    print(&table)
}

fn schema(face: &ProfileTool) -> Value {
    json!({
        "name": face.name,
        "description": face.description,
        "parameters": face.parameters,
        "enabled_by": face.enabled_by,
    })
}

fn exec(args: &ExecArgs, toolset: &'static dyn Toolset) -> Result<u8> {
    let raw_args = read_args(&args.call.args)?;
    let (cwd, config) = load_config(args.call.cwd.as_deref())?;
    let mut context = tool_context((&cwd, args.session.as_deref()), &config, toolset)?;
    create_session_dir(&context)?;
    let live = Arc::new(Mutex::new(LiveArea::new()));
    context.on_output = live_output(&live);
    let started = Instant::now();
    let outcome = match serde_json::from_str::<Value>(&raw_args) {
        Ok(call @ Value::Object(_)) => {
            with_live(&live, |live| {
                live.fit(terminal::stderr_width());
                live.begin(CALL, &call_line(&args.call.name, &call));
                live.show();
            });
            let outcome = run_to_completion(args.call.profile, &args.call.name, &call, &context);
            with_live(&live, LiveArea::hide);
            outcome?
        }
        Ok(_) | Err(_) => arguments::malformed(args.call.profile, &args.call.name, &raw_args),
    };
    let text = if args.json {
        format!("{}\n", as_json(&outcome, started.elapsed()))
    } else {
        format!("{}\n", outcome.text.trim_end_matches('\n'))
    };
    print(&text)?;
    Ok(exit_code(&outcome))
}

/// Returns a callback that shows a tool's output on stderr, if that is a terminal.
fn live_output(live: &Arc<Mutex<LiveArea>>) -> Arc<dyn Fn(&str) + Send + Sync> {
    let live = live.clone();
    Arc::new(move |text| with_live(&live, |live| live.append(CALL, text)))
}

fn with_live(live: &Mutex<LiveArea>, work: impl FnOnce(&mut LiveArea)) {
    work(&mut base::sync::lock(live));
}

fn keep_browser(order: &str, toolset: &dyn Toolset) -> Result<()> {
    // The parent process reads one line. If it cannot be written, the parent has exited and the
    // daemon ends too.
    runtime()?.block_on(toolset.keep_browser(order, &|line| drop(print(line))))
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    base::runtime::current_thread().or_fail(|| "cannot start the runtime")
}

fn run_to_completion(
    profile: Profile,
    name: &str,
    call: &Value,
    context: &ToolContext,
) -> Result<ToolOutput> {
    let runtime = runtime()?;
    let cancel = context.cancel.clone();
    Ok(runtime.block_on(async {
        let interrupted = async {
            // Without the signal handler, the call cannot be cancelled.
            if tokio::signal::ctrl_c().await.is_ok() {
                cancel.cancel();
            }
            std::future::pending::<()>().await
        };
        let outcome = tokio::select! {
            outcome = dispatch::run(profile, name, call, context) => outcome,
            () = interrupted => ToolOutput::default(),
        };
        if let Some(servers) = &context.services.lsp {
            servers.close().await;
        }
        if let Some(desktop) = &context.services.desktop {
            desktop.close().await;
        }
        outcome
    }))
}

/// Reads the arguments: the text itself, a file (`@FILE`) or stdin (`-`).
fn read_args(args: &str) -> Result<String> {
    if args == "-" {
        let mut text = String::new();
        let mut stdin = io::stdin().take(base::files::MAX_READ_BYTES);
        stdin.read_to_string(&mut text).or_fail(|| "cannot read the arguments on stdin")?;
        return Ok(text);
    }
    let Some(file) = args.strip_prefix('@') else { return Ok(args.to_owned()) };
    base::files::read_text(Path::new(file)).map_err(|error| {
        Failure::usage(format!("cannot read the arguments in {file}"))
            .because(error)
            .hint("pass them as JSON: --args '{\"key\": …}'")
    })
}

/// Returns the working directory of a call.
fn directory(cwd: Option<&Path>) -> Result<PathBuf> {
    let current_dir = std::env::current_dir().or_fail(|| "cannot tell the working directory")?;
    let cwd = cwd.map_or(current_dir.clone(), |cwd| current_dir.join(cwd));
    if !cwd.is_dir() {
        let what = format!("no such directory: {}", cwd.display());
        return Err(Failure::usage(what).hint("name an existing one with --cwd"));
    }
    Ok(cwd)
}

/// Returns the working directory of a call and the configuration there.
fn load_config(cwd: Option<&Path>) -> Result<(PathBuf, Config)> {
    let cwd = directory(cwd)?;
    let keyless = KeylessConfig::inherited()?;
    let loaded = base::config::load(&ConfigSources { keyless, ..ConfigSources::from_env(&cwd) })?;
    Ok((cwd, loaded.config))
}

/// Returns the directory for the state of calls.
fn state_dir(cwd: &Path, session: Option<&str>) -> Result<PathBuf> {
    let session = match session {
        Some(session) => {
            Id::parse(session).map_err(|error| Failure::usage(error.to_string()))?.to_string()
        }
        None => SESSION.to_owned(),
    };
    Ok(sessions_dir(cwd).join(session))
}

fn tool_context(
    (cwd, session): (&Path, Option<&str>),
    config: &Config,
    toolset: &'static dyn Toolset,
) -> Result<ToolContext> {
    let mut context = ToolContext::quiet(toolset.registry(), cwd, state_dir(cwd, session)?);
    context.root = root_of(cwd);
    context.gate = Arc::new(
        Gate::new(&config.gate, None)?.with_confinement(command_confinement(&config.sandbox)),
    );
    context.services = toolset.services(config, BrowserOwner::Calls)?;
    context.memory = Arc::new(Memory::new(config, None));
    context.services.screen = Arc::new(ScreenAccess::for_person(config));
    context.skills = Arc::new(skills::find::load(&config.skills, cwd));
    Ok(context)
}

/// Creates the directory for the state of calls.
fn create_session_dir(context: &ToolContext) -> Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&context.session_dir)
        .or_fail(|| format!("cannot make {}", context.session_dir.display()))
        .map_err(|failure| match base::user_dirs::home_dir() {
            Some(_) => failure,
            None => failure.hint("set HOME or XDG_STATE_HOME"),
        })
}

fn as_json(outcome: &ToolOutput, duration: Duration) -> Value {
    json!({
        "ok": outcome.ok,
        "text": outcome.text,
        "metadata": outcome.metadata,
        "images": outcome.images,
        "duration_ms": u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        "escalate": outcome.escalate,
        "error_kind": outcome.error_kind,
    })
}

/// Returns the exit code: 0 for success, 1 for a failure, 2 for an invalid call.
fn exit_code(outcome: &ToolOutput) -> u8 {
    match outcome.error_kind {
        _ if outcome.ok => 0,
        Some(ToolErrorKind::Validation | ToolErrorKind::UnknownTool) => 2,
        Some(
            ToolErrorKind::Denied
            | ToolErrorKind::NotFound
            | ToolErrorKind::Timeout
            | ToolErrorKind::Cancelled
            | ToolErrorKind::Failed,
        )
        | None => 1,
    }
}

fn print(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // The reader closed the pipe early.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.or_fail(|| "cannot write to stdout"),
    }
}
