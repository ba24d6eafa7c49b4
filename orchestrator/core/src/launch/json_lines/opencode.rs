//! `opencode run --format json`.

use base::event::{EventKind, Usage};
use serde::Deserialize;
use serde_json::Value;

use super::{LineFormat, LineUpdate};

/// Reads the lines of opencode.
#[derive(Debug)]
pub(crate) struct OpencodeLines;

#[derive(Deserialize)]
struct OpencodeLine {
    #[serde(rename = "sessionID")]
    session_id: Option<String>,
    #[serde(flatten)]
    kind: OpencodeKind,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OpencodeKind {
    StepStart,
    Text {
        part: OpencodeText,
    },
    Reasoning {
        part: OpencodeText,
    },
    ToolUse {
        part: Box<OpencodeCall>,
    },
    StepFinish {
        part: OpencodeStep,
    },
    Error {
        #[serde(default)]
        error: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct OpencodeText {
    text: String,
}

/// A call that has ended: opencode reports no others.
#[derive(Deserialize)]
struct OpencodeCall {
    tool: String,
    #[serde(rename = "callID")]
    call_id: String,
    state: OpencodeState,
}

#[derive(Deserialize)]
struct OpencodeState {
    status: String,
    #[serde(default)]
    input: Value,
    output: Option<String>,
    error: Option<String>,
    #[serde(default)]
    metadata: Value,
}

#[derive(Deserialize)]
struct OpencodeStep {
    #[serde(default)]
    tokens: OpencodeTokens,
    cost: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OpencodeTokens {
    input: u64,
    output: u64,
    reasoning: u64,
    cache: OpencodeCache,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct OpencodeCache {
    read: u64,
    write: u64,
}

impl LineFormat for OpencodeLines {
    fn read(&mut self, line: &str) -> serde_json::Result<Vec<LineUpdate>> {
        let line: OpencodeLine = serde_json::from_str(line)?;
        let mut updates: Vec<LineUpdate> =
            line.session_id.map(LineUpdate::Conversation).into_iter().collect();
        match line.kind {
            OpencodeKind::StepStart => {
                updates.push(LineUpdate::Event(EventKind::Turn { n: 0 }));
            }
            OpencodeKind::Text { part } => {
                updates.extend([LineUpdate::Text(part.text), LineUpdate::MessageEnd]);
            }
            OpencodeKind::Reasoning { part } => updates.extend(LineUpdate::reasoning(&part.text)),
            OpencodeKind::ToolUse { part } => updates.extend(on_call(*part)),
            OpencodeKind::StepFinish { part } => updates.push(LineUpdate::usage(part.usage())),
            OpencodeKind::Error { error } => updates.push(LineUpdate::error(&error_text(&error))),
            OpencodeKind::Other => {}
        }
        Ok(updates)
    }
}

fn on_call(call: OpencodeCall) -> [LineUpdate; 2] {
    let OpencodeState { status, input, output, error, metadata } = call.state;
    let ok = status == "completed" && metadata["exit"].as_i64().unwrap_or(0) == 0;
    let text = output.or(error).unwrap_or_default();
    [
        LineUpdate::call(&call.call_id, &call.tool, input),
        LineUpdate::result(&call.call_id, &call.tool, ok, &text),
    ]
}

fn error_text(error: &Value) -> String {
    let texts = [&error["data"]["message"], &error["message"], &error["name"], error];
    let text = texts.into_iter().find_map(Value::as_str);
    text.unwrap_or("the agent failed").to_owned()
}

impl OpencodeStep {
    fn usage(&self) -> Usage {
        let tokens = &self.tokens;
        Usage {
            input: tokens.input,
            output: tokens.output.saturating_add(tokens.reasoning),
            cache_read: tokens.cache.read,
            cache_write: tokens.cache.write,
            // It reports zero for a model without a known price.
            cost_usd: self.cost.filter(|usd| *usd > 0.0),
            cost_incomplete: false,
        }
    }
}
