//! Retries requests after rate limits, overload, broken connections and broken streams.
//!
//! A reply that breaks off is requested again as a whole. None of its tool calls has run, because
//! the turn loop receives only complete replies. Its text was already streamed, however. As long as
//! the new text repeats the old text, it is not passed on again, so that the streamed text is the
//! model's text. Where they differ, a newline and the complete new text follow.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::test_hooks::TestHook;
use futures_util::future::BoxFuture;
use tracing::Instrument;

use crate::message::Reply;

use crate::error::ProviderError;
use crate::fallback::FallbackModels;
use crate::provider::{ChatRequest, Delta, OnDelta, Provider, ProviderFacts};
use crate::trace_events;

/// Maximum delay of our own backoff, in units of the base delay.
const MAX_BACKOFF_FACTOR: u32 = 60;
/// If a server asks for a longer delay than this, the error is returned to the user.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// The delays between attempts.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The first delay of our own backoff.
    base: Duration,
    /// Duration of a second in server-requested delays: one second, except in tests.
    retry_after_unit: Duration,
    seed: u64,
}

impl Backoff {
    /// Creates a backoff from one second, or from the delay set by a test.
    pub(crate) fn from_env() -> Backoff {
        let since_epoch = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Processes that were rejected at the same time must not retry at the same time.
        let seed = TestHook::Seed.number().unwrap_or_else(|| {
            u64::from(since_epoch().subsec_nanos()) ^ u64::from(std::process::id()) << 32
        });
        match TestHook::RetryMs.number() {
            Some(base) => Backoff { seed, ..Backoff::fixed(Duration::from_millis(base)) },
            None => Backoff {
                base: Duration::from_secs(1),
                retry_after_unit: Duration::from_secs(1),
                seed,
            },
        }
    }

    /// Creates a backoff with this base delay and a fixed jitter, for tests. A second requested by
    /// a server lasts as long as the base delay.
    pub fn fixed(base: Duration) -> Backoff {
        Backoff { base, retry_after_unit: base, seed: 0 }
    }

    /// Returns the delay before the next attempt, or `None` if retrying does not help. `attempt`
    /// counts from 1.
    fn pause(&self, error: &ProviderError, attempt: u32) -> Option<Duration> {
        let factor = MAX_BACKOFF_FACTOR.min(1 << attempt.saturating_sub(1).min(16));
        let delay = self.base.mul_f64(f64::from(factor) * self.jitter(attempt));
        match error {
            ProviderError::RateLimited { after: Some(after) }
            | ProviderError::Busy { after: Some(after), .. }
                if *after > MAX_RETRY_AFTER =>
            {
                None
            }
            // Not before the time that the server specified.
            ProviderError::RateLimited { after: Some(after) }
            | ProviderError::Busy { after: Some(after), .. } => Some(
                self.retry_after_unit
                    .mul_f64(after.as_secs_f64() * (1.0 + self.jitter(attempt) * 0.05)),
            ),
            ProviderError::RateLimited { after: None }
            | ProviderError::Busy { after: None, .. }
            | ProviderError::Overloaded(_)
            | ProviderError::Unreachable(_)
            | ProviderError::Broken(_) => Some(delay),
            ProviderError::TooLong(_) | ProviderError::Rejected(_) | ProviderError::Cancelled => {
                None
            }
        }
    }

    /// Returns a factor between 0.7 and 1.3 (splitmix64).
    fn jitter(&self, attempt: u32) -> f64 {
        let mut x = self.seed.wrapping_add(u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        0.7 + 0.6 * ((x ^ (x >> 31)) as f64 / u64::MAX as f64)
    }
}

/// A provider that retries.
pub struct RetryingProvider {
    models: FallbackModels,
    attempts: u32,
    backoff: Backoff,
}

impl RetryingProvider {
    /// Creates a provider that makes at most `attempts` attempts.
    pub fn new(models: FallbackModels, attempts: u32, backoff: Backoff) -> RetryingProvider {
        RetryingProvider { models, attempts: attempts.max(1), backoff }
    }
}

impl Provider for RetryingProvider {
    fn ask<'a>(
        &'a self,
        request: &'a ChatRequest<'a>,
        on_delta: &'a mut OnDelta<'_>,
    ) -> BoxFuture<'a, Result<Reply, ProviderError>> {
        Box::pin(async move {
            let mut text = Echo::default();
            let mut reasoning = Echo::default();
            let (mut attempt, mut request_number) = (1, 1);
            loop {
                let mut filter_echo = |delta: Delta<'_>| match delta {
                    Delta::Text(text_delta) => {
                        text.push(text_delta, &mut |new_text| on_delta(Delta::Text(new_text)))
                    }
                    Delta::Reasoning(text_delta) => {
                        reasoning
                            .push(text_delta, &mut |new_text| on_delta(Delta::Reasoning(new_text)));
                    }
                    Delta::Retry { .. } | Delta::Notice(_) | Delta::Ping => on_delta(delta),
                };
                let model = self.models.current();
                let max_output = request.max_output.min(model.facts().max_output);
                let model_request = ChatRequest { max_output, ..request.clone() };
                let span = trace_events::chat_span(model.facts(), &model_request, request_number);
                request_number += 1;
                let result =
                    model.ask(&model_request, &mut filter_echo).instrument(span.clone()).await;
                trace_events::record_result(&span, &result);
                let error = match result {
                    Ok(reply) => {
                        text.end(&mut |new_text| on_delta(Delta::Text(new_text)));
                        return Ok(reply);
                    }
                    Err(error) => error,
                };
                let switch = self.models.on_error(&error).await;
                if let Some(switch) = &switch {
                    let model = &self.models.current().facts().model;
                    let kind = trace_events::kind(&error);
                    tracing::warn!(target: "g3::model", why = kind, model, "replaced");
                    on_delta(Delta::Notice(&switch.notice));
                }
                if switch.is_none_or(|switch| !switch.retry_now) {
                    let pause = self.backoff.pause(&error, attempt);
                    let Some(after) = pause.filter(|_| attempt < self.attempts) else {
                        return Err(with_count(error, attempt));
                    };
                    trace_events::retry(&error, after, attempt);
                    on_delta(Delta::Retry { reason: error.to_string(), after, attempt });
                    tokio::time::sleep(after).await;
                    attempt += 1;
                }
                text.restart();
                reasoning.restart();
            }
        })
    }

    fn facts(&self) -> &ProviderFacts {
        self.models.facts()
    }

    fn turn_begins(&self) {
        self.models.turn_begins();
    }
}

/// Adds the number of attempts to the message, for errors with a message.
fn with_count(error: ProviderError, attempts: u32) -> ProviderError {
    let add_count = |text: String| format!("{text} (asked {attempts} times)");
    match error {
        ProviderError::Busy { message, after } if attempts > 1 => {
            ProviderError::Busy { message: add_count(message), after }
        }
        ProviderError::Overloaded(text) if attempts > 1 => {
            ProviderError::Overloaded(add_count(text))
        }
        ProviderError::Broken(text) if attempts > 1 => ProviderError::Broken(add_count(text)),
        ProviderError::Unreachable(text) if attempts > 1 => {
            ProviderError::Unreachable(add_count(text))
        }
        ProviderError::Busy { .. }
        | ProviderError::Overloaded(_)
        | ProviderError::Unreachable(_)
        | ProviderError::Broken(_)
        | ProviderError::RateLimited { .. }
        | ProviderError::TooLong(_)
        | ProviderError::Rejected(_)
        | ProviderError::Cancelled => error,
    }
}

/// The text passed on so far, and how much of it the current attempt has repeated.
#[derive(Debug, Default)]
struct Echo {
    streamed: String,
    /// `None` while nothing is repeated; then all text is passed on.
    echo_offset: Option<usize>,
}

impl Echo {
    /// Starts a new attempt.
    fn restart(&mut self) {
        self.echo_offset = (!self.streamed.is_empty()).then_some(0);
    }

    fn push(&mut self, delta: &str, on_text: &mut dyn FnMut(&str)) {
        let Some(offset) = self.echo_offset else {
            self.streamed.push_str(delta);
            return on_text(delta);
        };
        let expected = &self.streamed[offset..];
        if expected.starts_with(delta) {
            self.echo_offset = Some(offset + delta.len());
        } else if let Some(new_text) = delta.strip_prefix(expected) {
            self.echo_offset = None;
            self.streamed.push_str(new_text);
            on_text(new_text);
        } else {
            let text = format!("{}{delta}", &self.streamed[..offset]);
            self.start_new_part(text, on_text);
        }
    }

    /// Ends a complete reply. If its text is shorter than the text passed on before, passes it on
    /// as a whole.
    fn end(&mut self, on_text: &mut dyn FnMut(&str)) {
        match self.echo_offset {
            Some(offset) if offset > 0 && offset < self.streamed.len() => {
                let text = self.streamed[..offset].to_owned();
                self.start_new_part(text, on_text);
            }
            Some(_) | None => {}
        }
    }

    fn start_new_part(&mut self, message: String, pass: &mut dyn FnMut(&str)) {
        self.echo_offset = None;
        pass("\n");
        pass(&message);
        self.streamed = message;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(tries: &[&[&str]]) -> String {
        let mut echo = Echo::default();
        let mut out = String::new();
        for (at, pieces) in tries.iter().enumerate() {
            if at > 0 {
                echo.restart();
            }
            for piece in *pieces {
                echo.push(piece, &mut |new| out.push_str(new));
            }
        }
        echo.end(&mut |new| out.push_str(new));
        out
    }

    #[test]
    fn repeated_text_is_streamed_once() {
        assert_eq!(passed(&[&["Hel", "lo w"], &["H", "ello ", "world"]]), "Hello world");
        assert_eq!(passed(&[&["Hel"], &["He"], &["Hello"]]), "Hello");
        assert_eq!(passed(&[&["été"], &["été!"]]), "été!");
        assert_eq!(passed(&[&[], &["Hello"]]), "Hello");
    }

    #[test]
    fn diverging_text_is_streamed_in_full_after_a_newline() {
        assert_eq!(passed(&[&["Hello w"], &["Hello", " you"]]), "Hello w\nHello you");
        assert_eq!(passed(&[&["Hello world"], &["Hello"]]), "Hello world\nHello");
        assert_eq!(passed(&[&["ab"], &["ac"], &["ac", "d"]]), "ab\nacd");
    }

    #[test]
    fn delays_double_and_are_never_shorter_than_the_server_asks() {
        let backoff = Backoff::fixed(Duration::from_secs(1));
        let broken = ProviderError::Broken(String::new());
        let pauses: Vec<f64> =
            (1..=8).map(|n| backoff.pause(&broken, n).unwrap().as_secs_f64()).collect();
        for (at, pause) in pauses.iter().enumerate() {
            let middle = f64::from(2u32.pow(u32::try_from(at).unwrap())).min(60.0);
            assert!((middle * 0.7..=middle * 1.3).contains(pause), "{at}: {pause}");
        }
        let asked = ProviderError::RateLimited { after: Some(Duration::from_secs(7)) };
        let pause = backoff.pause(&asked, 1).unwrap();
        assert!(pause >= Duration::from_secs(7) && pause < Duration::from_secs(8), "{pause:?}");
        let hours = ProviderError::RateLimited { after: Some(Duration::from_secs(7200)) };
        assert_eq!(backoff.pause(&hours, 1), None);
        assert_eq!(backoff.pause(&ProviderError::rejected(""), 1), None);
    }
}
