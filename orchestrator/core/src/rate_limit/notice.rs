//! Finds rate limits and usage limits in the messages of agents.

use base::clock::Clock;
use jiff::Timestamp;

use crate::rate_limit::reset_time;

/// Maximum size of a message that is a notice as a whole, in bytes.
const MAX_NOTICE_BYTES: usize = 300;
/// Maximum size of the reason that is kept, in bytes.
const MAX_REASON_BYTES: usize = 200;

/// A rate limit that an agent reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitNotice {
    /// When the limit ends, if the message says so.
    pub reset: Option<Timestamp>,
    /// The message, in one line.
    pub reason: String,
}

/// A text that only a message about a limit contains, in lower case.
struct LimitMarker {
    text: &'static str,
    /// Whether it names a limit of usage: such a message can be all that an agent says.
    is_usage: bool,
}

const fn usage(text: &'static str) -> LimitMarker {
    LimitMarker { text, is_usage: true }
}

const fn rate(text: &'static str) -> LimitMarker {
    LimitMarker { text, is_usage: false }
}

/// The messages of agents and services about limits, each with its source.
const MARKERS: &[LimitMarker] = &[
    // g3: `ProviderError::RateLimited`.
    rate("the provider limits requests"),
    // Claude Code 1.0: "Claude AI usage limit reached|1749924000" (anthropics/claude-code#2087).
    usage("usage limit reached"),
    // Claude Code 2.1: "You've hit your session limit · resets 8:30pm (Asia/Tokyo)"
    // (anthropics/claude-code#77082); Codex: "You've hit your usage limit. … try again in 2 days 17
    // hours 14 minutes." (openai/codex#3124); Cursor's CLI uses the same words.
    usage("hit your session limit"),
    usage("hit your weekly limit"),
    usage("hit your usage limit"),
    usage("hit your limit"),
    usage("hit your rate limit"),
    // ChatGPT's backend: {"type":"usage_limit_reached","resets_at":1777936568}
    // (earendil-works/pi#4172).
    usage("usage_limit_reached"),
    usage("usage limit has been reached"),
    // Anthropic's and OpenAI's APIs: the types of errors.
    rate("rate_limit_error"),
    rate("rate_limit_exceeded"),
    rate("exceed your account's rate limit"),
    // OpenAI's API: "Rate limit reached for gpt-5 … Please try again in 11.054s."
    rate("rate limit reached"),
    rate("rate limit exceeded"),
    rate("rate limited"),
    // Codex: "exceeded retry limit, last status: 429 Too Many Requests"; HTTP libraries.
    rate("too many requests"),
    rate("status: 429"),
    rate("status 429"),
    rate("http 429"),
    rate("error: 429"),
    // Claude Code: the `error` of a line `system` with the subtype `api_retry` is `rate_limit`.
    rate("rate_limit"),
    // Gemini's API: "Resource has been exhausted (e.g. check quota)." (google-gemini/gemini-cli#1848).
    rate("resource_exhausted"),
    rate("resource has been exhausted"),
    rate("resource exhausted"),
    // Gemini CLI: "You have exhausted your capacity on this model. Your quota will reset after …".
    usage("quota will reset after"),
    usage("exhausted your daily quota"),
];

/// A limit that no time ends: the account has no credit.
const NO_CREDIT: [&str; 3] =
    ["insufficient_quota", "credit balance is too low", "billing_hard_limit"];

impl LimitNotice {
    /// Finds a limit in an error of an agent.
    pub fn in_error(text: &str, clock: &Clock) -> Option<LimitNotice> {
        let lower = text.to_ascii_lowercase();
        let is_limit = MARKERS.iter().any(|marker| lower.contains(marker.text));
        if !is_limit || NO_CREDIT.iter().any(|text| lower.contains(text)) {
            return None;
        }
        let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let reason = base::text::printable(base::text::head(&one_line, MAX_REASON_BYTES));
        let reset = reset_time::find(text, clock.now(), &clock.zone());
        Some(LimitNotice { reset, reason })
    }

    /// Finds a limit in the last message of an agent that reported no error: a short message that
    /// names a limit of usage and its end. An agent that writes about limits does not match.
    pub(crate) fn in_message(text: &str, clock: &Clock) -> Option<LimitNotice> {
        let text = text.trim();
        let lower = text.to_ascii_lowercase();
        let is_usage = MARKERS.iter().any(|it| it.is_usage && lower.contains(it.text));
        if text.len() > MAX_NOTICE_BYTES || !is_usage {
            return None;
        }
        LimitNotice::in_error(text, clock).filter(|notice| notice.reset.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock() -> Clock {
        Clock::fixed("2026-01-02T10:00:00Z".parse().unwrap())
    }

    fn reset(text: &str) -> Option<Option<String>> {
        let notice = LimitNotice::in_error(text, &clock())?;
        Some(notice.reset.map(|time| time.to_string()))
    }

    #[test]
    fn limits_of_every_agent_are_found_with_their_end() {
        let at = |time: &str| Some(Some(time.to_owned()));
        for (text, expected) in [
            ("the provider limits requests (retry after 30 s)", at("2026-01-02T10:00:30Z")),
            ("the provider limits requests", Some(None)),
            ("Claude AI usage limit reached|1767358800", at("2026-01-02T13:00:00Z")),
            (
                "Claude usage limit reached. Your limit will reset at 1pm (Etc/GMT+5).",
                at("2026-01-02T18:00:00Z"),
            ),
            ("5-hour limit reached ∙ resets 5pm: usage limit reached", at("2026-01-02T17:00:00Z")),
            (
                "You've hit your session limit · resets 8:30pm (Asia/Tokyo)",
                at("2026-01-02T11:30:00Z"),
            ),
            (
                "You've hit your limit · resets 12:50am (America/Los_Angeles)",
                at("2026-01-03T08:50:00Z"),
            ),
            ("You've hit your weekly limit · resets Jan 5 at 5am", at("2026-01-05T05:00:00Z")),
            (
                "You've hit your usage limit. Upgrade to Pro (https://x/pricing) or try again in 2 days 17 hours 14 minutes.",
                at("2026-01-05T03:14:00Z"),
            ),
            (
                "You've hit your usage limit, or try again at Jan 5th, 2026 8:19 PM.",
                at("2026-01-05T20:19:00Z"),
            ),
            (
                "hit your usage limit … try again at Jan 7, 2026, 7:38 AM",
                at("2026-01-07T07:38:00Z"),
            ),
            (
                r#"{"type":"usage_limit_reached","message":"…","resets_at":1767358800,"resets_in_seconds":1}"#,
                at("2026-01-02T13:00:00Z"),
            ),
            (
                r#"{"type":"usage_limit_reached","resets_in_seconds":60}"#,
                at("2026-01-02T10:01:00Z"),
            ),
            (
                "Rate limit reached for gpt-5 on tokens. Please try again in 11.054s. Visit",
                at("2026-01-02T10:00:11.054Z"),
            ),
            ("Rate limit reached. Please try again in 1m2.5s.", at("2026-01-02T10:01:02.5Z")),
            ("exceeded retry limit, last status: 429 Too Many Requests", Some(None)),
            ("Your quota will reset after 12h13m20s.", at("2026-01-02T22:13:20Z")),
            ("[API Error: Resource has been exhausted (e.g. check quota).]", Some(None)),
            ("RESOURCE_EXHAUSTED: Please retry in 32.5s.", at("2026-01-02T10:00:32.5Z")),
            (
                "Usage limit reached. It will reset in 2 hours 3 minutes.",
                at("2026-01-02T12:03:00Z"),
            ),
            (
                "You've hit your rate limit. Please try again in 37 minutes.",
                at("2026-01-02T10:37:00Z"),
            ),
            ("usage limit reached, resets at 17:42", at("2026-01-02T17:42:00Z")),
            ("the agent exited with code 1: no such file", None),
            ("HTTP 429: You exceeded your current quota (insufficient_quota)", None),
        ] {
            assert_eq!(reset(text), expected, "{text}");
        }
    }

    #[test]
    fn a_message_is_a_notice_only_if_it_is_nothing_else() {
        let found = |text: &str| LimitNotice::in_message(text, &clock()).is_some();
        assert!(found("Claude AI usage limit reached|1767358800"));
        assert!(found("You've hit your limit · resets 5pm\n"));
        assert!(!found("I added a test for `Too many requests`, which retries in 5 s."));
        assert!(!found("The banner now says: usage limit reached."));
        let report =
            format!("{} usage limit reached, resets at 5pm", "I changed the page. ".repeat(20));
        assert!(!found(&report));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text in "(usage limit reached|retry after|resets at|try again in| |[0-9]{1,20}|:|pm|\\(|Jan|\\PC){0,20}") {
            if let Some(notice) = LimitNotice::in_error(&text, &clock()) {
                proptest::prop_assert!(notice.reset.is_none_or(|time| time > clock().now()));
            }
        }
    }
}
