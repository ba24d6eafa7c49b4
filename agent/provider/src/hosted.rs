//! A model behind HTTP. Sends the request, reads the stream, and decodes the reply with the wire
//! format.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use base::config::providers::Price;
use base::event::Usage;

use crate::message::Reply;

use crate::error::{ProviderError, Refusal};
use crate::http::{Endpoint, StreamedResponse};
use crate::http_error::{self, Advice};
use crate::oauth::OauthLogin;
use crate::provider::{ChatRequest, Delta, OnDelta, Provider, ProviderFacts};
use crate::{models, sse, trace_events};

/// A wire format: encodes requests and decodes replies.
pub trait WireFormat: Send + Sync {
    /// Builds the body of a request.
    fn body(&self, request: &ChatRequest<'_>, facts: &ProviderFacts) -> Value;

    /// Creates a decoder for the reply to this request.
    fn decoder(&self, request: &ChatRequest<'_>) -> Box<dyn ReplyDecoder>;

    /// Learns from an error message which parameter the server rejects. Returns whether the request
    /// would be encoded differently now.
    fn adapt(&self, refusal: &str) -> bool;
}

/// Decodes one reply.
pub trait ReplyDecoder: Send {
    /// Decodes one event of the stream.
    fn event(
        &mut self,
        event: &sse::SseEvent,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<ReplyProgress, ProviderError>;

    /// Decodes a reply that is a single JSON object.
    fn decode_whole(
        &mut self,
        body: &Value,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<ReplyProgress, ProviderError>;

    /// Returns the reply, or `None` if it is incomplete.
    fn reply(self: Box<Self>) -> Option<Reply>;
}

/// Parses the object in an event. Returns `None` for an event without content and for `[DONE]`.
pub(crate) fn parse_object(event: &sse::SseEvent) -> Result<Option<Value>, ProviderError> {
    match event.data.trim() {
        "" | "[DONE]" => Ok(None),
        data => serde_json::from_str(data)
            .map(Some)
            .map_err(|error| ProviderError::Broken(format!("an event is not JSON: {error}"))),
    }
}

/// Returns the notice about implausible token counts.
fn implausible_usage(usage: &Usage) -> String {
    format!(
        "the provider counts {} tokens sent and {} written for one reply; the counts are ignored",
        usage.sent(),
        usage.output
    )
}

/// The progress of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplyProgress {
    /// More events follow.
    Open,
    /// The content is complete; counts or the closing event may follow.
    Complete,
    /// The reply is over; later events do not belong to it.
    Over,
}

/// Maximum time to wait for trailing events after the content is complete.
const TAIL_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time to wait for the end of the body, which allows the connection to be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);
/// Maximum size in bytes of a reply that is a single JSON object.
const MAX_WHOLE_BODY: usize = 64 << 20;

/// Maximum number of tokens in one request and its reply. A larger count is an error of the server.
const MAX_PLAUSIBLE_TOKENS: u64 = 1_000_000_000;

/// A model behind HTTP.
pub(crate) struct HostedProvider {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// A login that replaces the key.
    pub login: Option<OauthLogin>,
    /// The wire format.
    pub wire: Box<dyn WireFormat>,
    /// The model's facts.
    pub facts: ProviderFacts,
    /// The price of tokens.
    pub price: Option<Price>,
    /// Context for error hints.
    pub advice: Advice,
    /// Whether the reply is streamed. Otherwise it is a single object.
    pub streamed: bool,
}

impl Provider for HostedProvider {
    fn ask<'a>(
        &'a self,
        request: &'a ChatRequest<'a>,
        on_delta: &'a mut OnDelta<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let result = self.exchange(request, on_delta).await;
            result.map_err(|error| self.redact_key(error))
        })
    }

    fn facts(&self) -> &ProviderFacts {
        &self.facts
    }
}

impl HostedProvider {
    async fn exchange(
        &self,
        request: &ChatRequest<'_>,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<Reply, ProviderError> {
        let response = self.send_until_accepted(request).await?;
        let mut decoder = self.wire.decoder(request);
        let end_reason = self.read_stream(response, decoder.as_mut(), on_delta).await?;
        let mut reply = decoder.reply().ok_or(ProviderError::Broken(end_reason))?;
        if reply.usage.tokens() > MAX_PLAUSIBLE_TOKENS {
            on_delta(Delta::Notice(&implausible_usage(&reply.usage)));
            reply.usage = Usage::default();
        }
        // A reply without token counts has no known cost.
        let price = self.price.filter(|_| reply.usage.tokens() > 0);
        reply.usage.cost_usd = price.map(|price| models::cost(&reply.usage, price));
        Ok(reply)
    }

    /// Sends the request. Retries as long as the wire format can adapt it to the server, and renews
    /// a rejected token once.
    async fn send_until_accepted(
        &self,
        request: &ChatRequest<'_>,
    ) -> Result<StreamedResponse, ProviderError> {
        let mut token = match &self.login {
            Some(login) => Some(login.token().await?),
            None => None,
        };
        let mut is_renewed = false;
        loop {
            let body = self.body(request).to_string();
            let response = self.endpoint.post(body.into_bytes(), token.as_ref()).await?;
            trace_events::record_response(self.endpoint.host(), &response);
            let status = response.status();
            if status == 200 {
                return Ok(response);
            }
            let error = http_error::refusal(response, &self.advice).await;
            let message = error.to_string();
            let renewable = self.login.as_ref().zip(token.as_ref()).filter(|_| !is_renewed);
            if let Some((login, stale)) = renewable
                && http_error::is_about_token(status, &message)
            {
                token = Some(login.renew(stale).await?);
                is_renewed = true;
                continue;
            }
            let is_about_parameters =
                matches!((&error, status), (ProviderError::Rejected(_), 400 | 422));
            if !is_about_parameters || !self.wire.adapt(&message) {
                return Err(error);
            }
        }
    }

    fn body(&self, request: &ChatRequest<'_>) -> Value {
        let mut body = self.wire.body(request, &self.facts);
        if !self.streamed && body["stream"] == true {
            body["stream"] = Value::Bool(false);
            body.as_object_mut().map(|body| body.remove("stream_options"));
        }
        body
    }

    /// Reads the body to its end. Returns why it ended, for a reply that is incomplete.
    async fn read_stream(
        &self,
        mut response: StreamedResponse,
        decoder: &mut dyn ReplyDecoder,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<String, ProviderError> {
        let (mut reader, mut events) = (sse::SseReader::default(), Vec::new());
        let mut progress = ReplyProgress::Open;
        let mut has_started = false;
        loop {
            let limit = (progress == ReplyProgress::Complete).then_some(TAIL_TIMEOUT);
            let bytes = match response.next(limit).await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                Err(error) => return Ok(error),
            };
            if !has_started {
                match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                    None => continue,
                    Some(b'{') => return self.read_whole(bytes, response, decoder, on_delta).await,
                    Some(b'<') => return Err(self.web_page_error(bytes, response).await),
                    Some(_) => has_started = true,
                }
            }
            reader.push(&bytes, &mut events).map_err(|e| ProviderError::Broken(e.to_string()))?;
            for event in events.drain(..) {
                progress = progress.max(decoder.event(&event, on_delta)?);
            }
            if progress == ReplyProgress::Over {
                let _ = response.next(Some(DRAIN_TIMEOUT)).await;
                return Ok(String::new());
            }
        }
        reader.end(&mut events);
        for event in events {
            // A truncated event cannot be decoded; the incomplete reply is detected later.
            let _ = decoder.event(&event, on_delta);
        }
        Ok("the stream ended before the reply was complete".to_owned())
    }

    /// Reads a reply of a server that does not stream and returns a single object.
    async fn read_whole(
        &self,
        mut body: Vec<u8>,
        mut response: StreamedResponse,
        decoder: &mut dyn ReplyDecoder,
        on_delta: &mut OnDelta<'_>,
    ) -> Result<String, ProviderError> {
        while let Some(bytes) = response.next(None).await.map_err(ProviderError::Broken)? {
            body.extend(bytes);
            if body.len() > MAX_WHOLE_BODY {
                return Err(ProviderError::Broken("the reply is longer than 64 MB".to_owned()));
            }
        }
        let body: Value = serde_json::from_str(&String::from_utf8_lossy(&body))
            .map_err(|error| ProviderError::Broken(format!("the reply is not JSON: {error}")))?;
        if body["error"].is_object() {
            return Err(http_error::in_stream(&body));
        }
        decoder.decode_whole(&body, on_delta)?;
        Ok("the reply is not complete".to_owned())
    }

    async fn web_page_error(&self, mut body: Vec<u8>, response: StreamedResponse) -> ProviderError {
        body.extend(response.head(8 << 10).await);
        http_error::web_page(&String::from_utf8_lossy(&body), &self.advice)
    }

    /// Removes the key from an error, since a server may repeat it in its message.
    fn redact_key(&self, error: ProviderError) -> ProviderError {
        let redact = |text: String| {
            let text = self.endpoint.redact_key(&text);
            self.login.as_ref().map_or(text.clone(), |login| login.redact_tokens(&text))
        };
        match error {
            ProviderError::Busy { message, after } => {
                ProviderError::Busy { message: redact(message), after }
            }
            ProviderError::Overloaded(text) => ProviderError::Overloaded(redact(text)),
            ProviderError::TooLong(text) => ProviderError::TooLong(redact(text)),
            ProviderError::Rejected(Refusal { text, status, hints }) => {
                let hints = hints.into_iter().map(redact).collect();
                Refusal { text: redact(text), status, hints }.into()
            }
            ProviderError::Unreachable(text) => ProviderError::Unreachable(redact(text)),
            ProviderError::Broken(text) => ProviderError::Broken(redact(text)),
            ProviderError::RateLimited { .. } | ProviderError::Cancelled => error,
        }
    }
}
