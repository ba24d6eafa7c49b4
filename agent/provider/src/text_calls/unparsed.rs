//! Calls that a server left in the text of a reply: the model has native tools, but the server's
//! parser did not recognize what the model wrote.

use futures_util::future::BoxFuture;

use super::call_filter::TextPiece;
use super::parse::TextCallParser;
use super::{is_quoted, with_calls};
use crate::error::ProviderError;
use crate::message::{ContentPart, Reply, StopReason};
use crate::provider::{ChatRequest, OnDelta, Provider, ProviderFacts};
use crate::tool_args::CallIds;

/// A provider whose server may leave calls in the text.
pub(crate) struct UnparsedCalls {
    inner: Box<dyn Provider>,
}

impl UnparsedCalls {
    /// Wraps a provider.
    pub(crate) fn new(inner: Box<dyn Provider>) -> UnparsedCalls {
        UnparsedCalls { inner }
    }
}

impl Provider for UnparsedCalls {
    fn ask<'a>(
        &'a self,
        request: &'a ChatRequest<'a>,
        on_delta: &'a mut OnDelta<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move { Ok(parsed(self.inner.ask(request, on_delta).await?, request)) })
    }

    fn facts(&self) -> &ProviderFacts {
        self.inner.facts()
    }
}

/// Returns the reply with the calls in its text, if it ends with calls of tools that the model has. A
/// call in a code fence, one that more text follows, and one that quotes the user or a tool stay
/// text: the model shows them.
fn parsed(reply: Reply, request: &ChatRequest<'_>) -> Reply {
    let has_calls = reply.message.calls().next().is_some();
    if reply.stop != StopReason::Done || has_calls {
        return reply;
    }
    let texts = reply.message.parts.iter().filter_map(|part| match part {
        ContentPart::Text { text } => Some(text.as_str()),
        _ => None,
    });
    // Without the names of tools, the parser takes complete blocks only.
    let mut parser = TextCallParser::new([]);
    let mut pieces: Vec<TextPiece> = texts.flat_map(|text| parser.push(text)).collect();
    pieces.extend(parser.end(&|_| true));
    let is_made = |piece: &TextPiece| match piece {
        TextPiece::Call(call) => {
            call.args.is_some()
                && request.tools.iter().any(|tool| tool.name == call.name)
                && !is_quoted(&call.source, request.messages)
        }
        TextPiece::Text(text) => text.trim().is_empty(),
        TextPiece::Thought(_) => false,
    };
    let first = pieces.iter().position(|piece| matches!(piece, TextPiece::Call(_)));
    match first {
        Some(first) if pieces[first..].iter().all(is_made) => {
            with_calls(reply, pieces, CallIds::after(request.messages))
        }
        _ => reply,
    }
}
