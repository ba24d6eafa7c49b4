//! The command tool: from the arguments to a process and its outcome.

use std::io;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::process::{ProcessEnd, ProcessResult, ProcessSpec, run as run_process};
use super::{background, heredoc, output_window, render};
use gate::{Permit, paths};
use tools::call::Invocation;
use tools::client_io::TerminalCommand;
use tools::exec::directory;
use tools::exec::environment::Environment;
use tools::exec::output::{OutputBudget, StreamCapture};
use tools::exec::sandbox::TIMEOUT;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::profile::OutputStyle;
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    command: String,
    timeout_ms: Option<u64>,
    max_timeout_ms: Option<u64>,
    #[serde(default)]
    environment: Environment,
    show: OutputBudget,
    #[serde(default)]
    keep_directory: bool,
    #[serde(default)]
    in_background: bool,
    /// Whether a GUI program is launched in the background.
    #[serde(default)]
    launch_windows: bool,
}

/// The output budget of a small model.
const PLAIN: OutputBudget = OutputBudget { head: 1500, tail: 1500 };

/// The tool that runs a command line.
pub(crate) struct ShellTool;

impl Tool for ShellTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("exec.run", Effect::Runs)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope { keys: super::touches(call), ..super::scope(call) }
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Runs a command line.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let pass = call.permit;
    let args: Args = call.decode()?;
    if args.command.trim().is_empty() {
        return Err(ToolError::invalid(format!("{}: `command` is empty", call.profile_tool.name)));
    }
    if !call.path.is_dir() {
        let kind = match call.profile_tool.style {
            OutputStyle::ToolsApi => ToolErrorKind::Validation,
            OutputStyle::G3 | OutputStyle::Egirl | OutputStyle::Core => ToolErrorKind::NotFound,
        };
        let text = format!(
            "Failed to execute command: the directory {} does not exist",
            call.path.display()
        );
        return Err(ToolError::new(kind, text));
    }
    if args.in_background {
        return background::run(call).await;
    }
    let sandboxed = pass == Permit::ScratchSandbox;
    if args.launch_windows && !sandboxed && output_window::is_windowed(&args.command) {
        return output_window::launch(call).await;
    }
    let limit = args.max_timeout_ms.unwrap_or(u64::MAX);
    let time = args.timeout_ms.map(|ms| Duration::from_millis(ms.clamp(1, limit)));
    let failed = |e: io::Error| ToolError::failed(format!("Failed to execute command: {e}"));
    let order = ProcessSpec {
        line: &args.command,
        cwd: &call.path,
        environment: args.environment,
        time: if sandboxed { Some(time.unwrap_or(TIMEOUT).min(TIMEOUT)) } else { time },
        show: if call.context.plain {
            PLAIN
        } else {
            args.show.within(call.context.result_limit / 2)
        },
        hold: call.context.containment(pass).map_err(failed)?,
        attended: args.keep_directory && !sandboxed,
    };
    let ran = match heredoc::order(call) {
        Some(patch) => Ok(heredoc::run(call, &patch, order.show)),
        None => match in_terminal(&order, call).await {
            Some(ran) => ran,
            None => run_process(&order, call.context).await,
        },
    };
    let ran = ran.map_err(failed)?;
    if let Some(directory) = &ran.directory
        && args.keep_directory
        && directory.is_dir()
        && paths::is_inside(directory, &call.context.root)
    {
        directory::store(&call.context.session_dir, directory);
    }
    let mut outcome = render::outcome(call, &args.command, order.time, &ran);
    if sandboxed && let Some(facts) = outcome.metadata.as_object_mut() {
        facts.insert("sandboxed".to_owned(), true.into());
    }
    Ok(outcome)
}

/// Runs the command in a terminal of the client. Commands that need the stricter sandbox or answers
/// to prompts do not run there.
async fn in_terminal(
    order: &ProcessSpec<'_>,
    call: &Invocation<'_>,
) -> Option<io::Result<ProcessResult>> {
    let outside = call
        .context
        .client_io
        .as_ref()
        .filter(|_| call.permit == Permit::Unconfined && !order.attended)?;
    let started = Instant::now();
    let (line, cwd, time) = (order.line, order.cwd, order.time);
    let command = TerminalCommand { line, cwd, timeout: time, cancel: call.context.cancel.clone() };
    let ended = match outside.run(command).await? {
        Ok(ended) => ended,
        Err(why) => return Some(Err(why)),
    };
    let gather =
        |name| StreamCapture::new(order.show, &call.context.session_dir.join("tools"), name);
    let mut stdout = gather("stdout");
    stdout.push(ended.output.as_bytes());
    let end = match (ended.cancelled, ended.timed_out) {
        (true, _) => ProcessEnd::Cancelled,
        (false, true) => ProcessEnd::TimedOut,
        (false, false) => ProcessEnd::Exited,
    };
    Some(Ok(ProcessResult {
        code: ended.code,
        end,
        stdout: stdout.finish(),
        stderr: gather("stderr").finish(),
        took: started.elapsed(),
        lingers: false,
        directory: None,
        denied: None,
        put_back: Vec::new(),
    }))
}
