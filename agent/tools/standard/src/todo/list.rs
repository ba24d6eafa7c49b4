//! Todo items, in phases, with a status and a priority.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The status of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub(crate) enum TodoStatus {
    #[default]
    Pending,
    InProgress,
    Completed,
    Cancelled,
}

/// The priority of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub(crate) enum TodoPriority {
    High,
    #[default]
    Medium,
    Low,
}

/// A todo item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TodoEntry {
    /// An id that is unique in the list.
    pub id: String,
    /// The text.
    pub content: String,
    /// The status.
    pub status: TodoStatus,
    /// The priority.
    pub priority: TodoPriority,
    /// The nesting depth; 0 at the top.
    #[serde(default)]
    pub depth: usize,
}

/// A named phase of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TodoPhase {
    /// An id that is unique in the list.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// The items, in order.
    pub todos: Vec<TodoEntry>,
}

/// The phase of a flat list.
pub(crate) const DEFAULT_ID: &str = "default";
const DEFAULT_NAME: &str = "Tasks";

impl TodoStatus {
    /// Whether nothing remains to be done.
    pub(crate) fn is_closed(self) -> bool {
        matches!(self, TodoStatus::Completed | TodoStatus::Cancelled)
    }

    /// Returns the character in its check box.
    pub(crate) fn checkbox_mark(self) -> char {
        match self {
            TodoStatus::Pending => ' ',
            TodoStatus::InProgress => '>',
            TodoStatus::Completed => 'x',
            TodoStatus::Cancelled => '-',
        }
    }
}

impl TodoPriority {
    /// Returns its name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TodoPriority::High => "high",
            TodoPriority::Medium => "medium",
            TodoPriority::Low => "low",
        }
    }
}

impl TodoPhase {
    /// Returns the single phase of a flat list.
    pub(crate) fn default_phase(todos: Vec<TodoEntry>) -> TodoPhase {
        TodoPhase { id: DEFAULT_ID.to_owned(), name: DEFAULT_NAME.to_owned(), todos }
    }
}

/// Parses a flat list: one phase, or none if it is empty.
pub(crate) fn parse_flat(todos: &[Value]) -> Result<Vec<TodoPhase>, String> {
    let items = parse_items(todos, "todos")?;
    Ok(if items.is_empty() { Vec::new() } else { vec![TodoPhase::default_phase(items)] })
}

/// Parses the phases of a call.
pub(crate) fn parse_phases(values: &[Value]) -> Result<Vec<TodoPhase>, String> {
    let parse_phase = |(i, phase): (usize, &Value)| {
        let text = |key: &str| phase[key].as_str().map(str::to_owned);
        let name = text("name").ok_or_else(|| format!("missing `name` in phases[{i}]"))?;
        let id = text("id").unwrap_or_else(|| format!("phase-{}", i + 1));
        let todos = phase["todos"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(TodoPhase { id, name, todos: parse_items(todos, &format!("phases[{i}].todos"))? })
    };
    values.iter().enumerate().map(parse_phase).collect()
}

fn parse_items(values: &[Value], location: &str) -> Result<Vec<TodoEntry>, String> {
    let parse_item = |(i, item): (usize, &Value)| {
        // A plain string is an item without further fields.
        let content = item["content"].as_str().or_else(|| item.as_str());
        let content = content.ok_or_else(|| format!("missing `content` in {location}[{i}]"))?;
        let id = match &item["id"] {
            Value::String(id) => id.clone(),
            Value::Number(id) => id.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
        };
        let status = serde_json::from_value(item["status"].clone()).unwrap_or_default();
        let priority = serde_json::from_value(item["priority"].clone()).unwrap_or_default();
        Ok(TodoEntry { id, content: content.to_owned(), status, priority, depth: 0 })
    };
    values.iter().enumerate().map(parse_item).collect()
}

/// Assigns an id to each item without one: that of the same text before, otherwise a free number.
pub(crate) fn assign_ids(
    mut phases: Vec<TodoPhase>,
    previous_phases: &[TodoPhase],
) -> Result<Vec<TodoPhase>, String> {
    let mut used_ids = BTreeSet::new();
    for item in phases.iter().flat_map(|phase| &phase.todos).filter(|item| !item.id.is_empty()) {
        if !used_ids.insert(item.id.clone()) {
            return Err(format!("two items have the id `{}`", item.id));
        }
    }
    let previous: Vec<&TodoEntry> = previous_phases.iter().flat_map(|phase| &phase.todos).collect();
    let mut next = 1;
    let without_id = phases.iter_mut().flat_map(|phase| &mut phase.todos);
    for item in without_id.filter(|item| item.id.is_empty()) {
        let unchanged =
            previous.iter().find(|old| old.content == item.content && !used_ids.contains(&old.id));
        item.id = match unchanged {
            Some(old) => old.id.clone(),
            None => loop {
                let id = format!("todo-{next}");
                next += 1;
                if !used_ids.contains(&id) && !previous.iter().any(|old| old.id == id) {
                    break id;
                }
            },
        };
        used_ids.insert(item.id.clone());
    }
    Ok(phases)
}

/// Formats the list as in the Tools API.
pub(crate) fn as_markdown(phases: &[TodoPhase]) -> String {
    let mut text = String::new();
    for phase in phases {
        let closed = phase.todos.iter().filter(|item| item.status.is_closed()).count();
        let started = phase.todos.iter().any(|item| item.status != TodoStatus::Pending);
        let mark = if closed == phase.todos.len() {
            "✓"
        } else if started {
            "▶"
        } else {
            "○"
        };
        text.push_str(&format!("{mark} {} ({closed}/{})\n", phase.name, phase.todos.len()));
        for item in &phase.todos {
            text.push_str(&format!(
                "{}[{}] [{}] {} ({})\n",
                "  ".repeat(item.depth + 1),
                item.status.checkbox_mark(),
                item.priority.name(),
                item.content,
                item.id
            ));
        }
    }
    text.trim_end().to_owned()
}
