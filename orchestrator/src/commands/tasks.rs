//! `--tasks FILE`: TOML with `[[task]]`, or a Markdown list with one task an item.

use std::path::Path;

use base::failure::{Failure, Result};
use serde::Deserialize;

use crate::commands::order::Order;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    task: Vec<Task>,
}

/// One task of a TOML file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    text: String,
    agent: Option<String>,
    persona: Option<String>,
    base: Option<String>,
    #[serde(default)]
    checks: Vec<String>,
}

/// Reads the tasks of a file.
pub fn read(path: &Path) -> Result<Vec<Order>> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::usage(format!("cannot read {}", path.display())).because(e))?;
    let orders = match path.extension().is_some_and(|end| end == "toml") {
        true => from_toml(&text).map_err(|why| {
            Failure::usage(format!("{} is not a list of tasks", path.display()))
                .because(why)
                .next("write: [[task]] and below it: text = \"what to do\"")
        })?,
        false => from_markdown(&text),
    };
    if orders.is_empty() {
        return Err(Failure::usage(format!("there is no task in {}", path.display()))
            .next("write one list item per task: `- what to do`"));
    }
    Ok(orders)
}

fn from_toml(text: &str) -> std::result::Result<Vec<Order>, toml::de::Error> {
    let file: File = toml::from_str(text)?;
    let order = |task: Task| Order {
        agent: task.agent,
        persona: task.persona,
        base: task.base,
        checks: task.checks,
        ..Order::of(task.text)
    };
    Ok(file.task.into_iter().map(order).collect())
}

/// Items begin at the margin with `-`, `*` or a number; what is indented belongs to its item.
fn from_markdown(text: &str) -> Vec<Order> {
    let mut tasks: Vec<String> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        if let Some(item) = item(line) {
            open = !item.starts_with("[x]");
            if open {
                tasks.push(item.strip_prefix("[ ] ").unwrap_or(item).to_owned());
            }
        } else if open && (line.starts_with("  ") || line.starts_with('\t')) {
            if let Some(last) = tasks.last_mut() {
                last.push('\n');
                last.push_str(line.trim());
            }
        } else if !line.trim().is_empty() {
            open = false;
        }
    }
    tasks.into_iter().map(|task| Order::of(task.trim().to_owned())).collect()
}

fn item(line: &str) -> Option<&str> {
    let numbered = || {
        let digits = line.len() - line.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 { None } else { line[digits..].strip_prefix(". ") }
    };
    let rest = line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).or_else(numbered)?;
    Some(rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(orders: Vec<Order>) -> Vec<String> {
        orders.into_iter().map(|order| order.task).collect()
    }

    #[test]
    fn a_markdown_list_is_one_task_an_item() {
        let text = "# Tasks\n\n- [ ] fix login\n  and its test\n- [x] done\n\n1. write docs\n\nend";
        assert_eq!(texts(from_markdown(text)), ["fix login\nand its test", "write docs"]);
    }

    #[test]
    fn a_toml_file_names_checks_and_agents() {
        let text = "[[task]]\ntext = 'a'\nchecks = ['true']\npersona = 'p'\n\
                    [[task]]\ntext = 'b'\nagent = 'x'";
        let orders = from_toml(text).unwrap();
        assert_eq!((orders[0].persona.as_deref(), &orders[1].persona), (Some("p"), &None));
        assert_eq!((orders[0].checks.len(), orders[1].agent.as_deref()), (1, Some("x")));
        assert!(from_toml("[[task]]\ntxt = 'a'").is_err());
    }
}
