//! Runs a hook as a process: a JSON object on stdin, an exit code, and text on stdout or stderr.

use std::path::Path;
use std::time::Duration;

use base::config::hooks::Hook;
use base::process::{Command, OutputLimits};
use serde_json::Value;

use tools::exec::confinement::{CommandSandbox, Containment};
use tools::exec::environment::{Environment, apply};

/// Maximum number of bytes read from each stream.
const MAX_OUTPUT: usize = 1 << 20;
/// The exit code that rejects.
const REJECTED: i32 = 2;

/// The output of a hook.
#[derive(Debug, PartialEq)]
pub(crate) enum HookOutput {
    /// The hook accepts; its stdout.
    Go(String),
    /// The hook rejects; its stderr.
    No(String),
    /// The hook failed to run; the reason, as a clause.
    Nothing(String),
}

/// Runs a hook until it exits or reaches its time limit, which kills it and its child processes.
pub(crate) async fn run(
    hook: &Hook,
    (cwd, sandbox): (&Path, &CommandSandbox),
    input: &Value,
) -> HookOutput {
    let Some((program, args)) = hook.command.split_first() else {
        return HookOutput::Nothing("has no command".to_owned());
    };
    let timeout = Some(Duration::from_secs(hook.timeout_seconds));
    let command = apply(Command::new(program, cwd).args(args), Environment::Full);
    let containment = match hook.sandbox.then(|| sandbox.containment_if_supported()).transpose() {
        Ok(containment) => containment.flatten(),
        Err(error) => return HookOutput::Nothing(format!("was not run: {error}")),
    };
    let command = containment.into_iter().fold(command, Containment::apply);
    let result = command
        .input(input.to_string())
        .output_async(OutputLimits { time: timeout, bytes: MAX_OUTPUT })
        .await;
    let output = match result {
        Ok(output) => output,
        Err(error) => return HookOutput::Nothing(format!("was not run: {error}")),
    };
    if output.timed_out {
        return HookOutput::Nothing(format!("timed out after {} s", hook.timeout_seconds));
    }
    match output.code() {
        0 => HookOutput::Go(output.text().trim().to_owned()),
        REJECTED if output.error_text().is_empty() => HookOutput::No("denied by a hook".to_owned()),
        REJECTED => HookOutput::No(output.error_text()),
        code => HookOutput::Nothing(format!("ended with code {code}: {}", output.error_text())),
    }
}
