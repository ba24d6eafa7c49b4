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
    pub(crate) fn is_over(self) -> bool {
        matches!(self, TodoStatus::Completed | TodoStatus::Cancelled)
    }

    /// Returns the character in its check box.
    pub(crate) fn mark(self) -> char {
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
    pub(crate) fn default_of(todos: Vec<TodoEntry>) -> TodoPhase {
        TodoPhase { id: DEFAULT_ID.to_owned(), name: DEFAULT_NAME.to_owned(), todos }
    }
}

/// Parses a flat list: one phase, or none if it is empty.
pub(crate) fn flat(todos: &[Value]) -> Result<Vec<TodoPhase>, String> {
    let items = items(todos, "todos")?;
    Ok(if items.is_empty() { Vec::new() } else { vec![TodoPhase::default_of(items)] })
}

/// Parses the phases of a call.
pub(crate) fn phases(given: &[Value]) -> Result<Vec<TodoPhase>, String> {
    let one = |(i, phase): (usize, &Value)| {
        let text = |key: &str| phase[key].as_str().map(str::to_owned);
        let name = text("name").ok_or_else(|| format!("missing `name` in phases[{i}]"))?;
        let id = text("id").unwrap_or_else(|| format!("phase-{}", i + 1));
        let todos = phase["todos"].as_array().map_or(&[][..], Vec::as_slice);
        Ok(TodoPhase { id, name, todos: items(todos, &format!("phases[{i}].todos"))? })
    };
    given.iter().enumerate().map(one).collect()
}

fn items(given: &[Value], place: &str) -> Result<Vec<TodoEntry>, String> {
    let one = |(i, item): (usize, &Value)| {
        // A plain string is an item without further fields.
        let content = item["content"].as_str().or_else(|| item.as_str());
        let content = content.ok_or_else(|| format!("missing `content` in {place}[{i}]"))?;
        let id = match &item["id"] {
            Value::String(id) => id.clone(),
            Value::Number(id) => id.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
        };
        let status = serde_json::from_value(item["status"].clone()).unwrap_or_default();
        let priority = serde_json::from_value(item["priority"].clone()).unwrap_or_default();
        Ok(TodoEntry { id, content: content.to_owned(), status, priority, depth: 0 })
    };
    given.iter().enumerate().map(one).collect()
}

/// Assigns an id to each item without one: that of the same text before, otherwise a free number.
pub(crate) fn with_ids(
    mut phases: Vec<TodoPhase>,
    before: &[TodoPhase],
) -> Result<Vec<TodoPhase>, String> {
    let mut taken = BTreeSet::new();
    for item in phases.iter().flat_map(|phase| &phase.todos).filter(|item| !item.id.is_empty()) {
        if !taken.insert(item.id.clone()) {
            return Err(format!("two items have the id `{}`", item.id));
        }
    }
    let known: Vec<&TodoEntry> = before.iter().flat_map(|phase| &phase.todos).collect();
    let mut next = 1;
    let nameless = phases.iter_mut().flat_map(|phase| &mut phase.todos);
    for item in nameless.filter(|item| item.id.is_empty()) {
        let same = known.iter().find(|old| old.content == item.content && !taken.contains(&old.id));
        item.id = match same {
            Some(old) => old.id.clone(),
            None => loop {
                let id = format!("todo-{next}");
                next += 1;
                if !taken.contains(&id) && !known.iter().any(|old| old.id == id) {
                    break id;
                }
            },
        };
        taken.insert(item.id.clone());
    }
    Ok(phases)
}

/// Formats the list as in the Tools API.
pub(crate) fn shown(phases: &[TodoPhase]) -> String {
    let mut text = String::new();
    for phase in phases {
        let over = phase.todos.iter().filter(|item| item.status.is_over()).count();
        let started = phase.todos.iter().any(|item| item.status != TodoStatus::Pending);
        let mark = if over == phase.todos.len() {
            "✓"
        } else if started {
            "▶"
        } else {
            "○"
        };
        text.push_str(&format!("{mark} {} ({over}/{})\n", phase.name, phase.todos.len()));
        for item in &phase.todos {
            text.push_str(&format!(
                "{}[{}] [{}] {} ({})\n",
                "  ".repeat(item.depth + 1),
                item.status.mark(),
                item.priority.name(),
                item.content,
                item.id
            ));
        }
    }
    text.trim_end().to_owned()
}
