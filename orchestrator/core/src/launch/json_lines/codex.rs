//! `codex exec --json`.

use base::event::{EventKind, TodoItem, Usage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{LineFormat, LineUpdate};

/// Reads the lines of Codex.
#[derive(Debug)]
pub(crate) struct CodexLines;

#[derive(Deserialize)]
#[serde(tag = "type")]
enum CodexLine {
    #[serde(rename = "thread.started")]
    ThreadStarted { thread_id: String },
    #[serde(rename = "item.started")]
    ItemStarted { item: CodexItem },
    #[serde(rename = "item.updated")]
    ItemUpdated { item: CodexItem },
    #[serde(rename = "item.completed")]
    ItemCompleted { item: CodexItem },
    #[serde(rename = "turn.completed")]
    TurnCompleted { usage: Option<CodexUsage> },
    #[serde(rename = "turn.failed")]
    TurnFailed { error: CodexError },
    #[serde(rename = "error")]
    Error { message: String },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct CodexItem {
    #[serde(default)]
    id: String,
    #[serde(flatten)]
    kind: CodexItemKind,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CodexItemKind {
    AgentMessage {
        text: String,
    },
    Reasoning {
        text: String,
    },
    CommandExecution {
        command: String,
        #[serde(default)]
        aggregated_output: String,
        exit_code: Option<i32>,
        status: String,
    },
    FileChange {
        #[serde(default)]
        changes: Value,
        status: String,
    },
    McpToolCall {
        #[serde(default)]
        server: String,
        tool: String,
        #[serde(default)]
        arguments: Value,
        result: Option<Value>,
        error: Option<CodexError>,
        status: String,
    },
    WebSearch {
        #[serde(default)]
        query: String,
    },
    TodoList {
        items: Vec<CodexTodo>,
    },
    Error {
        message: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct CodexTodo {
    text: String,
    #[serde(default)]
    completed: bool,
}

#[derive(Deserialize)]
struct CodexError {
    #[serde(default)]
    message: String,
}

/// The usage of the whole thread.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct CodexUsage {
    /// Including tokens from and to the cache.
    input_tokens: u64,
    cached_input_tokens: u64,
    cache_write_input_tokens: u64,
    output_tokens: u64,
}

/// A call of a tool, at its start and at its end.
struct CodexCall {
    name: String,
    args: Value,
    ok: bool,
    text: String,
}

impl LineFormat for CodexLines {
    fn read(&mut self, line: &str) -> serde_json::Result<Vec<LineUpdate>> {
        Ok(match serde_json::from_str(line)? {
            CodexLine::ThreadStarted { thread_id } => vec![LineUpdate::Conversation(thread_id)],
            CodexLine::ItemStarted { item } => match item.kind {
                CodexItemKind::TodoList { items } => vec![todo(items)],
                kind => {
                    let call = call(kind);
                    call.map(|call| LineUpdate::call(&item.id, &call.name, call.args))
                        .into_iter()
                        .collect()
                }
            },
            CodexLine::ItemUpdated { item } => match item.kind {
                CodexItemKind::TodoList { items } => vec![todo(items)],
                _ => Vec::new(),
            },
            CodexLine::ItemCompleted { item } => on_completed(item),
            CodexLine::TurnCompleted { usage } => {
                usage.map(|usage| LineUpdate::TotalUsage(usage.usage())).into_iter().collect()
            }
            CodexLine::TurnFailed { error } => vec![LineUpdate::error(&error.message)],
            // A connection that is opened again is reported as an error as well.
            CodexLine::Error { message } => vec![LineUpdate::warning(&message)],
            CodexLine::Other => Vec::new(),
        })
    }
}

fn on_completed(item: CodexItem) -> Vec<LineUpdate> {
    let id = item.id;
    match item.kind {
        CodexItemKind::AgentMessage { text } => {
            vec![LineUpdate::Text(text), LineUpdate::MessageEnd]
        }
        CodexItemKind::Reasoning { text } => LineUpdate::reasoning(&text).into_iter().collect(),
        CodexItemKind::TodoList { items } => vec![todo(items)],
        CodexItemKind::Error { message } => vec![LineUpdate::warning(&message)],
        // It has no start of its own.
        CodexItemKind::WebSearch { query } => vec![
            LineUpdate::call(&id, "web_search", json!({ "query": query })),
            LineUpdate::result(&id, "web_search", true, ""),
        ],
        kind => {
            let call = call(kind);
            call.map(|call| LineUpdate::result(&id, &call.name, call.ok, &call.text))
                .into_iter()
                .collect()
        }
    }
}

fn call(kind: CodexItemKind) -> Option<CodexCall> {
    Some(match kind {
        CodexItemKind::CommandExecution { command, aggregated_output, exit_code, status } => {
            CodexCall {
                name: "shell".to_owned(),
                args: json!({ "command": command }),
                ok: status == "completed" && exit_code.unwrap_or(0) == 0,
                text: match exit_code {
                    Some(code) if code != 0 && aggregated_output.trim().is_empty() => {
                        format!("exit code {code}")
                    }
                    _ => aggregated_output,
                },
            }
        }
        CodexItemKind::FileChange { changes, status } => CodexCall {
            name: "apply_patch".to_owned(),
            args: json!({ "changes": changes }),
            ok: status == "completed",
            text: String::new(),
        },
        CodexItemKind::McpToolCall { server, tool, arguments, result, error, status } => {
            let error = error.map(|error| error.message);
            let text = || Some(result.filter(|result| !result.is_null())?.to_string());
            CodexCall {
                name: format!("{server}.{tool}"),
                args: arguments,
                ok: status == "completed" && error.is_none(),
                text: error.clone().or_else(text).unwrap_or_default(),
            }
        }
        CodexItemKind::AgentMessage { .. }
        | CodexItemKind::Reasoning { .. }
        | CodexItemKind::WebSearch { .. }
        | CodexItemKind::TodoList { .. }
        | CodexItemKind::Error { .. }
        | CodexItemKind::Other => return None,
    })
}

fn todo(items: Vec<CodexTodo>) -> LineUpdate {
    let items = items.into_iter().enumerate().map(|(n, item)| TodoItem {
        id: (n + 1).to_string(),
        content: item.text,
        status: if item.completed { "completed" } else { "pending" }.to_owned(),
        priority: "medium".to_owned(),
    });
    LineUpdate::Event(EventKind::Todo { items: items.collect() })
}

impl CodexUsage {
    fn usage(&self) -> Usage {
        let cached = self.cached_input_tokens.saturating_add(self.cache_write_input_tokens);
        Usage {
            input: self.input_tokens.saturating_sub(cached),
            output: self.output_tokens,
            cache_read: self.cached_input_tokens,
            cache_write: self.cache_write_input_tokens,
            ..Usage::default()
        }
    }
}
