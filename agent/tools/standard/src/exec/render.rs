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
const SEARCH_COMMANDS: [&str; 6] = ["dir", "where", "findstr", "find", "grep", "which"];

/// Returns the outcome of a command.
pub(crate) fn tool_output(
    call: &Invocation<'_>,
    line: &str,
    time: Option<Duration>,
    result: &ProcessResult,
) -> ToolOutput {
    let style = call.profile_tool.style;
    let ok = result.end == ProcessEnd::Exited
        && (result.code == 0 || is_expected_failure(style, line, result.code));
    let error_kind = match result.end {
        _ if ok => None,
        ProcessEnd::Exited => Some(ToolErrorKind::Failed),
        ProcessEnd::TimedOut => Some(ToolErrorKind::Timeout),
        ProcessEnd::Cancelled => Some(ToolErrorKind::Cancelled),
    };
    let text = match style {
        OutputStyle::G3 => g3(result, time),
        OutputStyle::Egirl => egirl(result, time),
        OutputStyle::ToolsApi => tools_api(result, time),
        OutputStyle::Core => String::new(),
    };
    let metadata = match style {
        OutputStyle::Core => core(result, ok, time),
        OutputStyle::G3 | OutputStyle::Egirl | OutputStyle::ToolsApi => metadata_of(call, result),
    };
    let title = format!("exit code {}", result.code);
    let (mut text, mut metadata, mut title) = (text, metadata, title);
    for note in notes(result) {
        title = format!("{title}; {note}");
        match style {
            OutputStyle::Core => metadata["box"] = json!(note),
            OutputStyle::G3 | OutputStyle::Egirl | OutputStyle::ToolsApi => {
                text = format!("{}[{note}]", ensure_newline(text));
                metadata["box_denied"] = json!(result.denial.as_ref().map(|denied| &denied.path));
            }
        }
    }
    ToolOutput { ok, text, error_kind, metadata, title: Some(title), ..ToolOutput::default() }
}

/// Describes what the sandbox denied or reverted, in sentences.
fn notes(result: &ProcessResult) -> Vec<String> {
    let denied = result.denial.as_ref().map(|denied| denied.text(confinement::in_studio()));
    let restored = result.restored.iter().map(|path| {
        format!(
            "{} was changed by the command and was restored: git's configuration and hooks are protected \
             in the sandbox",
            path.display()
        )
    });
    denied.into_iter().chain(restored).collect()
}

/// Whether a nonzero exit code is a normal result.
fn is_expected_failure(style: OutputStyle, line: &str, code: i32) -> bool {
    match style {
        OutputStyle::G3 | OutputStyle::Egirl => false,
        OutputStyle::ToolsApi => true,
        OutputStyle::Core => {
            let first = line.split_whitespace().next().unwrap_or_default();
            code == 1 && SEARCH_COMMANDS.contains(&first)
        }
    }
}

fn metadata_of(call: &Invocation<'_>, result: &ProcessResult) -> Value {
    json!({
        "exit_code": result.code,
        "workdir": call.path,
        "timed_out": result.end == ProcessEnd::TimedOut,
        "duration_ms": millis(result.duration),
        "truncated": result.stdout.omitted + result.stderr.omitted > 0,
        "stdout_bytes": result.stdout.total,
        "stderr_bytes": result.stderr.total,
        "stdout_log": result.stdout.log,
        "stderr_log": result.stderr.log,
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn end_reason(result: &ProcessResult, timeout: Option<Duration>) -> Option<String> {
    match result.end {
        ProcessEnd::Exited => None,
        ProcessEnd::TimedOut => {
            let duration_text =
                timeout.map_or_else(String::new, |t| format!(" after {} ms", millis(t)));
            Some(format!("timed out{duration_text}; the process group was ended"))
        }
        ProcessEnd::Cancelled => {
            Some("cancelled by the user; the process group was ended".to_owned())
        }
    }
}

fn g3(result: &ProcessResult, time: Option<Duration>) -> String {
    let mut text = ensure_newline(render(&result.stdout));
    if result.stderr.total > 0 {
        text.push_str("[stderr]\n");
        text.push_str(&ensure_newline(render(&result.stderr)));
    }
    if result.stdout.total + result.stderr.total == 0 {
        text.push_str("[no output]\n");
    }
    if let Some(reason) = end_reason(result, time) {
        text.push_str(&format!("[{reason}]\n"));
    }
    if result.holds_output {
        text.push_str(
            "[a process started by the command still holds its output open; use \
             background_process for such]\n",
        );
    }
    text.push_str(&format!("[exit code {}]", result.code));
    text
}

fn ensure_newline(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn egirl(result: &ProcessResult, time: Option<Duration>) -> String {
    let mut text = render(&result.stdout);
    if result.stderr.total > 0 {
        text.push_str(&format!("\n\nstderr:\n{}", render(&result.stderr)));
    }
    if let Some(reason) = end_reason(result, time) {
        return format!("Command {reason}\n{text}");
    }
    if text.is_empty() {
        return format!("Command completed with exit code {}", result.code);
    }
    text
}

fn tools_api(result: &ProcessResult, time: Option<Duration>) -> String {
    let mut text = render(&result.stdout);
    if result.stderr.total > 0 {
        text = ensure_newline(text);
        text.push_str(&format!("--- stderr ---\n{}", render(&result.stderr)));
    }
    if let Some(reason) = end_reason(result, time) {
        text = ensure_newline(text);
        text.push_str(&format!("[Command {reason}]"));
    } else if result.code != 0 {
        text = ensure_newline(text);
        text.push_str(&format!("[exit code {}]", result.code));
    }
    text
}

fn core(result: &ProcessResult, ok: bool, time: Option<Duration>) -> Value {
    let status = match result.end {
        ProcessEnd::Cancelled => "cancelled",
        ProcessEnd::Exited | ProcessEnd::TimedOut => {
            if ok {
                "success"
            } else {
                "error"
            }
        }
    };
    let text_of = |stream: &CapturedStream| {
        let mut text = stream.head.clone();
        if stream.omitted > 0 {
            text = format!("{}[truncated]", ensure_newline(text));
        }
        text
    };
    let mut stderr = text_of(&result.stderr);
    if let Some(reason) = end_reason(result, time) {
        stderr = format!("{}Command {reason}", ensure_newline(stderr));
    }
    let code = if result.end == ProcessEnd::Exited { result.code } else { -1 };
    let exit_text = match (status, result.end) {
        (_, ProcessEnd::TimedOut) => "The command took too long.".to_owned(),
        (_, ProcessEnd::Cancelled) => "The command was cancelled.".to_owned(),
        ("success", ProcessEnd::Exited) => "Command completed successfully.".to_owned(),
        (_, ProcessEnd::Exited) => format!("The command failed with exit code {code}."),
    };
    let mut object = json!({
        "status": status,
        "stdout": text_of(&result.stdout),
        "stderr": stderr,
        "exit_code": code,
        "duration_ms": millis(result.duration),
        "voice_message": exit_text,
    });
    for (key, stream) in [("stdout_log", &result.stdout), ("stderr_log", &result.stderr)] {
        if let Some(log) = &stream.log {
            object[key] = json!(log);
        }
    }
    if ok && result.code == 0 && result.stdout.total + result.stderr.total == 0 {
        object["note"] = json!("The command succeeded without output.");
    }
    object
}
