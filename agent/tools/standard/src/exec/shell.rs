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
    #[serde(rename = "show")]
    output_budget: OutputBudget,
    #[serde(default)]
    keep_directory: bool,
    #[serde(default)]
    in_background: bool,
    /// Whether a GUI program is launched in the background.
    #[serde(default)]
    launch_windows: bool,
}

/// The output budget of a small model.
const PLAIN_BUDGET: OutputBudget = OutputBudget { head: 1500, tail: 1500 };

/// The tool that runs a command line.
pub(crate) struct ShellTool;

impl Tool for ShellTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("exec.run", Effect::Runs)
    }

    fn scope(&self, call: &Invocation<'_>) -> CallScope {
        CallScope { keys: super::touched_files(call), ..super::scope(call) }
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Runs a command line.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let permit = call.permit;
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
    let sandboxed = permit == Permit::ScratchSandbox;
    if args.launch_windows && !sandboxed && output_window::is_windowed(&args.command) {
        return output_window::launch(call).await;
    }
    let limit = args.max_timeout_ms.unwrap_or(u64::MAX);
    let timeout = args.timeout_ms.map(|ms| Duration::from_millis(ms.clamp(1, limit)));
    let failed =
        |error: io::Error| ToolError::failed(format!("Failed to execute command: {error}"));
    let spec = ProcessSpec {
        line: &args.command,
        cwd: &call.path,
        environment: args.environment,
        time: if sandboxed { Some(timeout.unwrap_or(TIMEOUT).min(TIMEOUT)) } else { timeout },
        output_budget: if call.context.plain {
            PLAIN_BUDGET
        } else {
            args.output_budget.within(call.context.result_limit / 2)
        },
        containment: call.context.containment(permit).map_err(failed)?,
        reports_directory: args.keep_directory && !sandboxed,
    };
    let result = match heredoc::patch_request(call) {
        Some(patch) => Ok(heredoc::run(call, &patch, spec.output_budget)),
        None => match in_terminal(&spec, call).await {
            Some(result) => result,
            None => run_process(&spec, call.context).await,
        },
    };
    let result = result.map_err(failed)?;
    if let Some(directory) = &result.directory
        && args.keep_directory
        && directory.is_dir()
        && paths::is_inside(directory, &call.context.root)
    {
        directory::store(&call.context.session_dir, directory);
    }
    let mut output = render::tool_output(call, &args.command, spec.time, &result);
    if sandboxed && let Some(facts) = output.metadata.as_object_mut() {
        facts.insert("sandboxed".to_owned(), true.into());
    }
    Ok(output)
}

/// Runs the command in a terminal of the client. Commands that need the stricter sandbox or answers
/// to prompts do not run there.
async fn in_terminal(
    spec: &ProcessSpec<'_>,
    call: &Invocation<'_>,
) -> Option<io::Result<ProcessResult>> {
    let client_io = call
        .context
        .client_io
        .as_ref()
        .filter(|_| call.permit == Permit::Unconfined && !spec.reports_directory)?;
    let started = Instant::now();
    let (shell_line, cwd, timeout) = (spec.line, spec.cwd, spec.time);
    let command =
        TerminalCommand { line: shell_line, cwd, timeout, cancel: call.context.cancel.clone() };
    let command_output = match client_io.run(command).await? {
        Ok(command_output) => command_output,
        Err(error) => return Some(Err(error)),
    };
    let capture = |name| {
        StreamCapture::new(spec.output_budget, &call.context.session_dir.join("tools"), name)
    };
    let mut stdout = capture("stdout");
    stdout.push(command_output.output.as_bytes());
    let end = match (command_output.cancelled, command_output.timed_out) {
        (true, _) => ProcessEnd::Cancelled,
        (false, true) => ProcessEnd::TimedOut,
        (false, false) => ProcessEnd::Exited,
    };
    Some(Ok(ProcessResult {
        code: command_output.code,
        end,
        stdout: stdout.finish(),
        stderr: capture("stderr").finish(),
        duration: started.elapsed(),
        holds_output: false,
        directory: None,
        denial: None,
        restored: Vec::new(),
    }))
}
