//! Tool calls for models without native support: tools are described in the prompt, calls are
//! parsed from the reply, and results are sent back as text.
//!
//! The prompt is the one of the Qwen3 chat template (Apache-2.0), on which many models are trained.

pub mod call_filter;
pub mod forms;
pub mod lenient;
pub mod parse;
pub mod tagged;
pub(crate) mod unparsed;

use std::fmt::Write;

use futures_util::future::BoxFuture;
use serde_json::json;

use crate::message::{
    ContentPart, HarnessNote, Message, MessageRole, Reply, StopReason, ToolCall, ToolResult,
};

use crate::error::ProviderError;
use crate::history::repair;
use crate::provider::{ChatRequest, Delta, OnDelta, Provider, ProviderFacts, ToolDefinition};
use crate::tool_args::{CallIds, args_to_send, malformed};
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
        on_delta: &'a mut OnDelta<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let system = system(request.system, request.tools);
            let messages: Vec<Message> = repair(request.messages).iter().map(message).collect();
            let inner_request =
                ChatRequest { system: &system, messages: &messages, tools: &[], ..request.clone() };
            let mut parser =
                TextCallParser::new(request.tools.iter().map(|tool| tool.name.clone()));
            let mut pieces = Vec::new();
            let mut on_inner_delta = |delta: Delta<'_>| match delta {
                Delta::Text(text) => emit(parser.push(text), &mut pieces, on_delta),
                Delta::Reasoning(_) | Delta::Retry { .. } | Delta::Notice(_) | Delta::Ping => {
                    on_delta(delta);
                }
            };
            let reply = self.inner.ask(&inner_request, &mut on_inner_delta).await?;
            let is_quotation = |call: &FoundCall| is_quoted(&call.source, request.messages);
            emit(parser.end(&is_quotation), &mut pieces, on_delta);
            Ok(with_calls(reply, pieces, CallIds::after(request.messages)))
        })
    }

    fn facts(&self) -> &ProviderFacts {
        self.inner.facts()
    }
}

/// Whether a text occurs in a message of the user or a tool, ignoring whitespace.
fn is_quoted(text: &str, messages: &[Message]) -> bool {
    let without_whitespace =
        |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let needle = without_whitespace(text);
    let contains_needle = |part: &ContentPart| match part {
        ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
            without_whitespace(text).contains(&needle)
        }
        ContentPart::Result(result) => without_whitespace(&result.text).contains(&needle),
        ContentPart::Reasoning { .. } | ContentPart::Call(_) | ContentPart::Image(_) => false,
    };
    let user_messages = messages.iter().filter(|message| message.role == MessageRole::User);
    user_messages.flat_map(|message| &message.parts).any(contains_needle)
}

/// Streams new pieces and stores them.
fn emit(new: Vec<TextPiece>, pieces: &mut Vec<TextPiece>, on_delta: &mut OnDelta<'_>) {
    for piece in new {
        match &piece {
            TextPiece::Text(text) => on_delta(Delta::Text(text)),
            TextPiece::Thought(text) => on_delta(Delta::Reasoning(text)),
            TextPiece::Call(_) => on_delta(Delta::Ping),
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
    let mut add_line = |line_text: &str| {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line_text);
    };
    for part in &message.parts {
        match part {
            ContentPart::Text { text } | ContentPart::Note(HarnessNote { text, .. }) => {
                add_line(text)
            }
            ContentPart::Reasoning { .. } => {}
            ContentPart::Call(call) => add_line(&call_text(call)),
            ContentPart::Result(result) => {
                add_line(&response_text(result));
                images.extend(result.images.iter().cloned().map(ContentPart::Image));
            }
            ContentPart::Image(image) => images.push(ContentPart::Image(image.clone())),
        }
    }
    let parts = std::iter::once(ContentPart::Text { text }).chain(images).collect();
    Message { role: message.role, parts }
}

fn call_text(call: &ToolCall) -> String {
    let object = json!({"name": call.name, "arguments": args_to_send(call)});
    format!("<tool_call>\n{object}\n</tool_call>")
}

fn response_text(result: &ToolResult) -> String {
    format!("<tool_response>\n{}\n</tool_response>", result.text)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
