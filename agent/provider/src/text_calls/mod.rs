//! Tool calls for models without native support: tools are described in the prompt, calls are
//! parsed from the reply, and results are sent back as text.
//!
//! The prompt is the one of the Qwen3 chat template (Apache-2.0), on which many models are trained.

pub mod call_filter;
pub mod forms;
pub mod lenient;
pub mod parse;

use std::fmt::Write;

use futures_util::future::BoxFuture;
use serde_json::json;

use crate::message::{
    ContentPart, HarnessNote, Message, MessageRole, Reply, StopReason, ToolCall, ToolResult,
};

use crate::error::ProviderError;
use crate::history::sound;
use crate::provider::{ChatRequest, Delta, OnDelta, Provider, ProviderFacts, ToolDefinition};
use crate::tool_args::{CallIds, malformed, sendable};
use call_filter::TextPiece;
use forms::FoundCall;
use parse::TextCallParser;

/// A provider whose model receives tools as text.
pub(crate) struct TextCalls {
    inner: Box<dyn Provider>,
}

impl TextCalls {
    /// Wraps a provider.
    pub(crate) fn new(inner: Box<dyn Provider>) -> TextCalls {
        TextCalls { inner }
    }
}

impl Provider for TextCalls {
    fn ask<'a>(
        &'a self,
        request: &'a ChatRequest<'a>,
        hear: &'a mut OnDelta<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let system = system(request.system, request.tools);
            let messages: Vec<Message> = sound(request.messages).iter().map(message).collect();
            let asked =
                ChatRequest { system: &system, messages: &messages, tools: &[], ..request.clone() };
            let mut parser =
                TextCallParser::new(request.tools.iter().map(|tool| tool.name.clone()));
            let mut pieces = Vec::new();
            let mut listen = |delta: Delta<'_>| match delta {
                Delta::Text(text) => pass(parser.push(text), &mut pieces, hear),
                Delta::Reasoning(_) | Delta::Retry { .. } | Delta::Notice(_) | Delta::Ping => {
                    hear(delta);
                }
            };
            let reply = self.inner.ask(&asked, &mut listen).await?;
            let is_quotation = |call: &FoundCall| is_quoted(&call.source, request.messages);
            pass(parser.end(&is_quotation), &mut pieces, hear);
            Ok(with_calls(reply, pieces, CallIds::after(request.messages)))
        })
    }

    fn facts(&self) -> &ProviderFacts {
        self.inner.facts()
    }
}

/// Whether a text occurs in a message of the user or a tool, ignoring whitespace.
fn is_quoted(text: &str, messages: &[Message]) -> bool {
    let plain = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let wanted = plain(text);
    let said = |part: &ContentPart| match part {
        ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
            plain(text).contains(&wanted)
        }
        ContentPart::Result(result) => plain(&result.text).contains(&wanted),
        ContentPart::Reasoning { .. } | ContentPart::Call(_) | ContentPart::Image(_) => false,
    };
    let others = messages.iter().filter(|message| message.role == MessageRole::User);
    others.flat_map(|message| &message.parts).any(said)
}

/// Streams new pieces and stores them.
fn pass(new: Vec<TextPiece>, pieces: &mut Vec<TextPiece>, hear: &mut OnDelta<'_>) {
    for piece in new {
        match &piece {
            TextPiece::Text(text) => hear(Delta::Text(text)),
            TextPiece::Thought(text) => hear(Delta::Reasoning(text)),
            TextPiece::Call(_) => hear(Delta::Ping),
        }
        match (pieces.last_mut(), piece) {
            (Some(TextPiece::Text(text)), TextPiece::Text(more))
            | (Some(TextPiece::Thought(text)), TextPiece::Thought(more)) => text.push_str(&more),
            (_, piece) => pieces.push(piece),
        }
    }
}

/// Replaces the text of a reply by the pieces found in it.
fn with_calls(mut reply: Reply, pieces: Vec<TextPiece>, mut ids: CallIds) -> Reply {
    reply.message.parts.retain(|part| !matches!(part, ContentPart::Text { .. }));
    reply.message.parts.extend(pieces.into_iter().map(|piece| match piece {
        TextPiece::Text(text) => ContentPart::Text { text },
        TextPiece::Thought(text) => ContentPart::Reasoning { text, sealed: None },
        TextPiece::Call(call) => ContentPart::Call(tool_call(call, ids.unique(""))),
    }));
    if reply.stop == StopReason::Done && reply.message.calls().next().is_some() {
        reply.stop = StopReason::Calls;
    }
    reply
}

fn tool_call(call: FoundCall, id: String) -> ToolCall {
    let FoundCall { name, args, source } = call;
    match args {
        Some(args) => ToolCall { id, name, args: args.into(), malformed: None },
        None => malformed(id, name, &source),
    }
}

/// Returns the system prompt with the tools.
fn system(prompt: &str, tools: &[ToolDefinition]) -> String {
    if tools.is_empty() {
        return prompt.to_owned();
    }
    let mut text = format!(
        "{prompt}\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n\
         You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
    );
    for tool in tools {
        let function = json!({"name": tool.name, "description": tool.description,
            "parameters": tool.parameters});
        let line = json!({"type": "function", "function": function});
        let _ = writeln!(text, "{line}");
    }
    text.push_str(
        "</tools>\n\nFor each function call, return a json object with function name and arguments \
         within <tool_call></tool_call> XML tags:\n<tool_call>\n\
         {\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>",
    );
    text
}

/// Converts the calls and results of a message to text.
fn message(message: &Message) -> Message {
    let mut text = String::new();
    let mut images = Vec::new();
    let mut line = |more: &str| {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(more);
    };
    for part in &message.parts {
        match part {
            ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => line(text),
            ContentPart::Reasoning { .. } => {}
            ContentPart::Call(call) => line(&call_text(call)),
            ContentPart::Result(result) => {
                line(&response_text(result));
                images.extend(result.images.iter().cloned().map(ContentPart::Image));
            }
            ContentPart::Image(image) => images.push(ContentPart::Image(image.clone())),
        }
    }
    let parts = std::iter::once(ContentPart::Text { text }).chain(images).collect();
    Message { role: message.role, parts }
}

fn call_text(call: &ToolCall) -> String {
    let object = json!({"name": call.name, "arguments": sendable(call)});
    format!("<tool_call>\n{object}\n</tool_call>")
}

fn response_text(result: &ToolResult) -> String {
    format!("<tool_response>\n{}\n</tool_response>", result.text)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
