//! The events of a g3 run, in their wire format (`--json`, `--events`, `_g3/event`).

pub mod coach_rounds;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of an event stream. Readers ignore unknown types: see [`Event::parse`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The number within one stream, starting at 1.
    pub seq: u64,
    /// The time, RFC 3339 in UTC.
    pub time: String,
    /// The event.
    #[serde(flatten)]
    pub what: EventKind,
}

/// The type of an event, with its fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(missing_docs)] // the fields are the contract of docs/g3.md
pub enum EventKind {
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
        level: NoticeLevel,
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
        status: RunStatus,
        exit: u8,
        turns: u32,
        usage: Usage,
    },
}

/// Tokens and cost, accumulated over a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens that were not cached.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens read from the provider's cache.
    pub cache_read: u64,
    /// Tokens written to the provider's cache.
    pub cache_write: u64,
    /// Cost in US dollars; `null` if the price is unknown.
    pub cost_usd: Option<f64>,
    /// Whether a part of a sum has an unknown price, so that `cost_usd` is a lower bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cost_incomplete: bool,
}

impl Usage {
    /// Returns the sum of two usages. If only one of them has a known price, the cost is
    /// incomplete.
    #[must_use]
    pub fn plus(self, other: Usage) -> Usage {
        let cost_usd = match (self.cost_usd, other.cost_usd) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
        };
        let is_partial = self.is_unpriced() || other.is_unpriced();
        Usage {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            cost_usd,
            cost_incomplete: self.cost_incomplete
                || other.cost_incomplete
                || (cost_usd.is_some() && is_partial),
        }
    }

    /// Returns the input tokens, including those from and to the provider's cache.
    pub fn sent(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// Returns the input and output tokens.
    pub fn tokens(&self) -> u64 {
        self.sent().saturating_add(self.output)
    }

    /// Returns whether the whole cost is known; a usage without tokens costs nothing.
    pub fn is_cost_known(&self) -> bool {
        !self.cost_incomplete && !self.is_unpriced()
    }

    /// Returns the known cost for display: `$0.0123` or `at least $0.0123`.
    pub fn cost_text(&self) -> Option<String> {
        let prefix = if self.cost_incomplete { "at least " } else { "" };
        self.cost_usd.map(|usd| format!("{prefix}${usd:.4}"))
    }

    fn is_unpriced(&self) -> bool {
        self.cost_usd.is_none() && self.tokens() > 0
    }
}

/// One item of a todo list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoItem {
    /// The id, stable within the list.
    pub id: String,
    /// The text.
    pub content: String,
    /// `pending`, `in_progress`, `completed` or `cancelled`.
    pub status: String,
    /// `high`, `medium` or `low`.
    pub priority: String,
}

/// The severity of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum NoticeLevel {
    Info,
    Warning,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum RunStatus {
    Done,
    Failed,
    Limit,
    NotApproved,
    Cancelled,
}

impl RunStatus {
    /// Returns the exit code of `g3` for this result.
    pub fn exit(self) -> u8 {
        match self {
            RunStatus::Done => 0,
            RunStatus::Failed => 1,
            RunStatus::Limit | RunStatus::NotApproved => 3,
            RunStatus::Cancelled => 130,
        }
    }

    /// Returns its name on the wire.
    pub fn word(self) -> &'static str {
        match self {
            RunStatus::Done => "done",
            RunStatus::Failed => "failed",
            RunStatus::Limit => "limit",
            RunStatus::NotApproved => "not_approved",
            RunStatus::Cancelled => "cancelled",
        }
    }
}

impl Event {
    /// Parses one line; `None` for an unknown type and for an incomplete line.
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
            what: EventKind::Usage { usage: Usage { input: 5, ..Usage::default() } },
        };
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(
            line,
            r#"{"seq":3,"time":"2026-01-02T10:00:00Z","type":"usage","input":5,"output":0,"cache_read":0,"cache_write":0,"cost_usd":null}"#
        );
        assert_eq!(Event::parse(&line), Some(event));
    }

    #[test]
    fn a_sum_with_an_unknown_price_stays_incomplete() {
        let known = Usage { input: 5, cost_usd: Some(0.5), ..Usage::default() };
        let unknown = Usage { input: 7, ..Usage::default() };
        let nothing = Usage::default();
        let sum = |all: &[Usage]| all.iter().fold(Usage::default(), |sum, one| sum.plus(*one));
        assert!(sum(&[known, known, nothing]).is_cost_known());
        assert!(nothing.is_cost_known() && !unknown.is_cost_known());
        for order in [[known, unknown, known], [unknown, known, known], [known, known, unknown]] {
            let all = sum(&order);
            assert_eq!((all.cost_usd, all.cost_incomplete), (Some(1.0), true));
            assert_eq!(all.cost_text().unwrap(), "at least $1.0000");
        }
        assert_eq!(sum(&[unknown, unknown]).cost_usd, None);
        let line = serde_json::to_string(&known).unwrap();
        assert!(!line.contains("incomplete"), "{line}");
        let line = serde_json::to_string(&sum(&[known, unknown])).unwrap();
        assert!(line.ends_with(r#""cost_usd":0.5,"cost_incomplete":true}"#), "{line}");
    }

    #[test]
    fn counts_never_overflow() {
        let max = Usage { input: u64::MAX, output: 1, cache_read: 1, ..Usage::default() };
        assert_eq!(max.plus(max).input, u64::MAX);
        assert_eq!((max.sent(), max.tokens()), (u64::MAX, u64::MAX));
    }

    #[test]
    fn unknown_types_and_incomplete_lines_are_skipped() {
        assert_eq!(Event::parse(r#"{"seq":1,"time":"t","type":"news","x":1}"#), None);
        assert_eq!(Event::parse(r#"{"seq":1,"ti"#), None);
    }
}
