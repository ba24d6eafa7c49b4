//! Decodes a reply in Gemini's format: chunks with parts. The last chunk has the finish reason.

use base::event::Usage;
use serde_json::{Value, json};

use crate::error::ProviderError;
use crate::hosted::{ReplyDecoder, ReplyProgress, parse_object};
use crate::message::{ContentPart, Message, MessageRole, Reply, StopReason};
use crate::provider::{Delta, OnDelta};
use crate::tool_args::{self, CallIds};
use crate::{http_error, sse};

/// A reply being decoded.
#[derive(Debug)]
pub(crate) struct GeminiDecoder {
    ids: CallIds,
    parts: Vec<ContentPart>,
    usage: Usage,
    finish: Option<String>,
}

impl ReplyDecoder for GeminiDecoder {
    fn event(
        &mut self,
        event: &sse::SseEvent,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<ReplyProgress, ProviderError> {
        if let Some(chunk) = parse_object(event)? {
            self.chunk(&chunk, on_delta)?;
        }
        Ok(self.progress())
    }

    fn decode_whole(
        &mut self,
        body: &Value,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<ReplyProgress, ProviderError> {
        self.chunk(body, on_delta)?;
        Ok(self.progress())
    }

    fn reply(self: Box<Self>) -> Option<Reply> {
        let GeminiDecoder { parts, usage, finish, .. } = *self;
        let finish = finish?;
        let message = Message { role: MessageRole::Assistant, parts };
        let stop = match finish.as_str() {
            "MAX_TOKENS" => StopReason::Length,
            "STOP" | "FINISH_REASON_UNSPECIFIED" if message.calls().next().is_some() => {
                StopReason::Calls
            }
            "STOP" | "FINISH_REASON_UNSPECIFIED" => StopReason::Done,
            // SAFETY, RECITATION, BLOCKLIST, PROHIBITED_CONTENT, SPII, LANGUAGE, OTHER …
            _ => StopReason::Refused,
        };
        Some(Reply { message, usage, stop })
    }
}

impl GeminiDecoder {
    /// Creates a decoder that assigns ids to calls, since Gemini has none.
    pub(crate) fn new(ids: CallIds) -> GeminiDecoder {
        GeminiDecoder { ids, parts: Vec::new(), usage: Usage::default(), finish: None }
    }

    /// Returns the progress. One more chunk with counts may follow the finish reason.
    fn progress(&self) -> ReplyProgress {
        if self.finish.is_some() { ReplyProgress::Complete } else { ReplyProgress::Open }
    }

    fn chunk(&mut self, chunk: &Value, on_delta: &mut OnDelta<'_>) -> Result<(), ProviderError> {
        if chunk["error"].is_object() {
            return Err(http_error::in_stream(chunk));
        }
        self.count(&chunk["usageMetadata"]);
        if let Some(reason) = chunk["promptFeedback"]["blockReason"].as_str() {
            return Err(ProviderError::rejected(format!("the prompt was blocked ({reason})")));
        }
        // If a stream has several candidates, only the first one is the reply.
        let mut candidates = chunk["candidates"].as_array().into_iter().flatten();
        let is_first = |one: &&Value| one["index"].as_u64().unwrap_or_default() == 0;
        let candidate = candidates.find(is_first).unwrap_or(&Value::Null);
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            self.part(part, on_delta);
        }
        if let Some(reason) = candidate["finishReason"].as_str().filter(|text| !text.is_empty()) {
            if ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL"].contains(&reason) {
                let message =
                    format!("the model made a call that the service cannot read ({reason})");
                return Err(ProviderError::Broken(message));
            }
            self.finish = Some(reason.to_owned());
        }
        on_delta(Delta::Ping);
        Ok(())
    }

    /// Updates the usage. The counts of each chunk are totals.
    fn count(&mut self, usage: &Value) {
        let count = |key: &str| usage[key].as_u64();
        if let Some(prompt) = count("promptTokenCount") {
            let cached = count("cachedContentTokenCount").unwrap_or_default().min(prompt);
            self.usage.cache_read = cached;
            self.usage.input =
                (prompt - cached).saturating_add(count("toolUsePromptTokenCount").unwrap_or(0));
        }
        if count("candidatesTokenCount").or(count("thoughtsTokenCount")).is_some() {
            let (text_tokens, reasoning_tokens) =
                (count("candidatesTokenCount"), count("thoughtsTokenCount"));
            self.usage.output =
                text_tokens.unwrap_or(0).saturating_add(reasoning_tokens.unwrap_or(0));
        }
    }

    fn part(&mut self, part: &Value, on_delta: &mut OnDelta<'_>) {
        let text = part["text"].as_str().unwrap_or_default();
        let is_thought = part["thought"] == true;
        let is_known = is_thought || part["functionCall"].is_object() || part["text"].is_string();
        // The signature precedes the part that it signs.
        if let Some(signature) = part["thoughtSignature"].as_str().filter(|_| is_known) {
            let sealed = Some(json!({ "thoughtSignature": signature }));
            self.parts.push(ContentPart::Reasoning { text: String::new(), sealed });
        }
        if part["functionCall"].is_object() {
            let call = &part["functionCall"];
            let name = call["name"].as_str().unwrap_or_default().to_owned();
            // An object; some gateways send it as a JSON string.
            let args = match &call["args"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let id = self.ids.unique(call["id"].as_str().unwrap_or_default());
            self.parts.push(ContentPart::Call(tool_args::call(id, name, &args)));
        } else if text.is_empty() {
        } else if is_thought {
            match self.parts.last_mut() {
                Some(ContentPart::Reasoning { text: last_text, .. }) => last_text.push_str(text),
                _ => {
                    let (text, sealed) = (text.to_owned(), None);
                    self.parts.push(ContentPart::Reasoning { text, sealed });
                }
            }
            on_delta(Delta::Reasoning(text));
        } else {
            match self.parts.last_mut() {
                Some(ContentPart::Text { text: last_text }) => last_text.push_str(text),
                _ => self.parts.push(ContentPart::Text { text: text.to_owned() }),
            }
            on_delta(Delta::Text(text));
        }
    }
}
