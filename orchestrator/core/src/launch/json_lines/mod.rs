//! Reads the JSON lines of agents without ACP, and converts them to the session's events.

pub mod claude;
pub mod codex;
pub mod cursor;
pub mod gemini;
pub mod opencode;

use base::clock::Clock;
use base::config::studio::AgentOutput;
use base::event::{EventKind, NoticeLevel, Usage};
use serde_json::Value;

use crate::launch::AgentEvent;
use crate::launch::message_buffer::MessageBuffer;
use crate::launch::update::is_plausible;

/// Maximum length of a line in bytes; a longer one is not converted.
const MAX_LINE: usize = 16 << 20;
/// Maximum number of bytes of a tool result in an event.
const MAX_RESULT_BYTES: usize = 4096;
/// Maximum number of bytes of a call's arguments in an event.
const MAX_ARGS_BYTES: usize = 32 << 10;
/// Maximum number of bytes of reasoning in an event.
const MAX_REASONING_BYTES: usize = 64 << 10;
/// Maximum number of bytes of a name or an id.
const MAX_NAME_BYTES: usize = 200;
/// Maximum number of bytes of an error.
const MAX_ERROR_BYTES: usize = 2000;

/// The format of a program's lines. It ignores unknown types of lines.
pub(crate) trait LineFormat: Send {
    /// Converts one line. An error means that it is not a line of this format.
    fn read(&mut self, line: &str) -> serde_json::Result<Vec<LineUpdate>>;

    /// Converts the end of the output.
    fn finish(&mut self) -> Vec<LineUpdate> {
        Vec::new()
    }
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LineUpdate {
    /// The id of the conversation.
    Conversation(String),
    /// Text of the current message.
    Text(String),
    /// The end of the current message.
    MessageEnd,
    /// An event.
    Event(EventKind),
    /// The usage of the whole conversation so far.
    TotalUsage(Usage),
    /// The error that ends the turn.
    Error(String),
}

impl LineUpdate {
    /// Returns the start of a call, with arguments of limited length.
    fn call(id: &str, name: &str, args: Value) -> LineUpdate {
        let (id, name) = (short(id), short(name));
        LineUpdate::Event(EventKind::ToolStart { id, name, args: limited_args(args) })
    }

    /// Returns the end of a call, with a result of limited length.
    fn result(id: &str, name: &str, ok: bool, text: &str) -> LineUpdate {
        let text = base::text::head(text, MAX_RESULT_BYTES).to_owned();
        let (id, name) = (short(id), short(name));
        LineUpdate::Event(EventKind::ToolEnd { id, name, ok, text, ms: 0, diff: None })
    }

    /// Returns the reasoning of the model, if there is any.
    fn reasoning(text: &str) -> Option<LineUpdate> {
        let text = base::text::head(text, MAX_REASONING_BYTES).to_owned();
        let is_empty = text.trim().is_empty();
        (!is_empty).then_some(LineUpdate::Event(EventKind::Reasoning { text }))
    }

    fn usage(usage: Usage) -> LineUpdate {
        LineUpdate::Event(EventKind::Usage { usage })
    }

    fn warning(text: &str) -> LineUpdate {
        let text = base::text::head(text, MAX_ERROR_BYTES).to_owned();
        LineUpdate::Event(EventKind::Notice { level: NoticeLevel::Warning, text })
    }

    fn error(text: &str) -> LineUpdate {
        LineUpdate::Error(base::text::head(text.trim(), MAX_ERROR_BYTES).to_owned())
    }
}

fn short(name: &str) -> String {
    base::text::head(name, MAX_NAME_BYTES).to_owned()
}

/// Returns arguments of limited length: long texts keep their start.
fn limited_args(mut args: Value) -> Value {
    if args.to_string().len() <= MAX_ARGS_BYTES {
        return args;
    }
    for value in args.as_object_mut().into_iter().flatten().map(|(_, value)| value) {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if text.len() > MAX_RESULT_BYTES {
            *value = Value::from(format!("{}…", base::text::head(&text, MAX_RESULT_BYTES)));
        }
    }
    match args.to_string().len() <= MAX_ARGS_BYTES {
        true => args,
        false => Value::Null,
    }
}

/// The agent's conversation, which its next process can continue.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AgentConversation {
    /// Its id; `None` before the agent reported it.
    pub id: Option<String>,
    /// Its usage so far.
    pub usage: Usage,
}

/// The result of a turn, as the lines report it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TurnReport {
    /// The error, if any.
    pub error: Option<String>,
    /// Whether the model replied.
    pub has_reply: bool,
}

/// Converts the output of a program's processes, one for each turn.
pub(crate) struct JsonLinesReader {
    format: Box<dyn LineFormat>,
    lines: LineSplitter,
    message: MessageBuffer,
    conversation: AgentConversation,
    replies: u32,
    turn: TurnReport,
}

impl JsonLinesReader {
    /// Creates a reader of this output, of a program that may continue a conversation. `None` for
    /// output without a format.
    pub(crate) fn new(
        output: AgentOutput,
        conversation: AgentConversation,
    ) -> Option<JsonLinesReader> {
        let format: Box<dyn LineFormat> = match output {
            AgentOutput::Text => return None,
            AgentOutput::ClaudeJson => Box::new(claude::ClaudeLines::with_cost()),
            AgentOutput::QwenJson => Box::new(claude::ClaudeLines::without_cost()),
            AgentOutput::CodexJson => Box::new(codex::CodexLines),
            AgentOutput::CursorJson => Box::new(cursor::CursorLines::default()),
            AgentOutput::GeminiJson => Box::new(gemini::GeminiLines::default()),
            AgentOutput::OpencodeJson => Box::new(opencode::OpencodeLines),
        };
        let message = MessageBuffer::new(Clock::from_env());
        let (lines, turn) = (LineSplitter::default(), TurnReport::default());
        Some(JsonLinesReader { format, lines, message, conversation, replies: 0, turn })
    }

    /// Returns the id of the conversation.
    pub(crate) fn conversation_id(&self) -> Option<&str> {
        self.conversation.id.as_deref()
    }

    /// Forgets a conversation that cannot be continued.
    pub(crate) fn forget_conversation(&mut self) {
        self.conversation = AgentConversation::default();
    }

    /// Converts a piece of output.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        for line in self.lines.push(bytes) {
            events.extend(self.convert(&line));
        }
        events
    }

    /// Converts the end of a process's output.
    pub(crate) fn finish(&mut self) -> (Vec<AgentEvent>, TurnReport) {
        let last_line = self.lines.finish();
        let mut events: Vec<AgentEvent> =
            last_line.map(|line| self.convert(&line)).unwrap_or_default();
        let updates = self.format.finish();
        events.extend(updates.into_iter().flat_map(|update| self.apply(update)));
        events.extend(self.message.take_message().map(AgentEvent::Event));
        (events, std::mem::take(&mut self.turn))
    }

    /// Converts a line. One that is not of the format is only in the agent's log.
    fn convert(&mut self, line: &[u8]) -> Vec<AgentEvent> {
        let line = String::from_utf8_lossy(line);
        let is_object = line.trim_start().starts_with('{');
        let updates = is_object.then(|| self.format.read(&line).ok()).flatten();
        updates.into_iter().flatten().flat_map(|update| self.apply(update)).collect()
    }

    fn apply(&mut self, update: LineUpdate) -> Vec<AgentEvent> {
        match update {
            LineUpdate::Conversation(id) => return self.open_conversation(id),
            LineUpdate::Text(text) => {
                self.turn.has_reply = true;
                self.message.push_text(&text);
                Vec::new()
            }
            LineUpdate::MessageEnd => self.message.take_message().into_iter().collect(),
            LineUpdate::TotalUsage(total) => {
                let usage = difference(total, self.conversation.usage);
                self.count(usage)
            }
            LineUpdate::Event(EventKind::Usage { usage }) => self.count(usage),
            LineUpdate::Event(EventKind::Turn { .. }) => {
                self.turn.has_reply = true;
                self.replies = self.replies.saturating_add(1);
                self.message.push_event(EventKind::Turn { n: self.replies })
            }
            LineUpdate::Event(kind) => {
                self.turn.has_reply |= is_reply(&kind);
                self.message.push_event(kind)
            }
            LineUpdate::Error(error) => {
                self.turn.error = Some(error).filter(|error| !error.is_empty());
                Vec::new()
            }
        }
        .into_iter()
        .map(AgentEvent::Event)
        .collect()
    }

    fn open_conversation(&mut self, id: String) -> Vec<AgentEvent> {
        // The id becomes an argument of the agent's next process.
        let is_id_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_valid = id.len() <= MAX_NAME_BYTES
            && id.starts_with(|c: char| c.is_ascii_alphanumeric())
            && id.chars().all(is_id_char);
        if !is_valid || self.conversation.id.as_ref() == Some(&id) {
            return Vec::new();
        }
        self.conversation = AgentConversation { id: Some(id.clone()), usage: Usage::default() };
        vec![AgentEvent::ConversationStarted(id)]
    }

    fn count(&mut self, usage: Usage) -> Vec<Value> {
        if !is_plausible(&usage) {
            let text = "ignored an implausible usage that the agent reported".to_owned();
            return self
                .message
                .push_event(EventKind::Notice { level: NoticeLevel::Warning, text });
        }
        self.conversation.usage = self.conversation.usage.plus(usage);
        self.message.push_event(EventKind::Usage { usage })
    }
}

/// Returns whether an event shows that the model replied.
fn is_reply(kind: &EventKind) -> bool {
    matches!(kind, EventKind::Reasoning { .. } | EventKind::ToolStart { .. })
}

/// Returns the part of a total that was not counted yet.
fn difference(total: Usage, counted: Usage) -> Usage {
    Usage {
        input: total.input.saturating_sub(counted.input),
        output: total.output.saturating_sub(counted.output),
        cache_read: total.cache_read.saturating_sub(counted.cache_read),
        cache_write: total.cache_write.saturating_sub(counted.cache_write),
        cost_usd: total.cost_usd.map(|usd| usd - counted.cost_usd.unwrap_or(0.0)),
        cost_incomplete: total.cost_incomplete,
    }
}

/// Splits a stream into lines of limited length.
#[derive(Debug, Default)]
struct LineSplitter {
    line: Vec<u8>,
    /// Whether the current line is too long, and the rest of it is skipped.
    skipping: bool,
}

impl LineSplitter {
    /// Appends bytes and returns the lines that they complete.
    fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (content, is_end) = match piece.split_last() {
                Some((b'\n', content)) => (content, true),
                _ => (piece, false),
            };
            if self.line.len() + content.len() > MAX_LINE {
                self.line = Vec::new();
                self.skipping = true;
            }
            if !self.skipping {
                self.line.extend_from_slice(content);
            }
            if is_end {
                let line = std::mem::take(&mut self.line);
                if !std::mem::take(&mut self.skipping) {
                    lines.push(line);
                }
            }
        }
        lines
    }

    /// Returns the last line if it has no end.
    fn finish(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        let is_skipped = std::mem::take(&mut self.skipping);
        (!is_skipped && !line.is_empty()).then_some(line)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
