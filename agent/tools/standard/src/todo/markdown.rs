//! Converts the list to Markdown check boxes and back.

use super::list::{DEFAULT_ID, TodoEntry, TodoPhase, TodoPriority, TodoStatus, assign_ids};

/// Parses check boxes: `- [ ]` pending, `[x]` completed, `[>]` in progress, `[~]` and `[-]`
/// cancelled. Indentation is the depth, headings are phases. Other lines are ignored.
pub(crate) fn read(text: &str) -> Vec<TodoPhase> {
    let mut phases: Vec<TodoPhase> = Vec::new();
    let mut indents: Vec<usize> = Vec::new();
    for line in text.lines() {
        let body = line.trim_start();
        if let Some(name) = body.strip_prefix('#') {
            let name = name.trim_start_matches('#').trim().to_owned();
            let id = format!("phase-{}", phases.len() + 1);
            phases.push(TodoPhase { id, name, todos: Vec::new() });
            indents.clear();
            continue;
        }
        let Some((status, content)) = item(body) else { continue };
        let indent = line.len() - body.len();
        indents.retain(|parent_indent| *parent_indent < indent);
        let depth = indents.len();
        indents.push(indent);
        if phases.is_empty() {
            phases.push(TodoPhase::default_phase(Vec::new()));
        }
        let content = content.trim().to_owned();
        let todo =
            TodoEntry { id: String::new(), content, status, priority: TodoPriority::Medium, depth };
        if let Some(phase) = phases.last_mut() {
            phase.todos.push(todo);
        }
    }
    phases.retain(|phase| !phase.todos.is_empty());
    assign_ids(phases, &[]).unwrap_or_default()
}

fn item(line: &str) -> Option<(TodoStatus, &str)> {
    let rest = line.strip_prefix(['-', '*', '+'])?.trim_start().strip_prefix('[')?;
    let mut chars = rest.chars();
    let status = match chars.next()? {
        ' ' => TodoStatus::Pending,
        'x' | 'X' => TodoStatus::Completed,
        '>' => TodoStatus::InProgress,
        '~' | '-' => TodoStatus::Cancelled,
        _ => return None,
    };
    chars.as_str().strip_prefix(']').map(|content| (status, content))
}

/// Formats check boxes. The single phase of a flat list gets no heading.
pub(crate) fn write(phases: &[TodoPhase]) -> String {
    let mut text = String::new();
    for phase in phases {
        if phase.id != DEFAULT_ID {
            text.push_str(&format!("## {}\n", phase.name));
        }
        for item in &phase.todos {
            let indent = "  ".repeat(item.depth);
            text.push_str(&format!(
                "{indent}- [{}] {}\n",
                item.status.checkbox_mark(),
                item.content
            ));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_boxes_and_items_convert_both_ways() {
        let text = "- [ ] a\n  - [x] b\n    - [>] c\n  - [-] d\n- [ ] e\n";
        let phases = read(text);
        let all: Vec<_> =
            phases[0].todos.iter().map(|i| (i.content.as_str(), i.status, i.depth)).collect();
        assert_eq!(
            all,
            [
                ("a", TodoStatus::Pending, 0),
                ("b", TodoStatus::Completed, 1),
                ("c", TodoStatus::InProgress, 2),
                ("d", TodoStatus::Cancelled, 1),
                ("e", TodoStatus::Pending, 0),
            ]
        );
        assert_eq!(write(&phases), text);
    }

    #[test]
    fn headings_are_phases_and_other_lines_are_ignored() {
        let phases = read("# One\nwords\n- plain\n- [ ] a\n## Two\n* [x] b\n");
        let names: Vec<&str> = phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(names, ["One", "Two"]);
        assert_eq!(phases[1].todos[0].content, "b");
    }
}
