//! The todo list tools: one store, as Markdown for some profiles and as items for others.

use serde::Deserialize;
use serde_json::{Value, json};

use list::{TodoEntry, TodoPhase, TodoStatus};
use tools::call::Invocation;
use tools::kind::Effect;
use tools::output::{ToolError, ToolOutput};
use tools::profile::OutputStyle;
use tools::tool::{CallScope, Tool, ToolFuture, ToolSpec};

pub mod list;
pub mod markdown;
pub mod store;

/// Maximum number of characters of a list, unless `G3_TODO_MAX_CHARS` is set.
const MAX_CHARS: usize = 50_000;

const EMPTY: &str = "No todo items found";

#[derive(Deserialize)]
struct Text {
    content: String,
}

#[derive(Deserialize)]
struct Items {
    todos: Option<Vec<Value>>,
    phases: Option<Vec<Value>>,
}

/// The tool that reads the todo list.
pub(crate) struct TodoReadTool;

impl Tool for TodoReadTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("todo.read", Effect::Looks)
    }

    fn scope(&self, _call: &Invocation<'_>) -> CallScope {
        CallScope::keyed("todo")
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(std::future::ready(run_read(call)))
    }
}

/// Returns the list.
fn run_read(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let list = store::load(&call.context.session_dir)
        .map_err(|e| ToolError::io("cannot read the todo list", &e))?;
    let metadata = counts(&list.phases);
    let text = match call.profile_tool.style {
        OutputStyle::ToolsApi => list::as_markdown(&list.phases),
        OutputStyle::G3 | OutputStyle::Egirl | OutputStyle::Core => list.text,
    };
    let text = if text.trim().is_empty() { EMPTY.to_owned() } else { text };
    Ok(ToolOutput::success(text).with(metadata))
}

/// The tool that replaces the todo list by text.
pub(crate) struct TodoWriteTool;

impl Tool for TodoWriteTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("todo.write", Effect::Looks)
    }

    fn scope(&self, _call: &Invocation<'_>) -> CallScope {
        CallScope::keyed("todo")
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(std::future::ready(run_write(call)))
    }
}

/// Replaces the list by Markdown, which is stored verbatim.
fn run_write(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Text { content } = call.decode()?;
    let length = content.chars().count();
    let max = std::env::var("G3_TODO_MAX_CHARS").ok().and_then(|n| n.parse().ok());
    let max = max.unwrap_or(MAX_CHARS);
    if length > max {
        return Err(ToolError::invalid(format!(
            "the list has {length} characters, and {max} is the most; nothing was written"
        )));
    }
    let phases = markdown::read(&content);
    save(call, &phases, &content)?;
    let (open, total) = open_and_total(&phases);
    let text = format!("TODO list updated: {open} of {total} items are open");
    Ok(ToolOutput::success(text).with(counts(&phases)))
}

/// The tool that replaces the todo list by items.
pub(crate) struct TodoItemsTool;

impl Tool for TodoItemsTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec::new("todo.items", Effect::Looks)
    }

    fn scope(&self, _call: &Invocation<'_>) -> CallScope {
        CallScope::keyed("todo")
    }

    fn call<'a>(&'a self, call: &'a Invocation<'_>) -> ToolFuture<'a> {
        Box::pin(std::future::ready(run_items(call)))
    }
}

/// Replaces the list by items.
fn run_items(call: &Invocation<'_>) -> Result<ToolOutput, ToolError> {
    let Items { todos, phases } = call.decode()?;
    let before = store::load(&call.context.session_dir).map(|list| list.phases).unwrap_or_default();
    let phases = match (phases, todos) {
        (Some(phases), _) => list::parse_phases(&phases),
        (None, Some(todos)) => list::parse_flat(&todos),
        (None, None) => Ok(Vec::new()),
    };
    let phases = list::assign_ids(phases.map_err(ToolError::invalid)?, &before);
    let phases = phases.map_err(ToolError::invalid)?;
    save(call, &phases, &markdown::write(&phases))?;
    let mut text = list::as_markdown(&phases);
    if text.is_empty() {
        text = "The todo list is empty".to_owned();
    }
    let active = all_entries(&phases).filter(|item| item.status == TodoStatus::InProgress).count();
    if active > 1 {
        text.push_str(&format!("\n[note: {active} items are in progress; work on one at a time]"));
    }
    let (open, _) = open_and_total(&phases);
    Ok(ToolOutput::success(text).titled(format!("{open} todos")).with(counts(&phases)))
}

fn save(call: &Invocation<'_>, phases: &[TodoPhase], text: &str) -> Result<(), ToolError> {
    store::save(&call.context.session_dir, phases, text)
        .map_err(|e| ToolError::io("cannot write the todo list", &e))
}

fn all_entries(phases: &[TodoPhase]) -> impl Iterator<Item = &TodoEntry> {
    phases.iter().flat_map(|phase| &phase.todos)
}

fn open_and_total(phases: &[TodoPhase]) -> (usize, usize) {
    let open = all_entries(phases).filter(|item| !item.status.is_closed()).count();
    (open, all_entries(phases).count())
}

fn counts(phases: &[TodoPhase]) -> Value {
    let count = |status| all_entries(phases).filter(|item| item.status == status).count();
    json!({
        "pending": count(TodoStatus::Pending),
        "in_progress": count(TodoStatus::InProgress),
        "completed": count(TodoStatus::Completed),
        "cancelled": count(TodoStatus::Cancelled),
        "total": all_entries(phases).count(),
        "todos": all_entries(phases).collect::<Vec<_>>(),
    })
}
