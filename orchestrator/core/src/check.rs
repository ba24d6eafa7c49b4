//! Checks: commands that must pass, run by studio in a session's sandbox.

use std::time::Duration;

use crate::exec::runner::SandboxedRunner;
use crate::path_dependencies;
use crate::session::journal::CheckResult;

/// Runs all checks, even after one failed, so that the user sees all failures.
pub async fn run(room: &SandboxedRunner, checks: &[String], most: Duration) -> Vec<CheckResult> {
    let mut results = Vec::new();
    for command in checks {
        results.push(one(room, command, most).await);
    }
    results
}

/// Returns a failed result for a check that could not be run.
pub(crate) fn not_run(command: String, why: String) -> CheckResult {
    CheckResult { command, ok: false, exit: 127, ms: 0, tail: why, hint: None, fails_on: None }
}

async fn one(room: &SandboxedRunner, command: &str, most: Duration) -> CheckResult {
    let command = command.to_owned();
    match room.run_shell(&command, most).await {
        Ok(ended) => CheckResult {
            command,
            ok: ended.exit == 0,
            exit: ended.exit,
            ms: u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX),
            hint: (ended.exit != 0).then(|| path_dependencies::hint(room.worktree())).flatten(),
            tail: ended.tail,
            fails_on: None,
        },
        Err(failure) => not_run(command, failure.to_string()),
    }
}
