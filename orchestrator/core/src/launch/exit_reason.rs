//! Explains how agents end, before and after they started.

use std::path::Path;
use std::process::ExitStatus;

use agent_client_protocol::v1::schema::StopReason;
use base::event::RunStatus;

use crate::launch::wire;
use crate::sandbox::StartFailure;

/// How a conversation over ACP ended.
#[derive(Debug)]
pub(crate) enum ExitReason {
    /// It was asked to end.
    Told,
    /// The agent closed its output.
    Closed,
    /// A protocol error, as a sentence.
    Failed(String),
    /// Its output is not JSON.
    Strange,
}

impl ExitReason {
    /// Creates the reason for a protocol error.
    pub(crate) fn of(error: &agent_client_protocol::Error) -> ExitReason {
        match agent_client_protocol::is_incoming_transport_closed(error) {
            true => ExitReason::Closed,
            false => ExitReason::Failed(wire::sentence(error)),
        }
    }

    /// Explains why the agent did not start.
    pub(crate) fn before_it_opened(
        self,
        status: Option<ExitStatus>,
        failure: Option<StartFailure>,
        said: &str,
        line: Option<String>,
        sandboxed: bool,
    ) -> String {
        if let Some(failure) = failure {
            return not_started(&failure);
        }
        let no_acp = |line: String| {
            let line = base::text::printable(base::text::head(line.trim(), 200));
            format!("it does not speak ACP: it printed `{line}`")
        };
        match (self, status, line) {
            (ExitReason::Strange, _, line) => no_acp(line.unwrap_or_default()),
            (ExitReason::Failed(why), _, _) => why,
            (ExitReason::Told, _, _) => "it was stopped".to_owned(),
            (ExitReason::Closed, Some(status), Some(line)) if status.success() => no_acp(line),
            (ExitReason::Closed, Some(status), _) => {
                ended_with(status, said, sandboxed).replacen("the agent", "it", 1)
            }
            (ExitReason::Closed, None, _) => "it closed its output before it answered".to_owned(),
        }
    }

    /// Explains why the agent is gone.
    pub(crate) fn why(self, status: Option<ExitStatus>, said: &str, sandboxed: bool) -> String {
        match (self, status) {
            (_, Some(status)) if !status.success() => ended_with(status, said, sandboxed),
            (ExitReason::Failed(why), _) => format!("the connection to the agent failed: {why}"),
            (ExitReason::Told | ExitReason::Strange, _) => "the agent was stopped".to_owned(),
            (ExitReason::Closed, Some(_)) => "the agent exited".to_owned(),
            (ExitReason::Closed, None) => "the agent closed its output".to_owned(),
        }
    }
}

/// Describes the exit of a process; `said` is the end of its stderr.
pub(crate) fn ended_with(status: ExitStatus, said: &str, sandboxed: bool) -> String {
    let code = base::process::exit_code(status);
    match said.is_empty() {
        true => format!("the agent exited with code {code}"),
        false => explained(format!("the agent exited with code {code}: {said}"), sandboxed),
    }
}

/// The texts of a permission error: libuv, Rust and Python, the shell, Go.
const DENIED: [&str; 5] =
    ["EACCES", "errno: -13", "Errno 13", "Permission denied", "permission denied"];

/// Returns whether a line reports a permission error.
pub(crate) fn reports_denial(line: &str) -> bool {
    DENIED.iter().any(|word| line.contains(word))
}

/// Returns an agent's error, with the configuration line that helps if the sandbox may have denied
/// it a file.
pub(crate) fn explained(complaint: String, sandboxed: bool) -> String {
    if !sandboxed || !reports_denial(&complaint) {
        return complaint;
    }
    let directory = denied_directory(&complaint).unwrap_or_else(|| "DIRECTORY".to_owned());
    format!(
        "{complaint}; if the sandbox denied it, `write = [\"{directory}\"]` (or `read`) in the agent's \
         entry in ~/.config/g3/config.toml allows it"
    )
}

/// Returns the directory of an error: that of the file which it names, or the one to be created.
/// `None` if that would be the whole home directory or the root.
fn denied_directory(complaint: &str) -> Option<String> {
    let mark = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`' | '(' | ')' | ',');
    let mut words = complaint.split(mark).filter(|word| !word.is_empty());
    let mut before = "";
    let path = words.find(|word| {
        let found = word.len() > 1 && word.starts_with('/');
        if !found {
            before = *word;
        }
        found
    })?;
    let path = Path::new(path.trim_end_matches([':', ';', '.']));
    let home = base::user_dirs::home_dir().unwrap_or_default();
    let directory = match before {
        "mkdir" => path,
        _ => path.parent().filter(|parent| *parent != home).unwrap_or(path),
    };
    let is_all = |tree: &Path| directory == tree;
    if is_all(&home) || is_all(Path::new("/")) {
        return None;
    }
    Some(match directory.strip_prefix(&home) {
        Ok(below) => format!("~/{}", below.display()),
        Err(_) => directory.display().to_string(),
    })
}

/// Explains why the program of an agent did not start.
pub(crate) fn not_started(failure: &StartFailure) -> String {
    match failure {
        StartFailure::NotFound(error) => {
            format!("no such program, or its interpreter is missing: {error}")
        }
        StartFailure::NotExecutable(error) => {
            format!("it is not executable, or the sandbox denies it: {error}")
        }
    }
}

/// Returns the error for the stop reason of a turn over ACP, if it is one; `said` is the agent's
/// own error.
pub(crate) fn why_stopped(reason: StopReason, said: Option<String>) -> Option<String> {
    let or = |words: &str| Some(said.clone().unwrap_or_else(|| words.to_owned()));
    match reason {
        StopReason::EndTurn => said,
        StopReason::Cancelled => Some("the turn was cancelled".to_owned()),
        StopReason::Refusal => or("the agent refused to continue"),
        StopReason::MaxTokens => or("the agent reached its limit of tokens"),
        StopReason::MaxTurnRequests => or("the agent reached its limit of requests"),
        other => {
            let name = serde_json::to_value(other).ok();
            let name = name.as_ref().and_then(serde_json::Value::as_str).unwrap_or("unknown");
            or(&format!("the agent ended its turn with `{name}`"))
        }
    }
}

/// Returns the error for the result of a g3 run, if it is one, in g3's own words if possible.
pub(crate) fn of_g3(status: RunStatus, error: Option<String>) -> Option<String> {
    let or = |words: &str| {
        let error = error.clone().filter(|error| !error.trim().is_empty());
        let lines = error.unwrap_or_else(|| words.to_owned());
        Some(lines.lines().collect::<Vec<_>>().join("; "))
    };
    match status {
        RunStatus::Done => None,
        RunStatus::Failed => or("the agent failed"),
        RunStatus::Limit => or("the agent reached its own limit"),
        RunStatus::NotApproved => or("the work was not approved"),
        RunStatus::Cancelled => Some("the turn was cancelled".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denied_file_is_reported_with_the_line_that_opens_it() {
        let said = "EACCES: permission denied, open '/opt/agent/state/log'".to_owned();
        let told = explained(said.clone(), true);
        assert!(told.contains("`write = [\"/opt/agent/state\"]`"), "{told}");
        assert_eq!(explained(said.clone(), false), said, "without a box it is something else");
        assert_eq!(explained("no such model".into(), true), "no such model");
        assert!(explained("FileSystem error, errno: -13".into(), true).contains("DIRECTORY"));
        let home = std::env::var("HOME").unwrap();
        for said in [
            format!("EACCES: permission denied, mkdir '{home}/.agent'"),
            format!("EACCES: permission denied, open '{home}/.agent'"),
        ] {
            assert!(explained(said.clone(), true).contains("`write = [\"~/.agent\"]`"), "{said}");
        }
    }
}
