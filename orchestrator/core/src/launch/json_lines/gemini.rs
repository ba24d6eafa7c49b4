//! `gemini --output-format stream-json`.

use std::collections::BTreeMap;

use base::event::Usage;
use serde::Deserialize;
use serde_json::Value;

use super::{LineFormat, LineUpdate};

/// Maximum number of calls whose names are remembered.
const MAX_OPEN_CALLS: usize = 1000;

/// Reads the lines of Gemini CLI. It reports tokens at the end of a turn, and no cost.
#[derive(Debug, Default)]
pub(crate) struct GeminiLines {
    /// The names of calls without a result, by id.
    calls: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum GeminiLine {
    Init {
        session_id: String,
    },
    Message {
        role: String,
        content: String,
        /// Whether more of the same message may follow.
        #[serde(default)]
        delta: bool,
    },
    ToolUse {
        tool_id: String,
        tool_name: String,
        #[serde(default)]
        parameters: Value,
    },
    ToolResult {
        tool_id: String,
        status: String,
        output: Option<String>,
        error: Option<GeminiError>,
    },
    Error {
        #[serde(default)]
        message: String,
    },
    Result {
        #[serde(default)]
        status: String,
        error: Option<GeminiError>,
        stats: Option<GeminiStats>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct GeminiError {
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct GeminiStats {
    /// Including tokens from the cache.
    #[serde(default)]
    input_tokens: u64,
    #[serde(default)]
    output_tokens: u64,
    #[serde(default)]
    cached: u64,
}

impl LineFormat for GeminiLines {
    fn read(&mut self, line: &str) -> serde_json::Result<Vec<LineUpdate>> {
        Ok(match serde_json::from_str(line)? {
            GeminiLine::Init { session_id } => {
                self.calls.clear();
                vec![LineUpdate::Conversation(session_id)]
            }
            GeminiLine::Message { role, content, delta } if role == "assistant" => match delta {
                true => vec![LineUpdate::Text(content)],
                false => vec![LineUpdate::Text(content), LineUpdate::MessageEnd],
            },
            GeminiLine::ToolUse { tool_id, tool_name, parameters } => {
                let call = LineUpdate::call(&tool_id, &tool_name, parameters);
                if self.calls.len() < MAX_OPEN_CALLS {
                    self.calls.insert(tool_id, tool_name);
                }
                vec![call]
            }
            GeminiLine::ToolResult { tool_id, status, output, error } => {
                let name = self.calls.remove(&tool_id).unwrap_or_default();
                let text = output.or(error.map(|error| error.message)).unwrap_or_default();
                vec![LineUpdate::result(&tool_id, &name, status == "success", &text)]
            }
            GeminiLine::Error { message } => vec![LineUpdate::warning(&message)],
            GeminiLine::Result { status, error, stats } => {
                let usage = stats.map(|stats| LineUpdate::usage(stats.usage()));
                let error = (status == "error")
                    .then(|| error.map_or("the agent failed".to_owned(), |error| error.message));
                let error = error.map(|error| LineUpdate::error(&error));
                usage.into_iter().chain(error).collect()
            }
            GeminiLine::Message { .. } | GeminiLine::Other => Vec::new(),
        })
    }
}

impl GeminiStats {
    fn usage(&self) -> Usage {
        Usage {
            input: self.input_tokens.saturating_sub(self.cached),
            output: self.output_tokens,
            cache_read: self.cached,
            ..Usage::default()
        }
    }
}
