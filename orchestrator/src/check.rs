//! Checks: commands that must pass, run by studio itself in a session's room.

use std::time::Duration;

use crate::room::Room;
use crate::session::journal::CheckResult;

/// Runs every check, also after one failed: a person wants to see all that is wrong.
pub async fn run(room: &Room, checks: &[String], most: Duration) -> Vec<CheckResult> {
    let mut results = Vec::new();
    for command in checks {
        results.push(one(room, command, most).await);
    }
    results
}

async fn one(room: &Room, command: &str, most: Duration) -> CheckResult {
    let command = command.to_owned();
    match room.line(&command, most).await {
        Ok(ended) => CheckResult {
            command,
            ok: ended.exit == 0,
            exit: ended.exit,
            ms: u64::try_from(ended.took.as_millis()).unwrap_or(u64::MAX),
            tail: ended.tail,
            fails_on: None,
        },
        Err(failure) => {
            let tail = failure.to_string();
            CheckResult { command, ok: false, exit: 127, ms: 0, tail, fails_on: None }
        }
    }
}
