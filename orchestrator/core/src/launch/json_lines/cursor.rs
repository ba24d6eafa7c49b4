//! `cursor-agent -p --output-format stream-json`.

use serde::Deserialize;
use serde_json::Value;

use super::{LineFormat, LineUpdate};

/// Maximum number of bytes of collected reasoning.
const MAX_THOUGHT_BYTES: usize = 256 << 10;

/// Reads the lines of Cursor's CLI. It reports no usage.
#[derive(Debug, Default)]
pub(crate) struct CursorLines {
    /// The reasoning so far, which arrives in pieces.
    thought: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CursorLine {
    System {
        session_id: Option<String>,
    },
    Assistant {
        message: CursorMessage,
    },
    Thinking {
        #[serde(default)]
        subtype: String,
        #[serde(default)]
        text: String,
    },
    ToolCall {
        #[serde(default)]
        subtype: String,
        #[serde(default)]
        call_id: String,
        tool_call: serde_json::Map<String, Value>,
    },
    Result {
        #[serde(default)]
        is_error: bool,
        result: Option<String>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct CursorMessage {
    #[serde(default)]
    content: Vec<CursorPart>,
}

#[derive(Deserialize)]
struct CursorPart {
    text: Option<String>,
}

impl LineFormat for CursorLines {
    fn read(&mut self, line: &str) -> serde_json::Result<Vec<LineUpdate>> {
        let line = serde_json::from_str(line)?;
        if let CursorLine::Thinking { subtype, text } = &line {
            return Ok(self.on_thinking(subtype, text));
        }
        let mut updates = self.take_thought();
        match line {
            CursorLine::System { session_id } => {
                updates.extend(session_id.map(LineUpdate::Conversation));
            }
            CursorLine::Assistant { message } => {
                let texts = message.content.into_iter().filter_map(|part| part.text);
                updates.extend(texts.map(LineUpdate::Text));
                updates.push(LineUpdate::MessageEnd);
            }
            CursorLine::ToolCall { subtype, call_id, tool_call } => {
                updates.extend(on_call(&subtype, &call_id, &tool_call));
            }
            CursorLine::Result { is_error: true, result } => {
                let text = result.unwrap_or_else(|| "the agent failed".to_owned());
                updates.push(LineUpdate::error(&text));
            }
            CursorLine::Result { .. } | CursorLine::Thinking { .. } | CursorLine::Other => {}
        }
        Ok(updates)
    }

    fn finish(&mut self) -> Vec<LineUpdate> {
        self.take_thought()
    }
}

impl CursorLines {
    fn on_thinking(&mut self, subtype: &str, text: &str) -> Vec<LineUpdate> {
        if self.thought.len() < MAX_THOUGHT_BYTES {
            self.thought.push_str(text);
        }
        match subtype {
            "completed" => self.take_thought(),
            _ => Vec::new(),
        }
    }

    fn take_thought(&mut self) -> Vec<LineUpdate> {
        LineUpdate::reasoning(&std::mem::take(&mut self.thought)).into_iter().collect()
    }
}

/// Converts `{"shellToolCall": {"args": …, "result": {"success": …}}}`, or `{"function": {"name",
/// "arguments"}}`.
fn on_call(
    subtype: &str,
    id: &str,
    tool_call: &serde_json::Map<String, Value>,
) -> Option<LineUpdate> {
    let (key, call) = tool_call.iter().find(|(_, call)| call.is_object())?;
    let name = call["name"].as_str().unwrap_or_else(|| key.trim_end_matches("ToolCall"));
    match subtype {
        "started" => {
            let args = call.get("args").or_else(|| call.get("arguments"));
            Some(LineUpdate::call(id, name, args.cloned().unwrap_or_default()))
        }
        "completed" => {
            let result = &call["result"];
            let success = result.get("success");
            let exit_code = success.and_then(|success| success["exitCode"].as_i64());
            let ok = success.is_some() && exit_code.unwrap_or(0) == 0;
            Some(LineUpdate::result(id, name, ok, &result_text(success.unwrap_or(result))))
        }
        _ => None,
    }
}

/// Returns the text of a result: its known fields, or those of the failure that is its only field.
fn result_text(result: &Value) -> String {
    let failure = result.as_object().and_then(|fields| fields.values().find(|it| it.is_object()));
    let result = failure.unwrap_or(result);
    let texts = ["content", "stdout", "stderr", "output", "message", "error"];
    let texts = texts.iter().filter_map(|key| result[*key].as_str());
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    match texts.is_empty() {
        true if result.is_null() => String::new(),
        true => result.to_string(),
        false => texts.join("\n"),
    }
}
