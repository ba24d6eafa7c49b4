//! Classifies error responses of providers: wait, shrink the conversation, or tell the user.

use std::time::Duration;

use base::text::{cut_columns, head, printable};
use jiff::Timestamp;
use serde_json::Value;

use crate::error::{ProviderError, Refusal};
use crate::http::StreamedResponse;

/// Maximum number of bytes read of an error body.
const MAX_BODY: usize = 64 << 10;
/// Maximum number of characters shown of it.
const MAX_TEXT: usize = 300;

/// Context for the hints of an error.
#[derive(Clone, Debug)]
pub(crate) struct Advice {
    /// `type.name`.
    pub provider: String,
    /// The model's name.
    pub model: String,
    /// The source of the key, e.g. `ANTHROPIC_API_KEY`.
    pub key: String,
}

/// Returns the error for a response with a status other than 200.
pub(crate) async fn refusal(response: StreamedResponse, advice: &Advice) -> ProviderError {
    let status = response.status();
    let header_delay =
        response.header("retry-after").and_then(|text| parse_retry_after(text, Timestamp::now()));
    let is_final = response.header("x-should-retry") == Some("false");
    let location = response.header("location").map(str::to_owned);
    let body = String::from_utf8_lossy(&response.head(MAX_BODY).await).into_owned();
    let retry_after = header_delay.or_else(|| retry_delay_in_body(&body));
    let body_error = error_body(&body);
    let text = format!("HTTP {status}: {}", body_error.text);
    let refusal_with = |text: String| Refusal { status: Some(status), ..Refusal::new(text) };
    let rejected = |text, hint: &str| refusal_with(text).hint(hint).into();
    match status {
        300..=399 => {
            let target = location.unwrap_or_else(|| "elsewhere".to_owned());
            rejected(
                format!("HTTP {status}: it redirects to {}", head(&printable(&target), MAX_TEXT)),
                "put the final address into `base_url`: a redirect would carry the key along",
            )
        }
        _ if is_final => refusal_with(text).into(),
        429 if body_error.is_quota() => {
            rejected(text, "check the plan and the credit of this account")
        }
        429 => ProviderError::RateLimited { after: retry_after },
        503 | 529 => ProviderError::Busy { message: text, after: retry_after },
        408 | 409 | 500.. => match retry_after {
            Some(_) => ProviderError::RateLimited { after: retry_after },
            None => ProviderError::Overloaded(text),
        },
        413 => ProviderError::TooLong(text),
        _ if body_error.is_too_long() => ProviderError::TooLong(text),
        401 => rejected(text, &format!("check the key of `{}` ({})", advice.provider, advice.key)),
        403 => rejected(
            text,
            &format!(
                "check that the key of `{}` ({}) may use the model `{}`",
                advice.provider, advice.key, advice.model
            ),
        ),
        404 => rejected(
            text,
            &format!(
                "check the model name `{}` and the base_url of `{}`",
                advice.model, advice.provider
            ),
        ),
        _ if body_error.text.contains("use /v1/responses") => {
            rejected(text, &format!("set `wire = \"responses\"` for `{}`", advice.provider))
        }
        _ => refusal_with(text).into(),
    }
}

/// Whether an error is about an expired or revoked token. Databricks returns 403 for these.
pub(crate) fn is_about_token(status: u16, message: &str) -> bool {
    let message = message.to_lowercase();
    let mentions_token =
        message.contains("token") && ["invalid", "expired"].iter().any(|w| message.contains(w));
    status == 401 || (status == 403 && mentions_token)
}

/// Returns the error for an error object inside a stream (after status 200).
pub(crate) fn in_stream(object: &Value) -> ProviderError {
    let error = if object["error"].is_null() { object } else { &object["error"] };
    let body = ErrorBody::from(error);
    let code = error["code"].as_u64().or_else(|| body.kind.parse().ok());
    let text = format!("inside the stream: {}", body.text);
    match (body.kind.as_str(), code) {
        _ if body.is_quota() => ProviderError::rejected(text),
        _ if body.is_too_long() => ProviderError::TooLong(text),
        ("rate_limit_error" | "rate_limit_exceeded", _) | (_, Some(429)) => {
            ProviderError::RateLimited { after: None }
        }
        ("overloaded_error" | "server_is_overloaded", _) | (_, Some(503 | 529)) => {
            ProviderError::Busy { message: text, after: None }
        }
        ("api_error" | "server_error" | "timeout_error", _) | (_, Some(408 | 500..)) => {
            ProviderError::Overloaded(text)
        }
        (
            "invalid_request_error"
            | "authentication_error"
            | "permission_error"
            | "not_found_error",
            _,
        )
        | (_, Some(400..=404)) => ProviderError::rejected(text),
        _ => ProviderError::Broken(text),
    }
}

/// Returns the error for a web page in place of a reply.
pub(crate) fn web_page(body: &str, advice: &Advice) -> ProviderError {
    Refusal::new(format!("a web page came instead of a reply: {}", error_body(body).text))
        .hint(format!("check the base_url of `{}`", advice.provider))
        .into()
}

/// The error that a body describes.
struct ErrorBody {
    kind: String,
    text: String,
}

impl ErrorBody {
    /// Parses the error object that both wire formats use: `{type, code, message}`.
    fn from(error: &Value) -> ErrorBody {
        let field = |key: &str| error[key].as_str().map(str::to_owned);
        let kind = field("type").or_else(|| field("code")).or_else(|| field("error_code"));
        let kind = kind.unwrap_or_default();
        let kind = if error["code"] == "insufficient_quota" { field("code") } else { Some(kind) };
        let kind = kind.unwrap_or_default();
        let message = field("message").or_else(|| error.as_str().map(str::to_owned));
        let text = message.unwrap_or_else(|| error.to_string());
        let code = field("code").filter(|code| !text.contains(code.as_str()));
        let text = code.map_or_else(|| text.clone(), |code| format!("{text} ({code})"));
        let text = if text.is_empty() { kind.clone() } else { text };
        ErrorBody { kind, text: one_line(&text) }
    }

    fn is_quota(&self) -> bool {
        self.kind == "insufficient_quota"
    }

    /// Whether the request is too long. Matches the messages of Anthropic, OpenAI, llama.cpp, vLLM
    /// and similar servers; there is no common code.
    fn is_too_long(&self) -> bool {
        let text = self.text.to_lowercase();
        [
            "prompt is too long",
            "context_length_exceeded",
            "maximum context length",
            "exceed context limit",
            "exceeds the available context size",
            "exceeds the context window",
            "exceed_context_size_error",
            "context window is exceeded",
            "input is too long",
            "too many tokens",
            "exceeds the maximum number of tokens",
            "reduce the length of the messages",
        ]
        .iter()
        .any(|phrase| text.contains(phrase))
            || self.kind == "exceed_context_size_error"
    }
}

/// Parses the error object of a body. Gemini wraps it in a list.
fn object(body: &str) -> Option<Value> {
    match serde_json::from_str(body).ok()? {
        Value::Array(mut items) if items.len() == 1 => items.pop(),
        other => Some(other),
    }
}

fn error_body(body: &str) -> ErrorBody {
    if let Some(object) = object(body) {
        let nested = ["error", "detail"].iter().map(|key| &object[*key]).find(|v| !v.is_null());
        return ErrorBody::from(nested.unwrap_or(&object));
    }
    let text = if body.trim_start().starts_with('<') { html_text(body) } else { body.to_owned() };
    let text = if text.trim().is_empty() { "an empty answer".to_owned() } else { text };
    ErrorBody { kind: String::new(), text: one_line(&text) }
}

/// Returns the title of a web page, or its text without tags.
fn html_text(page: &str) -> String {
    let lower = page.to_ascii_lowercase();
    let title = lower.find("<title>").and_then(|start| {
        let start = start + "<title>".len();
        let end = start + lower[start..].find("</title>")?;
        Some(page[start..end].trim().to_owned())
    });
    let strip_tags = || {
        let texts = page.split('<').map(|tag| tag.split_once('>').map_or("", |(_, text)| text));
        texts.collect::<Vec<_>>().join(" ")
    };
    title.filter(|title| !title.is_empty()).unwrap_or_else(strip_tags)
}

/// Shortens a text to one printable line.
fn one_line(text: &str) -> String {
    let line = printable(text).split_whitespace().collect::<Vec<_>>().join(" ");
    cut_columns(&line, MAX_TEXT)
}

/// Parses `retry-after`: seconds or an HTTP date (RFC 9110, 10.2.3).
fn parse_retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = jiff::fmt::rfc2822::parse(text.trim()).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

/// Returns the delay that a body specifies. Gemini puts it in a detail of the error, e.g.
/// `"34.07s"`.
fn retry_delay_in_body(body: &str) -> Option<Duration> {
    let object = object(body)?;
    let mut details = object["error"]["details"].as_array()?.iter();
    let seconds = details.find_map(|detail| detail["retryDelay"].as_str()?.strip_suffix('s'))?;
    Duration::try_from_secs_f64(seconds.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2026-01-02T10:00:00Z".parse().unwrap();
        assert_eq!(parse_retry_after("7", now), Some(Duration::from_secs(7)));
        assert_eq!(parse_retry_after("0.5", now), Some(Duration::from_millis(500)));
        let date = "Fri, 02 Jan 2026 10:00:30 GMT";
        assert_eq!(parse_retry_after(date, now), Some(Duration::from_secs(30)));
        let past = "Fri, 02 Jan 2026 09:00:00 GMT";
        assert_eq!(parse_retry_after(past, now), Some(Duration::ZERO));
        assert_eq!(parse_retry_after("soon", now), None);
    }

    #[test]
    fn the_retry_delay_may_be_in_the_body() {
        let body = |delay: &str| {
            let detail = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo",
                "retryDelay": delay});
            json!([{"error": {"code": 429, "message": "slow", "details": [{}, detail]}}])
                .to_string()
        };
        assert_eq!(retry_delay_in_body(&body("34.5s")), Some(Duration::from_millis(34_500)));
        assert_eq!(retry_delay_in_body(&body("-1s")), None);
        assert_eq!(retry_delay_in_body("{}"), None);
        assert_eq!(error_body(&body("1s")).text, "slow");
    }

    #[test]
    fn an_expired_token_differs_from_a_missing_permission() {
        assert!(is_about_token(401, "HTTP 401: no"));
        assert!(is_about_token(403, "HTTP 403: Invalid access token."));
        assert!(!is_about_token(403, "HTTP 403: you may not query this endpoint"));
        assert!(!is_about_token(400, "HTTP 400: invalid token count"));
    }

    #[test]
    fn a_web_page_is_reduced_to_its_title_or_first_words() {
        assert_eq!(error_body("<html><title>502 Bad</title><p>x").text, "502 Bad");
        assert_eq!(error_body("<html><b>no</b> title").text, "no title");
        assert_eq!(error_body("").text, "an empty answer");
        assert_eq!(error_body(&"é".repeat(5000)).text.chars().count(), MAX_TEXT);
    }

    #[test]
    fn errors_inside_a_stream_are_classified() {
        let kind = |kind: &str| in_stream(&json!({"error": {"type": kind, "message": "m"}}));
        assert!(matches!(kind("overloaded_error"), ProviderError::Busy { after: None, .. }));
        assert!(matches!(kind("rate_limit_error"), ProviderError::RateLimited { after: None }));
        assert!(matches!(kind("invalid_request_error"), ProviderError::Rejected(_)));
        assert!(matches!(kind("new_error"), ProviderError::Broken(_)));
        let code = |code: u64| in_stream(&json!({"error": {"code": code, "message": "m"}}));
        assert!(matches!(code(502), ProviderError::Overloaded(_)));
        assert!(matches!(code(503), ProviderError::Busy { .. }));
        assert!(matches!(code(429), ProviderError::RateLimited { .. }));
        let long = in_stream(&json!({"error": {"type": "invalid_request_error",
            "message": "prompt is too long: 210000 tokens > 200000 maximum"}}));
        assert!(matches!(long, ProviderError::TooLong(_)));
    }
}
