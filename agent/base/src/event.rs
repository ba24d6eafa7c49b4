//! The events of a g3 run, as they stand on the wire (`--json`, `--events`, `_g3/event`).

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of an event stream. Readers ignore types they do not know: see [`Event::parse`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts from 1 within one stream.
    pub seq: u64,
    /// RFC 3339, UTC.
    pub time: String,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(missing_docs)] // the fields are the contract of docs/g3.md
pub enum What {
    Start {
        session: String,
        provider: String,
        model: String,
        cwd: String,
    },
    Turn {
        n: u32,
    },
    Text {
        text: String,
    },
    Reasoning {
        text: String,
    },
    ToolStart {
        id: String,
        name: String,
        args: Value,
    },
    ToolOutput {
        id: String,
        text: String,
    },
    ToolEnd {
        id: String,
        name: String,
        ok: bool,
        text: String,
        ms: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
    },
    Usage {
        #[serde(flatten)]
        usage: Usage,
    },
    Context {
        used: u64,
        limit: u64,
    },
    Todo {
        items: Vec<TodoItem>,
    },
    Plan {
        #[serde(flatten)]
        plan: Value,
    },
    Retry {
        why: String,
        after_ms: u64,
        attempt: u32,
    },
    Thinned {
        #[serde(flatten)]
        detail: Value,
    },
    Compacted {
        #[serde(flatten)]
        detail: Value,
    },
    Notice {
        level: Level,
        text: String,
    },
    Ask {
        id: String,
        what: String,
        options: Vec<String>,
    },
    Error {
        kind: String,
        text: String,
        #[serde(rename = "try")]
        next: Vec<String>,
    },
    End {
        status: Status,
        exit: u8,
        turns: u32,
        usage: Usage,
    },
}

/// Tokens and money, added up as the stream goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens sent that no cache held.
    pub input: u64,
    /// Tokens the model wrote.
    pub output: u64,
    /// Tokens read from the provider's cache.
    pub cache_read: u64,
    /// Tokens written to the provider's cache.
    pub cache_write: u64,
    /// US dollars; `null` when the price is not known.
    pub cost_usd: Option<f64>,
}

impl Usage {
    /// The sum of two usages; the cost is known when either is.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        let cost_usd = match (self.cost_usd, other.cost_usd) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
        };
        Usage {
            input: self.input + other.input,
            output: self.output + other.output,
            cache_read: self.cache_read + other.cache_read,
            cache_write: self.cache_write + other.cache_write,
            cost_usd,
        }
    }
}

/// One line of a todo list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoItem {
    /// Stable within the list.
    pub id: String,
    /// What is to be done.
    pub content: String,
    /// `pending`, `in_progress`, `completed` or `cancelled`.
    pub status: String,
    /// `high`, `medium` or `low`.
    pub priority: String,
}

/// How loud a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Level {
    Info,
    Warning,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Status {
    Done,
    Failed,
    Limit,
    NotApproved,
    Cancelled,
}

impl Status {
    /// The exit code of `g3` for this end.
    pub fn exit(self) -> u8 {
        match self {
            Status::Done => 0,
            Status::Failed => 1,
            Status::Limit | Status::NotApproved => 3,
            Status::Cancelled => 130,
        }
    }

    /// The word for it on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Status::Done => "done",
            Status::Failed => "failed",
            Status::Limit => "limit",
            Status::NotApproved => "not_approved",
            Status::Cancelled => "cancelled",
        }
    }
}

impl Event {
    /// Reads one line; `None` for a type this version does not know and for a torn line.
    pub fn parse(line: &str) -> Option<Event> {
        serde_json::from_str(line).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_object() {
        let event = Event {
            seq: 3,
            time: "2026-01-02T10:00:00Z".into(),
            what: What::Usage { usage: Usage { input: 5, ..Usage::default() } },
        };
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(
            line,
            r#"{"seq":3,"time":"2026-01-02T10:00:00Z","type":"usage","input":5,"output":0,"cache_read":0,"cache_write":0,"cost_usd":null}"#
        );
        assert_eq!(Event::parse(&line), Some(event));
    }

    #[test]
    fn unknown_types_and_torn_lines_are_skipped() {
        assert_eq!(Event::parse(r#"{"seq":1,"time":"t","type":"news","x":1}"#), None);
        assert_eq!(Event::parse(r#"{"seq":1,"ti"#), None);
    }
}
