//! How what a command left is told, by profile.

use std::time::Duration;

use serde_json::{Value, json};

use super::boxed;
use super::output::Captured;
use super::output::shown;
use super::process::{End, Ran};
use crate::tools::call::Invocation;
use crate::tools::output::{ErrorKind, ToolOutput};
use crate::tools::profile::Style;

/// Commands whose exit code 1 says "nothing found".
const SEARCHES: [&str; 6] = ["dir", "where", "findstr", "find", "grep", "which"];

/// The outcome of a command.
pub fn outcome(call: &Invocation<'_>, line: &str, time: Option<Duration>, ran: &Ran) -> ToolOutput {
    let style = call.face.style;
    let ok = ran.end == End::Exited && (ran.code == 0 || forgives(style, line, ran.code));
    let error_kind = match ran.end {
        _ if ok => None,
        End::Exited => Some(ErrorKind::Failed),
        End::TimedOut => Some(ErrorKind::Timeout),
        End::Cancelled => Some(ErrorKind::Cancelled),
    };
    let text = match style {
        Style::G3 => g3(ran, time),
        Style::Egirl => egirl(ran, time),
        Style::ToolsApi => tools_api(ran, time),
        Style::Core => String::new(),
    };
    let metadata = match style {
        Style::Core => core(ran, ok, time),
        Style::G3 | Style::Egirl | Style::ToolsApi => facts(call, ran),
    };
    let title = format!("exit code {}", ran.code);
    let (mut text, mut metadata, mut title) = (text, metadata, title);
    for note in notes(ran) {
        title = format!("{title}; {note}");
        match style {
            Style::Core => metadata["box"] = json!(note),
            Style::G3 | Style::Egirl | Style::ToolsApi => {
                text = format!("{}[{note}]", with_newline(text));
                metadata["box_denied"] = json!(ran.denied.as_ref().map(|denied| &denied.path));
            }
        }
    }
    ToolOutput { ok, text, error_kind, metadata, title: Some(title), ..ToolOutput::default() }
}

/// What the box did about a command, in sentences.
fn notes(ran: &Ran) -> Vec<String> {
    let denied = ran.denied.as_ref().map(|denied| denied.text(boxed::in_studio()));
    let put_back = ran.put_back.iter().map(|path| {
        format!(
            "{} was changed by the command and is put back: what git runs and obeys stays as it is \
             in the box",
            path.display()
        )
    });
    denied.into_iter().chain(put_back).collect()
}

/// Whether an exit code other than 0 is a result and no failure.
fn forgives(style: Style, line: &str, code: i32) -> bool {
    match style {
        Style::G3 | Style::Egirl => false,
        Style::ToolsApi => true,
        Style::Core => {
            let first = line.split_whitespace().next().unwrap_or_default();
            code == 1 && SEARCHES.contains(&first)
        }
    }
}

fn facts(call: &Invocation<'_>, ran: &Ran) -> Value {
    json!({
        "exit_code": ran.code,
        "workdir": call.place,
        "timed_out": ran.end == End::TimedOut,
        "duration_ms": millis(ran.took),
        "truncated": ran.stdout.left_out + ran.stderr.left_out > 0,
        "stdout_bytes": ran.stdout.total,
        "stderr_bytes": ran.stderr.total,
        "stdout_log": ran.stdout.log,
        "stderr_log": ran.stderr.log,
    })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn why_ended(ran: &Ran, time: Option<Duration>) -> Option<String> {
    match ran.end {
        End::Exited => None,
        End::TimedOut => {
            let after = time.map_or_else(String::new, |t| format!(" after {} ms", millis(t)));
            Some(format!("timed out{after}; the process group was ended"))
        }
        End::Cancelled => Some("cancelled by the user; the process group was ended".to_owned()),
    }
}

fn g3(ran: &Ran, time: Option<Duration>) -> String {
    let mut text = with_newline(shown(&ran.stdout));
    if ran.stderr.total > 0 {
        text.push_str("[stderr]\n");
        text.push_str(&with_newline(shown(&ran.stderr)));
    }
    if ran.stdout.total + ran.stderr.total == 0 {
        text.push_str("[no output]\n");
    }
    if let Some(why) = why_ended(ran, time) {
        text.push_str(&format!("[{why}]\n"));
    }
    if ran.lingers {
        text.push_str(
            "[a process that the command started still runs and holds its output; use \
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

fn egirl(ran: &Ran, time: Option<Duration>) -> String {
    let mut text = shown(&ran.stdout);
    if ran.stderr.total > 0 {
        text.push_str(&format!("\n\nstderr:\n{}", shown(&ran.stderr)));
    }
    if let Some(why) = why_ended(ran, time) {
        return format!("Command {why}\n{text}");
    }
    if text.is_empty() {
        return format!("Command completed with exit code {}", ran.code);
    }
    text
}

fn tools_api(ran: &Ran, time: Option<Duration>) -> String {
    let mut text = shown(&ran.stdout);
    if ran.stderr.total > 0 {
        text = with_newline(text);
        text.push_str(&format!("--- stderr ---\n{}", shown(&ran.stderr)));
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

fn core(ran: &Ran, ok: bool, time: Option<Duration>) -> Value {
    let status = match ran.end {
        End::Cancelled => "cancelled",
        End::Exited | End::TimedOut => {
            if ok {
                "success"
            } else {
                "error"
            }
        }
    };
    let cut = |stream: &Captured| {
        let mut text = stream.head.clone();
        if stream.left_out > 0 {
            text = format!("{}[truncated]", with_newline(text));
        }
        text
    };
    let mut stderr = cut(&ran.stderr);
    if let Some(why) = why_ended(ran, time) {
        stderr = format!("{}Command {why}", with_newline(stderr));
    }
    let code = if ran.end == End::Exited { ran.code } else { -1 };
    let voice = match (status, ran.end) {
        (_, End::TimedOut) => "The command took too long.".to_owned(),
        (_, End::Cancelled) => "The command was cancelled.".to_owned(),
        ("success", End::Exited) => "Command completed successfully.".to_owned(),
        (_, End::Exited) => format!("The command failed with exit code {code}."),
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
