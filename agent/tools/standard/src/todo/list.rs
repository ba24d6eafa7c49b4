//! Items, in phases, with a status and a priority.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How far an item is.
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

/// How much an item matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub(crate) enum TodoPriority {
    High,
    #[default]
    Medium,
    Low,
}

/// Something to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TodoEntry {
    /// Unique in the list.
    pub id: String,
    /// What.
    pub content: String,
    /// How far it is.
    pub status: TodoStatus,
    /// How much it matters.
    pub priority: TodoPriority,
    /// How deep it stands below others; 0 at the top.
    #[serde(default)]
    pub depth: usize,
}

/// A named part of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TodoPhase {
    /// Unique in the list.
    pub id: String,
    /// What people call it.
    pub name: String,
    /// Its items, in order.
    pub todos: Vec<TodoEntry>,
}

/// The phase of a list that names none.
pub(crate) const DEFAULT_ID: &str = "default";
const DEFAULT_NAME: &str = "Tasks";

impl TodoStatus {
    /// Whether nothing is left to do.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, TodoStatus::Completed | TodoStatus::Cancelled)
    }

    /// The character in its box.
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
    /// Its name on the wire.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TodoPriority::High => "high",
            TodoPriority::Medium => "medium",
            TodoPriority::Low => "low",
        }
    }
}

impl TodoPhase {
    /// The one phase of a flat list.
    pub(crate) fn default_of(todos: Vec<TodoEntry>) -> TodoPhase {
        TodoPhase { id: DEFAULT_ID.to_owned(), name: DEFAULT_NAME.to_owned(), todos }
    }
}

/// A flat list: one phase, or none when it is empty.
pub(crate) fn flat(todos: &[Value]) -> Result<Vec<TodoPhase>, String> {
    let items = items(todos, "todos")?;
    Ok(if items.is_empty() { Vec::new() } else { vec![TodoPhase::default_of(items)] })
}

/// Phases as a caller gives them.
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
        // A bare string is an item without any detail.
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

/// Gives an id to each item that has none: that of the same text before, else a free number.
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

/// The list as the Tools API shows it.
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
