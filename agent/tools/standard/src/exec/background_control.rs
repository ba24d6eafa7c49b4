//! Controls background processes: their state, their log, and stopping them.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use base::process::signal_group;
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::{Value, json};

use super::background::{BackgroundProcess, directory, file_slug, is_running, load};
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolErrorKind, ToolOutput};
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

#[derive(Deserialize)]
struct Args {
    #[serde(default)]
    action: Action,
    name: Option<String>,
    #[serde(default = "default_lines")]
    lines: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    #[default]
    List,
    Status,
    Log,
    Kill,
}

fn default_lines() -> usize {
    100
}

/// Time that a process has to exit before it is killed.
const KILL_GRACE: Duration = Duration::from_secs(2);
/// Maximum number of bytes shown from the end of a log.
const MAX_LOG: u64 = 30_000;

/// The tool that controls background processes.
pub(crate) struct ProcessControlTool;

impl Tool for ProcessControlTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("exec.control", Effect::Looks)
    }

    fn scope(&self, _call: &Invocation<'_>) -> CallScope {
        CallScope::keyed("background")
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(run(call))
    }
}

/// Performs the requested action.
async fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let args: Args = call.decode()?;
    if args.action == Action::List {
        return Ok(list(call));
    }
    let record = find_by_name(call, args.name.as_deref())?;
    match args.action {
        Action::List | Action::Status => Ok(report(&record, state(&record))),
        Action::Log => log(&record, args.lines),
        Action::Kill => Ok(kill(&record).await),
    }
}

fn all_processes(call: &Invocation<'_>) -> Vec<BackgroundProcess> {
    let entries = fs::read_dir(directory(call.context)).into_iter().flatten().flatten();
    let mut all: Vec<BackgroundProcess> = entries.filter_map(|entry| load(&entry.path())).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn find_by_name(call: &Invocation<'_>, name: Option<&str>) -> Result<BackgroundProcess, ToolError> {
    let known_names = || {
        let names: Vec<String> =
            all_processes(call).into_iter().map(|it| format!("`{}`", it.name)).collect();
        if names.is_empty() {
            "no background process is known".to_owned()
        } else {
            names.join(", ")
        }
    };
    let Some(name) = name else {
        return Err(ToolError::invalid(format!("`name` is missing: {}", known_names())));
    };
    let file = directory(call.context).join(format!("{}.json", file_slug(name)?));
    load(&file).ok_or_else(|| {
        let text = format!("no process `{name}` was started in the background: {}", known_names());
        ToolError::new(ToolErrorKind::NotFound, text)
    })
}

fn state(record: &BackgroundProcess) -> &'static str {
    if is_running(record) { "running" } else { "ended" }
}

fn list(call: &Invocation<'_>) -> ToolOutput {
    let processes = all_processes(call);
    let row = |record: &BackgroundProcess| {
        format!("{}: {}, pid {}: {}", record.name, state(record), record.pid, record.command)
    };
    let text = match processes.is_empty() {
        true => "nothing was started in the background".to_owned(),
        false => processes.iter().map(row).collect::<Vec<_>>().join("\n"),
    };
    let rows: Vec<Value> = processes.iter().map(|record| facts(record, state(record))).collect();
    ToolOutput::success(text).with(json!({ "processes": rows }))
}

fn facts(record: &BackgroundProcess, state: &str) -> Value {
    json!({
        "name": record.name, "status": state, "pid": record.pid,
        "command": record.command, "log": record.log,
    })
}

fn report(record: &BackgroundProcess, state: &str) -> ToolOutput {
    let bytes = fs::metadata(&record.log).map_or(0, |facts| facts.len());
    let text = format!(
        "{}: {state}\npid: {}\nlog: {} ({bytes} bytes)",
        record.name,
        record.pid,
        record.log.display()
    );
    ToolOutput::success(text).with(facts(record, state))
}

fn log(record: &BackgroundProcess, lines: usize) -> Result<ToolOutput, ToolError> {
    let read_error =
        |error| ToolError::io(&format!("cannot read {}", record.log.display()), &error);
    let (text, is_truncated) = tail(&record.log, lines.max(1)).map_err(read_error)?;
    let note = match is_truncated {
        true => format!("[the beginning is left out; all of it is in {}]\n", record.log.display()),
        false => String::new(),
    };
    let state = state(record);
    let text = format!("{note}{}", base::text::printable_output(&text));
    Ok(ToolOutput::success(text)
        .titled(format!("{}: {state}", record.name))
        .with(facts(record, state)))
}

/// Returns the last lines of a file, and whether there are more before them.
fn tail(path: &Path, lines: usize) -> std::io::Result<(String, bool)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(MAX_LOG);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(MAX_LOG).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut tail_lines: Vec<&str> = text.split_inclusive('\n').collect();
    // The first line may be incomplete.
    if start > 0 && tail_lines.len() > 1 {
        tail_lines.remove(0);
    }
    let skipped = tail_lines.len().saturating_sub(lines);
    Ok((tail_lines[skipped..].concat(), start > 0 || skipped > 0))
}

/// Kills a process and its child processes.
async fn kill(record: &BackgroundProcess) -> ToolOutput {
    if !is_running(record) {
        return report(record, "ended");
    }
    signal_group(record.pid, Signal::TERM);
    if !has_ended_within(record, KILL_GRACE).await {
        signal_group(record.pid, Signal::KILL);
        has_ended_within(record, KILL_GRACE).await;
    }
    match state(record) {
        "ended" => report(record, "ended"),
        state => ToolOutput {
            ok: false,
            error_kind: Some(ToolErrorKind::Failed),
            ..report(record, state)
        },
    }
}

async fn has_ended_within(record: &BackgroundProcess, timeout: Duration) -> bool {
    let wait = async {
        while is_running(record) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(timeout, wait).await.is_ok()
}
