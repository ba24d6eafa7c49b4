//! `claude -p --output-format stream-json --verbose`, and qwen's copy of that format.

use std::collections::BTreeMap;

use base::event::{EventKind, Usage};
use serde::Deserialize;
use serde_json::Value;

use super::{LineFormat, LineUpdate, difference};

/// Maximum number of calls whose names are remembered.
const MAX_OPEN_CALLS: usize = 1000;

/// Reads the lines of Claude Code or Qwen Code.
#[derive(Debug)]
pub(crate) struct ClaudeLines {
    /// Whether the result of a turn contains its cost.
    has_cost: bool,
    /// The id of the last reply that was counted.
    reply: Option<String>,
    /// The usage of the turn so far.
    counted: Usage,
    in_turn: bool,
    /// The names of calls without a result, by id.
    calls: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ClaudeLine {
    System(SystemLine),
    Assistant(MessageLine),
    User(MessageLine),
    Result(Box<ResultLine>),
    RateLimitEvent {
        rate_limit_info: RateLimitInfo,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct SystemLine {
    #[serde(default)]
    subtype: String,
    session_id: Option<String>,
    error: Option<Value>,
    error_status: Option<u16>,
    #[serde(default)]
    retry_delay_ms: f64,
    #[serde(default)]
    attempt: u32,
}

/// The limit of a subscription, which is also reported while it allows requests.
#[derive(Deserialize)]
struct RateLimitInfo {
    #[serde(default)]
    status: String,
    /// Seconds since the epoch.
    #[serde(rename = "resetsAt")]
    resets_at: Option<i64>,
}

#[derive(Deserialize)]
struct MessageLine {
    message: ClaudeMessage,
    /// The call of the main agent that a sub-agent works for.
    parent_tool_use_id: Option<String>,
}

#[derive(Deserialize)]
struct ClaudeMessage {
    id: Option<String>,
    #[serde(default)]
    content: Value,
    usage: Option<ClaudeUsage>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(default)]
        content: Value,
        is_error: Option<bool>,
    },
    #[serde(other)]
    Other,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct ClaudeUsage {
    input_tokens: u64,
    output_tokens: u64,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct ResultLine {
    session_id: Option<String>,
    #[serde(default)]
    is_error: bool,
    result: Option<String>,
    #[serde(default)]
    errors: Vec<Value>,
    error: Option<Value>,
    total_cost_usd: Option<f64>,
    usage: Option<ClaudeUsage>,
    #[serde(default)]
    permission_denials: Vec<PermissionDenial>,
}

#[derive(Deserialize)]
struct PermissionDenial {
    #[serde(default)]
    tool_name: String,
}

impl ClaudeLines {
    /// Creates the reader of a program that reports its cost.
    pub(crate) fn with_cost() -> ClaudeLines {
        ClaudeLines {
            has_cost: true,
            reply: None,
            counted: Usage::default(),
            in_turn: false,
            calls: BTreeMap::new(),
        }
    }

    /// Creates the reader of a program that reports only tokens.
    pub(crate) fn without_cost() -> ClaudeLines {
        ClaudeLines { has_cost: false, ..ClaudeLines::with_cost() }
    }

    fn on_system(&mut self, line: SystemLine) -> Vec<LineUpdate> {
        match line.subtype.as_str() {
            "init" => {
                (self.reply, self.counted, self.in_turn) = (None, Usage::default(), true);
                self.calls.clear();
                line.session_id.map(LineUpdate::Conversation).into_iter().collect()
            }
            "api_retry" => {
                let status = line.error_status.map(|status| format!("status {status}"));
                let error = line.error.as_ref().map(text_of).filter(|text| !text.is_empty());
                let why = error.or(status).unwrap_or_else(|| "the request failed".to_owned());
                // The delay is not negative, and a fraction of a millisecond does not matter.
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "above"
                )]
                let after_ms = line.retry_delay_ms.max(0.0) as u64;
                let attempt = line.attempt;
                vec![LineUpdate::Event(EventKind::Retry { why, after_ms, attempt })]
            }
            _ => Vec::new(),
        }
    }

    /// Reports a limit that rejected a request.
    fn on_rate_limit(info: &RateLimitInfo) -> Vec<LineUpdate> {
        if info.status != "rejected" {
            return Vec::new();
        }
        let end = info.resets_at.map(|seconds| format!("|{seconds}")).unwrap_or_default();
        let why = format!("usage limit reached{end}");
        vec![LineUpdate::Event(EventKind::Retry { why, after_ms: 0, attempt: 1 })]
    }

    fn on_assistant(&mut self, line: MessageLine) -> Vec<LineUpdate> {
        let is_main = line.parent_tool_use_id.is_none();
        let mut updates = self.on_reply(line.message.id, line.message.usage);
        for part in parts(line.message.content) {
            match part {
                ContentPart::Text { text } if is_main => {
                    updates.extend([LineUpdate::Text(text), LineUpdate::MessageEnd]);
                }
                ContentPart::Thinking { thinking } if is_main => {
                    updates.extend(LineUpdate::reasoning(&thinking));
                }
                ContentPart::ToolUse { id, name, input } => {
                    updates.push(LineUpdate::call(&id, &name, input));
                    if self.calls.len() < MAX_OPEN_CALLS {
                        self.calls.insert(id, name);
                    }
                }
                ContentPart::Text { .. }
                | ContentPart::Thinking { .. }
                | ContentPart::ToolResult { .. }
                | ContentPart::Other => {}
            }
        }
        updates
    }

    /// Counts a reply once: each part of it is a line of its own. qwen reports zeros until the last
    /// part.
    fn on_reply(&mut self, id: Option<String>, usage: Option<ClaudeUsage>) -> Vec<LineUpdate> {
        let usage = usage.unwrap_or_default().usage(self.has_cost.then_some(0.0));
        if usage.tokens() == 0 || id.is_none() || self.reply == id {
            return Vec::new();
        }
        self.reply = id;
        self.counted = self.counted.plus(usage);
        vec![LineUpdate::Event(EventKind::Turn { n: 0 }), LineUpdate::usage(usage)]
    }

    fn on_results(&mut self, content: Value) -> Vec<LineUpdate> {
        let result = |part| match part {
            ContentPart::ToolResult { tool_use_id: id, content, is_error } => {
                let name = self.calls.remove(&id).unwrap_or_default();
                let ok = !is_error.unwrap_or(false);
                Some(LineUpdate::result(&id, &name, ok, &text_of(&content)))
            }
            _ => None,
        };
        parts(content).into_iter().filter_map(result).collect()
    }

    fn on_result(&mut self, line: ResultLine) -> Vec<LineUpdate> {
        self.in_turn = false;
        let mut updates = Vec::new();
        if !line.is_error {
            updates.extend(line.session_id.map(LineUpdate::Conversation));
        }
        // The replies lack the end of their output and the agent's own requests.
        let total = line.usage.unwrap_or_default().usage(line.total_cost_usd);
        let rest = difference(total, self.counted);
        if rest.tokens() > 0 || rest.cost_usd.is_some_and(|usd| usd > 0.0) {
            updates.push(LineUpdate::usage(rest));
        }
        let mut tools: Vec<String> =
            line.permission_denials.into_iter().map(|denial| denial.tool_name).collect();
        tools.dedup();
        if !tools.is_empty() {
            let tools = tools.join(", ");
            updates
                .push(LineUpdate::warning(&format!("the agent's own permissions denied: {tools}")));
        }
        // qwen reports a failed request as a reply without tokens.
        let is_failed_request = !self.has_cost
            && total.tokens() == 0
            && line.result.as_ref().is_some_and(|text| text.starts_with("[API Error"));
        if line.is_error || is_failed_request {
            let errors = line.errors.iter().chain(&line.error).map(text_of);
            let errors: Vec<String> = errors.filter(|text| !text.is_empty()).collect();
            let text = line.result.filter(|text| !text.trim().is_empty());
            let text = text.unwrap_or_else(|| errors.join("; "));
            updates.push(LineUpdate::error(&text));
        }
        updates
    }
}

impl LineFormat for ClaudeLines {
    fn read(&mut self, line: &str) -> serde_json::Result<Vec<LineUpdate>> {
        Ok(match serde_json::from_str(line)? {
            ClaudeLine::System(line) => self.on_system(line),
            ClaudeLine::Assistant(line) => self.on_assistant(line),
            ClaudeLine::User(line) => self.on_results(line.message.content),
            ClaudeLine::Result(line) => self.on_result(*line),
            ClaudeLine::RateLimitEvent { rate_limit_info } => {
                ClaudeLines::on_rate_limit(&rate_limit_info)
            }
            ClaudeLine::Other => Vec::new(),
        })
    }

    fn finish(&mut self) -> Vec<LineUpdate> {
        let is_unpriced = std::mem::take(&mut self.in_turn) && self.has_cost;
        let text = "the agent did not report the cost of this turn, which was interrupted";
        let has_usage = self.counted.tokens() > 0;
        (is_unpriced && has_usage).then(|| LineUpdate::warning(text)).into_iter().collect()
    }
}

impl ClaudeUsage {
    fn usage(self, cost_usd: Option<f64>) -> Usage {
        Usage {
            input: self.input_tokens,
            output: self.output_tokens,
            cache_read: self.cache_read_input_tokens.unwrap_or(0),
            cache_write: self.cache_creation_input_tokens.unwrap_or(0),
            cost_usd,
            cost_incomplete: false,
        }
    }
}

/// Returns the parts of a message; a text alone is its only part.
fn parts(content: Value) -> Vec<ContentPart> {
    match content {
        Value::String(text) => vec![ContentPart::Text { text }],
        Value::Array(parts) => {
            parts.into_iter().filter_map(|part| serde_json::from_value(part).ok()).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the text of a value: itself, its `message`, or the texts of its parts.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        other => other["message"].as_str().unwrap_or_default().to_owned(),
    }
}
