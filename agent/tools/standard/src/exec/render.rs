//! Formats the result of a command for each profile.

use std::time::Duration;

use serde_json::{Value, json};

use super::process::{ProcessEnd, ProcessResult};
use tools::call::Invocation;
use tools::exec::confinement;
use tools::exec::output::CapturedStream;
use tools::exec::output::render;
use tools::output::{ToolErrorKind, ToolOutput};
use tools::profile::OutputStyle;

/// Commands whose exit code 1 means "nothing found".
const SEARCHES: [&str; 6] = ["dir", "where", "findstr", "find", "grep", "which"];

/// Returns the outcome of a command.
pub(crate) fn outcome(
    call: &Invocation<'_>,
    line: &str,
    time: Option<Duration>,
    ran: &ProcessResult,
) -> ToolOutput {
    let style = call.profile_tool.style;
    let ok = ran.end == ProcessEnd::Exited && (ran.code == 0 || forgives(style, line, ran.code));
    let error_kind = match ran.end {
        _ if ok => None,
        ProcessEnd::Exited => Some(ToolErrorKind::Failed),
        ProcessEnd::TimedOut => Some(ToolErrorKind::Timeout),
        ProcessEnd::Cancelled => Some(ToolErrorKind::Cancelled),
    };
    let text = match style {
        OutputStyle::G3 => g3(ran, time),
        OutputStyle::Egirl => egirl(ran, time),
        OutputStyle::ToolsApi => tools_api(ran, time),
        OutputStyle::Core => String::new(),
    };
    let metadata = match style {
        OutputStyle::Core => core(ran, ok, time),
        OutputStyle::G3 | OutputStyle::Egirl | OutputStyle::ToolsApi => facts(call, ran),
    };
    let title = format!("exit code {}", ran.code);
    let (mut text, mut metadata, mut title) = (text, metadata, title);
    for note in notes(ran) {
        title = format!("{title}; {note}");
        match style {
            OutputStyle::Core => metadata["box"] = json!(note),
            OutputStyle::G3 | OutputStyle::Egirl | OutputStyle::ToolsApi => {
                text = format!("{}[{note}]", with_newline(text));
                metadata["box_denied"] = json!(ran.denied.as_ref().map(|denied| &denied.path));
            }
        }
    }
    ToolOutput { ok, text, error_kind, metadata, title: Some(title), ..ToolOutput::default() }
}

/// Describes what the sandbox denied or reverted, in sentences.
fn notes(ran: &ProcessResult) -> Vec<String> {
    let denied = ran.denied.as_ref().map(|denied| denied.text(confinement::in_studio()));
    let put_back = ran.put_back.iter().map(|path| {
        format!(
            "{} was changed by the command and was restored: git's configuration and hooks are protected \
             in the sandbox",
            path.display()
        )
    });
    denied.into_iter().chain(put_back).collect()
}

/// Whether a nonzero exit code is a normal result.
fn forgives(style: OutputStyle, line: &str, code: i32) -> bool {
    match style {
        OutputStyle::G3 | OutputStyle::Egirl => false,
        OutputStyle::ToolsApi => true,
        OutputStyle::Core => {
            let first = line.split_whitespace().next().unwrap_or_default();
            code == 1 && SEARCHES.contains(&first)
        }
    }
}

fn facts(call: &Invocation<'_>, ran: &ProcessResult) -> Value {
    json!({
        "exit_code": ran.code,
        "workdir": call.path,
        "timed_out": ran.end == ProcessEnd::TimedOut,
        "duration_ms": millis(ran.took),
        "truncated": ran.stdout.omitted + ran.stderr.omitted > 0,
        "stdout_bytes": ran.stdout.total,
        "stderr_bytes": ran.stderr.total,
        "stdout_log": ran.stdout.log,
        "stderr_log": ran.stderr.log,
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn why_ended(ran: &ProcessResult, time: Option<Duration>) -> Option<String> {
    match ran.end {
        ProcessEnd::Exited => None,
        ProcessEnd::TimedOut => {
            let after = time.map_or_else(String::new, |t| format!(" after {} ms", millis(t)));
            Some(format!("timed out{after}; the process group was ended"))
        }
        ProcessEnd::Cancelled => {
            Some("cancelled by the user; the process group was ended".to_owned())
        }
    }
}

fn g3(ran: &ProcessResult, time: Option<Duration>) -> String {
    let mut text = with_newline(render(&ran.stdout));
    if ran.stderr.total > 0 {
        text.push_str("[stderr]\n");
        text.push_str(&with_newline(render(&ran.stderr)));
    }
    if ran.stdout.total + ran.stderr.total == 0 {
        text.push_str("[no output]\n");
    }
    if let Some(why) = why_ended(ran, time) {
        text.push_str(&format!("[{why}]\n"));
    }
    if ran.lingers {
        text.push_str(
            "[a process started by the command still holds its output open; use \
             background_process for such]\n",
        );
    }
    text.push_str(&format!("[exit code {}]", ran.code));
    text
}

fn with_newline(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn egirl(ran: &ProcessResult, time: Option<Duration>) -> String {
    let mut text = render(&ran.stdout);
    if ran.stderr.total > 0 {
        text.push_str(&format!("\n\nstderr:\n{}", render(&ran.stderr)));
    }
    if let Some(why) = why_ended(ran, time) {
        return format!("Command {why}\n{text}");
    }
    if text.is_empty() {
        return format!("Command completed with exit code {}", ran.code);
    }
    text
}

fn tools_api(ran: &ProcessResult, time: Option<Duration>) -> String {
    let mut text = render(&ran.stdout);
    if ran.stderr.total > 0 {
        text = with_newline(text);
        text.push_str(&format!("--- stderr ---\n{}", render(&ran.stderr)));
    }
    if let Some(why) = why_ended(ran, time) {
        text = with_newline(text);
        text.push_str(&format!("[Command {why}]"));
    } else if ran.code != 0 {
        text = with_newline(text);
        text.push_str(&format!("[exit code {}]", ran.code));
    }
    text
}

fn core(ran: &ProcessResult, ok: bool, time: Option<Duration>) -> Value {
    let status = match ran.end {
        ProcessEnd::Cancelled => "cancelled",
        ProcessEnd::Exited | ProcessEnd::TimedOut => {
            if ok {
                "success"
            } else {
                "error"
            }
        }
    };
    let cut = |stream: &CapturedStream| {
        let mut text = stream.head.clone();
        if stream.omitted > 0 {
            text = format!("{}[truncated]", with_newline(text));
        }
        text
    };
    let mut stderr = cut(&ran.stderr);
    if let Some(why) = why_ended(ran, time) {
        stderr = format!("{}Command {why}", with_newline(stderr));
    }
    let code = if ran.end == ProcessEnd::Exited { ran.code } else { -1 };
    let voice = match (status, ran.end) {
        (_, ProcessEnd::TimedOut) => "The command took too long.".to_owned(),
        (_, ProcessEnd::Cancelled) => "The command was cancelled.".to_owned(),
        ("success", ProcessEnd::Exited) => "Command completed successfully.".to_owned(),
        (_, ProcessEnd::Exited) => format!("The command failed with exit code {code}."),
    };
    let mut result = json!({
        "status": status,
        "stdout": cut(&ran.stdout),
        "stderr": stderr,
        "exit_code": code,
        "duration_ms": millis(ran.took),
        "voice_message": voice,
    });
    for (key, stream) in [("stdout_log", &ran.stdout), ("stderr_log", &ran.stderr)] {
        if let Some(log) = &stream.log {
            result[key] = json!(log);
        }
    }
    if ok && ran.code == 0 && ran.stdout.total + ran.stderr.total == 0 {
        result["note"] = json!("The command succeeded without output.");
    }
    result
}
