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
const RING: usize = 50;
/// Maximum number of bytes kept of a result or of a text argument.
const SUMMARY: usize = 500;

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
    let file = file(&call.at.session_dir);
    let all: Vec<Action> =
        read_journal(&file).map_err(|e| ToolError::io("cannot read the history", &e))?;
    let total = all.len().min(RING);
    let first = all.len().saturating_sub(last_n.unwrap_or(RING).clamp(1, RING));
    let actions: Vec<Value> =
        all[first..].iter().enumerate().map(|(i, a)| told(first + i + 1, a)).collect();
    let text = actions.iter().map(|action| format!("{action}\n")).collect::<String>();
    let metadata = if bare {
        Value::Array(actions)
    } else {
        json!({ "status": "success", "actions": actions, "total_count": total })
    };
    Ok(ToolOutput::done(text).with(metadata))
}

fn told(step: usize, action: &Action) -> Value {
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
    at: &ToolContext,
    spec: ToolSpec,
    tool: &str,
    args: &Value,
    outcome: &ToolOutput,
    took: Duration,
) {
    if spec.kind != ToolKind::HISTORY {
        keep(at, tool, args, outcome, took, spec.undo_hint);
    }
}

/// Records an action that did not go through the table of tools.
pub fn keep(
    at: &ToolContext,
    tool: &str,
    args: &Value,
    outcome: &ToolOutput,
    took: Duration,
    hint: &str,
) {
    let action = Action {
        tool: tool.to_owned(),
        args: shortened(args),
        ok: outcome.ok,
        result_summary: head(&outcome.text, SUMMARY).to_owned(),
        timestamp: Clock::from_env().stamp(),
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        undoable_hint: hint.to_owned(),
    };
    let file = file(&at.session_dir);
    let Some(parent) = file.parent() else { return };
    let written = std::fs::create_dir_all(parent)
        .and_then(|()| Journal::open(&file))
        .and_then(|mut journal| journal.append(&action));
    if let Err(why) = written {
        (at.hear)(&format!("[cannot write the tool history: {why}]\n"));
    }
}

/// Truncates the long texts in the arguments.
fn shortened(args: &Value) -> Value {
    match args {
        Value::String(text) => Value::from(head(text, SUMMARY)),
        Value::Array(items) => items.iter().map(shortened).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), shortened(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => args.clone(),
    }
}
