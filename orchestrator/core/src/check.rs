//! Checks: commands that must pass, run by studio in a session's sandbox.

use std::time::Duration;

use crate::exec::runner::SandboxedRunner;
use crate::session::journal::CheckResult;

/// Runs all checks, even after one failed, so that the user sees all failures.
pub async fn run(
    runner: &SandboxedRunner,
    checks: &[String],
    timeout: Duration,
) -> Vec<CheckResult> {
    let mut results = Vec::new();
    for command in checks {
        results.push(run_one(runner, command, timeout).await);
    }
    results
}

/// Returns a failed result for a check that could not be run.
pub(crate) fn failed_result(command: String, error: String) -> CheckResult {
    CheckResult {
        command,
        ok: false,
        exit: 127,
        ms: 0,
        tail: error,
        hint: None,
        limit: None,
        fails_on: None,
        flaky: false,
    }
}

async fn run_one(runner: &SandboxedRunner, command: &str, timeout: Duration) -> CheckResult {
    let command = command.to_owned();
    match runner.run_shell(&command, timeout).await {
        Ok(output) => CheckResult {
            limit: output.limit,
            command,
            ok: output.exit == 0,
            exit: output.exit,
            ms: u64::try_from(output.duration.as_millis()).unwrap_or(u64::MAX),
            hint: (output.exit != 0).then(|| runner.failure_hint(&output.tail)).flatten(),
            tail: output.tail,
            fails_on: None,
            flaky: false,
        },
        Err(failure) => failed_result(command, failure.to_string()),
    }
}
