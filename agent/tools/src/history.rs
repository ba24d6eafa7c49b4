//! The tool actions of this session, newest last.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base::clock::Clock;
use base::files::{Journal, read_journal};
use base::text::head;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::call::Invocation;
use super::context::ToolContext;
use super::kind::{Effect, ToolKind};
use super::output::{ToolError, ToolOutput};
use super::tool::{Tool, ToolFuture, ToolSpec};

/// Maximum number of actions returned.
const MAX_ACTIONS: usize = 50;
/// Maximum number of bytes kept of a result or of a text argument.
const MAX_SUMMARY: usize = 500;

/// A completed call.
#[derive(Debug, Serialize, Deserialize)]
struct Action {
    tool: String,
    args: Value,
    ok: bool,
    result_summary: String,
    timestamp: String,
    duration_ms: u64,
    undoable_hint: String,
}

#[derive(Deserialize)]
struct Args {
    last_n: Option<usize>,
    /// Return a bare array, as documented for the core tools.
    #[serde(default)]
    bare: bool,
}

/// The tool that shows the completed calls of the session.
pub struct HistoryTool;

impl Tool for HistoryTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("history", Effect::Looks)
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(std::future::ready(run(call)))
    }
}

/// Returns the last actions, oldest first.
fn run(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Args { last_n, bare } = call.decode()?;
    let file = file(&call.context.session_dir);
    let all: Vec<Action> =
        read_journal(&file).map_err(|e| ToolError::io("cannot read the history", &e))?;
    let total = all.len().min(MAX_ACTIONS);
    let first = all.len().saturating_sub(last_n.unwrap_or(MAX_ACTIONS).clamp(1, MAX_ACTIONS));
    let actions: Vec<Value> =
        all[first..].iter().enumerate().map(|(i, a)| to_json(first + i + 1, a)).collect();
    let text = actions.iter().map(|action| format!("{action}\n")).collect::<String>();
    let metadata = if bare {
        Value::Array(actions)
    } else {
        json!({ "status": "success", "actions": actions, "total_count": total })
    };
    Ok(ToolOutput::success(text).with(metadata))
}

fn to_json(step: usize, action: &Action) -> Value {
    json!({
        "step": step,
        "tool": action.tool,
        "args": action.args,
        "ok": action.ok,
        "result_summary": action.result_summary,
        "timestamp": action.timestamp,
        "undoable_hint": action.undoable_hint,
    })
}

fn file(session_dir: &Path) -> PathBuf {
    session_dir.join("tools/history.jsonl")
}

/// Records a completed call. Write errors are ignored.
pub(crate) fn record(
    context: &ToolContext,
    spec: ToolSpec,
    tool: &str,
    args: &Value,
    outcome: &ToolOutput,
    elapsed: Duration,
) {
    if spec.kind != ToolKind::HISTORY {
        append(context, tool, args, outcome, elapsed, spec.undo_hint);
    }
}

/// Records an action that did not go through the table of tools.
pub fn append(
    context: &ToolContext,
    tool: &str,
    args: &Value,
    outcome: &ToolOutput,
    elapsed: Duration,
    hint: &str,
) {
    let action = Action {
        tool: tool.to_owned(),
        args: shorten(args),
        ok: outcome.ok,
        result_summary: head(&outcome.text, MAX_SUMMARY).to_owned(),
        timestamp: Clock::from_env().stamp(),
        duration_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        undoable_hint: hint.to_owned(),
    };
    let file = file(&context.session_dir);
    let Some(parent) = file.parent() else { return };
    let result = std::fs::create_dir_all(parent)
        .and_then(|()| Journal::open(&file))
        .and_then(|mut journal| journal.append(&action));
    if let Err(error) = result {
        (context.on_output)(&format!("[cannot write the tool history: {error}]\n"));
    }
}

/// Truncates the long texts in the arguments.
fn shorten(args: &Value) -> Value {
    match args {
        Value::String(text) => Value::from(head(text, MAX_SUMMARY)),
        Value::Array(items) => items.iter().map(shorten).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), shorten(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => args.clone(),
    }
}
