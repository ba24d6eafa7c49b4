//! Explains how agents end, before and after they started.

use std::path::Path;
use std::process::ExitStatus;

use agent_client_protocol::ErrorCode;
use agent_client_protocol::v1::schema::StopReason;
use base::event::RunStatus;

use crate::launch::wire;
use crate::sandbox::{SandboxFailure, StartFailure};
use crate::session::journal::TURN_CANCELLED;

/// How a conversation over ACP ended.
#[derive(Debug)]
pub(crate) enum ExitReason {
    /// It was asked to end.
    Requested,
    /// The agent closed its output.
    Closed,
    /// A protocol error, as a sentence.
    Failed(String),
    /// Its output is not JSON.
    NotAcp,
}

impl ExitReason {
    /// Creates the reason for a protocol error.
    pub(crate) fn of(error: &agent_client_protocol::Error) -> ExitReason {
        if agent_client_protocol::is_incoming_transport_closed(error) {
            return ExitReason::Closed;
        }
        let sentence = wire::sentence(error);
        ExitReason::Failed(match error.code {
            ErrorCode::AUTH_REQUIRED => format!("{sentence}; `studio agents` says how to log in"),
            _ => sentence,
        })
    }

    /// Explains why the agent did not start.
    pub(crate) fn start_error(
        self,
        status: Option<ExitStatus>,
        failure: Option<SandboxFailure>,
        stderr_tail: &str,
        line: Option<String>,
        sandboxed: bool,
    ) -> String {
        if let Some(failure) = failure {
            return sandbox_failure(&failure);
        }
        let not_acp = |what: &str| {
            format!(
                "it does not speak ACP: {what}; a program without ACP needs \
                 `protocol = \"command\"`"
            )
        };
        let printed = |line: String| {
            let line = base::text::printable(base::text::head(line.trim(), 200));
            not_acp(&format!("it printed `{line}`"))
        };
        match (self, status, line) {
            (ExitReason::NotAcp, _, line) => printed(line.unwrap_or_default()),
            (ExitReason::Failed(error), _, _) => error,
            (ExitReason::Requested, _, _) => "it was stopped".to_owned(),
            (ExitReason::Closed, Some(status), Some(line)) if status.success() => printed(line),
            (ExitReason::Closed, Some(status), None) if status.success() => {
                not_acp("it exited without an answer")
            }
            (ExitReason::Closed, Some(status), _) => {
                exit_error(status, stderr_tail, sandboxed).replacen("the agent", "it", 1)
            }
            (ExitReason::Closed, None, _) => "it closed its output before it answered".to_owned(),
        }
    }

    /// Explains why the agent is gone.
    pub(crate) fn exit_message(
        self,
        status: Option<ExitStatus>,
        stderr_tail: &str,
        sandboxed: bool,
    ) -> String {
        match (self, status) {
            (_, Some(status)) if !status.success() => exit_error(status, stderr_tail, sandboxed),
            (ExitReason::Failed(error), _) => {
                format!("the connection to the agent failed: {error}")
            }
            (ExitReason::Requested | ExitReason::NotAcp, _) => "the agent was stopped".to_owned(),
            (ExitReason::Closed, Some(_)) => "the agent exited".to_owned(),
            (ExitReason::Closed, None) => "the agent closed its output".to_owned(),
        }
    }
}

/// Describes the exit of a process; `stderr_tail` is the end of its stderr.
pub(crate) fn exit_error(status: ExitStatus, stderr_tail: &str, sandboxed: bool) -> String {
    let code = base::process::exit_code(status);
    match stderr_tail.is_empty() {
        true => format!("the agent exited with code {code}"),
        false => with_sandbox_hint(
            format!("the agent exited with code {code}: {stderr_tail}"),
            sandboxed,
        ),
    }
}

/// The texts of a permission error: libuv, Rust and Python, the shell, Go.
const DENIAL_TEXTS: [&str; 5] =
    ["EACCES", "errno: -13", "Errno 13", "Permission denied", "permission denied"];

/// Returns whether a line reports a permission error.
pub(crate) fn reports_denial(line: &str) -> bool {
    DENIAL_TEXTS.iter().any(|text| line.contains(text))
}

/// Returns an agent's error, with the configuration line that helps if the sandbox may have denied
/// it a file.
pub(crate) fn with_sandbox_hint(error: String, sandboxed: bool) -> String {
    if !sandboxed || !reports_denial(&error) {
        return error;
    }
    let directory = denied_directory(&error).unwrap_or_else(|| "DIRECTORY".to_owned());
    format!(
        "{error}; if the sandbox denied it, `write = [\"{directory}\"]` (or `read`) in the agent's \
         entry in ~/.config/g3/config.toml allows it"
    )
}

/// Returns the directory of an error: that of the file which it names, or the one to be created.
/// `None` if that would be the whole home directory or the root.
fn denied_directory(error: &str) -> Option<String> {
    let is_separator =
        |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`' | '(' | ')' | ',');
    let mut words = error.split(is_separator).filter(|word| !word.is_empty());
    let mut previous_word = "";
    let path = words.find(|word| {
        let is_path = word.len() > 1 && word.starts_with('/');
        if !is_path {
            previous_word = *word;
        }
        is_path
    })?;
    let path = Path::new(path.trim_end_matches([':', ';', '.']));
    let home = base::user_dirs::home_dir().unwrap_or_default();
    let directory = match previous_word {
        "mkdir" => path,
        _ => path.parent().filter(|parent| *parent != home).unwrap_or(path),
    };
    let is_whole = |tree: &Path| directory == tree;
    if is_whole(&home) || is_whole(Path::new("/")) {
        return None;
    }
    Some(match directory.strip_prefix(&home) {
        Ok(relative) => format!("~/{}", relative.display()),
        Err(_) => directory.display().to_string(),
    })
}

/// Explains why the sandbox of an agent ended.
pub(crate) fn sandbox_failure(failure: &SandboxFailure) -> String {
    match failure {
        SandboxFailure::Start(failure) => start_failure(failure),
        SandboxFailure::Limit(limit) => limit.sentence("ID"),
    }
}

/// Explains why the program of an agent did not start.
fn start_failure(failure: &StartFailure) -> String {
    match failure {
        StartFailure::NotFound(error) => {
            format!("no such program in the sandbox, or its interpreter is missing: {error}")
        }
        StartFailure::NotExecutable(error) => {
            format!("it is not executable, or the sandbox denies it: {error}")
        }
    }
}

/// Returns the error for the stop reason of a turn over ACP, if it is one; `agent_error` is the agent's
/// own error.
pub(crate) fn stop_error(reason: StopReason, agent_error: Option<String>) -> Option<String> {
    let agent_error_or =
        |fallback: &str| Some(agent_error.clone().unwrap_or_else(|| fallback.to_owned()));
    match reason {
        StopReason::EndTurn => agent_error,
        StopReason::Cancelled => Some(TURN_CANCELLED.to_owned()),
        StopReason::Refusal => agent_error_or("the agent refused to continue"),
        StopReason::MaxTokens => agent_error_or("the agent reached its limit of tokens"),
        StopReason::MaxTurnRequests => agent_error_or("the agent reached its limit of requests"),
        other => {
            let name = serde_json::to_value(other).ok();
            let name = name.as_ref().and_then(serde_json::Value::as_str).unwrap_or("unknown");
            agent_error_or(&format!("the agent ended its turn with `{name}`"))
        }
    }
}

/// Returns the error for the result of a g3 run, if it is one, in g3's own words if possible.
pub(crate) fn g3_error(status: RunStatus, error: Option<String>) -> Option<String> {
    let error_or = |fallback: &str| {
        let error = error.clone().filter(|error| !error.trim().is_empty());
        let lines = error.unwrap_or_else(|| fallback.to_owned());
        Some(lines.lines().collect::<Vec<_>>().join("; "))
    };
    match status {
        RunStatus::Done => None,
        RunStatus::Failed => error_or("the agent failed"),
        RunStatus::Limit => error_or("the agent reached its own limit"),
        RunStatus::NotApproved => error_or("the work was not approved"),
        RunStatus::Cancelled => Some(TURN_CANCELLED.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_login_is_reported_with_the_command_that_explains_it() {
        let error = agent_client_protocol::Error::auth_required();
        let ExitReason::Failed(reason) = ExitReason::of(&error) else { panic!("no error") };
        assert!(reason.ends_with("; `studio agents` says how to log in"), "{reason}");
    }

    #[test]
    fn a_denied_file_is_reported_with_the_line_that_opens_it() {
        let error = "EACCES: permission denied, open '/opt/agent/state/log'".to_owned();
        let explained = with_sandbox_hint(error.clone(), true);
        assert!(explained.contains("`write = [\"/opt/agent/state\"]`"), "{explained}");
        assert_eq!(
            with_sandbox_hint(error.clone(), false),
            error,
            "without a box it is something else"
        );
        assert_eq!(with_sandbox_hint("no such model".into(), true), "no such model");
        assert!(
            with_sandbox_hint("FileSystem error, errno: -13".into(), true).contains("DIRECTORY")
        );
        let home = std::env::var("HOME").unwrap();
        for error in [
            format!("EACCES: permission denied, mkdir '{home}/.agent'"),
            format!("EACCES: permission denied, open '{home}/.agent'"),
        ] {
            assert!(
                with_sandbox_hint(error.clone(), true).contains("`write = [\"~/.agent\"]`"),
                "{error}"
            );
        }
    }
}
