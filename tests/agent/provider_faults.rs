//! Tests of provider failures: the number of attempts, and the result.

use std::time::Duration;

use provider::ProviderError;
use provider::message::StopReason;
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::provider_support::{WIRES, ask, ask_once, provider, user};

/// Sends a request with the fault first and a good reply after it: a retry must succeed.
fn survived(fault: impl Fn() -> ScriptedReply) {
    for wire in WIRES {
        let (server, asked) = ask_once(wire, [fault(), ScriptedReply::says("done")]);
        assert_eq!(asked.reply().message.full_text(), "done", "{wire}: {asked:?}");
        assert_eq!(server.requests().len(), 2, "{wire}: {asked:?}");
        assert_eq!(asked.retries.len(), 1, "{wire}: {asked:?}");
    }
}

/// Sends a request with only the fault, as often as allowed.
fn fails_after(requests: usize, fault: impl Fn() -> ScriptedReply, says: &str) {
    for wire in WIRES {
        let (server, asked) = ask_once(wire, vec![fault(), fault(), fault(), fault()]);
        assert!(asked.error().contains(says), "{wire}: {}", asked.error());
        assert_eq!(server.requests().len(), requests, "{wire}: {asked:?}");
        assert!(!asked.error().contains("test-key"), "{wire}: {}", asked.error());
    }
}

#[test]
fn rate_limits_and_overload_are_retried() {
    for status in [408, 429, 500, 502, 503, 529] {
        survived(|| ScriptedReply::status(status));
        fails_after(
            3,
            || ScriptedReply::status(status),
            if status == 429 { "limits" } else { "HTTP" },
        );
    }
}

#[test]
fn retry_after_is_respected_in_seconds_and_as_a_date() {
    for wire in WIRES {
        // A second of the server is 20 ms of the test.
        let (_server, asked) = ask_once(
            wire,
            [ScriptedReply::status(429).retry_after(10), ScriptedReply::says("done")],
        );
        assert_eq!(asked.reply().message.full_text(), "done");
        assert!(asked.retries[0].1 >= Duration::from_millis(200), "{asked:?}");
        assert!(asked.took >= Duration::from_millis(200), "{asked:?}");

        let (_server, asked) = ask_once(
            wire,
            [
                ScriptedReply::status(503).header("retry-after", "Thu, 01 Jan 2015 00:00:00 GMT"),
                ScriptedReply::says("done"),
            ],
        );
        assert_eq!(asked.reply().message.full_text(), "done");
        assert_eq!(asked.retries[0].1, Duration::ZERO);
    }
}

#[test]
fn a_delay_of_hours_is_not_waited_for() {
    for wire in WIRES {
        let (server, asked) = ask_once(wire, ScriptedReply::status(429).retry_after(7200));
        assert!(asked.error().contains("7200 s"), "{}", asked.error());
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn errors_that_the_user_must_fix_are_not_retried() {
    fails_after(1, || ScriptedReply::status(400), "bad request");
    fails_after(1, || ScriptedReply::status(401), "check the key of");
    fails_after(1, || ScriptedReply::status(403), "may use the model `scripted`");
    fails_after(1, || ScriptedReply::status(404), "check the model name `scripted`");
    fails_after(1, || ScriptedReply::status(500).header("x-should-retry", "false"), "HTTP 500");
}

#[test]
fn a_key_that_the_server_repeats_is_not_shown() {
    let body = r#"{"error": {"message": "bad key test-key", "type": "x"}}"#;
    fails_after(1, || ScriptedReply::status(401).body("application/json", body), "bad key •••");
}

#[test]
fn an_exhausted_quota_is_not_a_limit_that_passes() {
    let body = r#"{"error": {"message": "no credit", "type": "insufficient_quota", "code": "insufficient_quota"}}"#;
    fails_after(1, || ScriptedReply::status(429).body("application/json", body), "no credit");
}

#[test]
fn a_too_long_request_is_recognized() {
    let sentences = [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "This model's maximum context length is 128000 tokens.",
        "the request exceeds the available context size, try increasing it",
    ];
    for wire in WIRES {
        for sentence in sentences {
            let body = serde_json::json!({"error": {"message": sentence, "type": "invalid_request_error"}});
            let fault = ScriptedReply::status(400).body("application/json", body.to_string());
            let (server, asked) = ask_once(wire, fault);
            assert!(matches!(asked.result, Err(ProviderError::TooLong(_))), "{asked:?}");
            assert_eq!(server.requests().len(), 1);
        }
        let (_server, asked) = ask_once(wire, ScriptedReply::status(413));
        assert!(matches!(asked.result, Err(ProviderError::TooLong(_))), "{asked:?}");
    }
}

#[test]
fn a_web_page_is_shown_in_short() {
    survived(|| ScriptedReply::html(502));
    fails_after(3, || ScriptedReply::html(502), "502 Bad Gateway");
    fails_after(1, || ScriptedReply::html(200), "check the base_url");
    let (_server, asked) = ask_once("openai", vec![ScriptedReply::html(502); 3]);
    assert!(asked.error().len() < 400, "{}", asked.error());
}

#[test]
fn broken_streams_are_retried() {
    survived(ScriptedReply::reset);
    survived(ScriptedReply::nothing);
    survived(|| ScriptedReply::says("half a sentence").cut_after(300));
    survived(|| ScriptedReply::says("half a sentence").reset_after(300));
    survived(|| ScriptedReply::says("x").thinks("y").cut_after(1));
    fails_after(3, ScriptedReply::nothing, "before the reply was complete");
    fails_after(3, ScriptedReply::reset, "broke off");
}

#[test]
fn a_stream_that_ends_inside_a_call_never_returns_that_call() {
    let args = serde_json::json!({"command": "rm -r build && make all install clean; ".repeat(50)});
    survived(move || ScriptedReply::call("shell", args.clone()).cut_after(900));
}

#[test]
fn errors_inside_the_stream_are_distinguished() {
    survived(|| ScriptedReply::says("partial ").error_event("overloaded_error", "Overloaded"));
    survived(|| ScriptedReply::new().error_event("rate_limit_error", "slow down"));
    survived(|| ScriptedReply::new().error_event("some_new_error", "what"));
    fails_after(3, || ScriptedReply::new().error_event("api_error", "we are down"), "we are down");
    fails_after(
        1,
        || ScriptedReply::new().error_event("invalid_request_error", "no such"),
        "no such",
    );
}

#[test]
fn silence_is_a_broken_stream() {
    for wire in WIRES {
        let after_words = if wire == "anthropic" { 650 } else { 340 };
        let half = ScriptedReply::says("a ").stall_after(after_words);
        let script = [ScriptedReply::stall(), half, ScriptedReply::says("a b")];
        let server = ModelServer::start(script);
        let provider = provider(&server, wire, "\n[agent]\ntimeout_seconds = 1\n");
        let asked = ask(provider.as_ref(), &user("go"));
        assert_eq!(asked.reply().message.full_text(), "a b", "{asked:?}");
        assert_eq!(asked.text, "a b");
        assert_eq!(asked.retries.len(), 2);
        assert!(asked.retries[0].0.contains("nothing came for 1 s"), "{asked:?}");
    }
}

#[test]
fn pings_reset_the_idle_timeout() {
    let ping = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
    let words = "data: {\"type\": \"content_block_start\", \"index\": 0, \"content_block\": \
                 {\"type\": \"text\", \"text\": \"slow\"}}\n\n\
                 data: {\"type\": \"message_delta\", \"delta\": {\"stop_reason\": \"end_turn\"}}\n\n\
                 data: {\"type\": \"message_stop\"}\n\n";
    let gate = testkit::model_server::gate::ReplyGate::new();
    let body = format!("{}{words}", ping.repeat(4));
    let server = ModelServer::start(ScriptedReply::raw(body).in_chunks_of(ping.len()).gate(&gate));
    let provider = provider(&server, "anthropic", "\n[agent]\ntimeout_seconds = 1\n");
    // Each ping arrives within the allowed second; all four together take longer.
    let opener = std::thread::spawn(move || {
        for ping in 1..=4 {
            gate.wait_until_reached(ping);
            let (_keep, never) = std::sync::mpsc::channel::<()>();
            let _ = never.recv_timeout(Duration::from_millis(400));
            gate.open();
        }
        gate.open_all();
    });
    let asked = ask(provider.as_ref(), &user("go"));
    opener.join().unwrap();
    assert_eq!(asked.reply().message.full_text(), "slow");
    assert!(asked.retries.is_empty() && asked.took > Duration::from_secs(1), "{asked:?}");
}

#[test]
fn text_streamed_before_a_retry_is_not_repeated() {
    for wire in WIRES {
        let half =
            ScriptedReply::says("Hello ").then_says("wor").error_event("overloaded_error", "x");
        let (_server, asked) = ask_once(wire, [half, ScriptedReply::says("Hello world")]);
        assert_eq!(asked.text, "Hello world");
        assert_eq!(asked.reply().message.full_text(), asked.text);

        let half = ScriptedReply::says("Hello wor").error_event("overloaded_error", "x");
        let (_server, asked) = ask_once(wire, [half, ScriptedReply::says("Good day")]);
        assert_eq!(asked.text, "Hello wor\nGood day");
    }
}

#[test]
fn invalid_utf8_and_a_line_of_eight_megabytes_are_read() {
    for wire in WIRES {
        let (server, asked) =
            ask_once(wire, ScriptedReply::says("a").invalid_utf8().then_says("b"));
        assert_eq!(asked.reply().message.full_text(), "a\u{fffd}b");
        assert_eq!(server.requests().len(), 1);

        let (_server, asked) = ask_once(wire, ScriptedReply::new().long_line(8 << 20));
        assert_eq!(asked.reply().message.full_text().len(), 8 << 20);
        assert_eq!(asked.text.len(), 8 << 20);
    }
}

#[test]
fn compressed_replies_and_single_byte_chunks_are_read() {
    for wire in WIRES {
        let said = || {
            ScriptedReply::says("Grüße ")
                .then_says("aus 東京")
                .calls("shell", serde_json::json!({}))
        };
        let (_server, whole) = ask_once(wire, said());
        for delivery in
            [said().gzip(), said().in_chunks_of(1), said().in_chunks_of(7), said().whole()]
        {
            let (_server, asked) = ask_once(wire, delivery);
            assert_eq!(asked.reply(), whole.reply());
            assert_eq!(asked.text, "Grüße aus 東京");
        }
    }
}

#[test]
fn a_redirect_is_rejected_and_carries_no_key() {
    for wire in WIRES {
        let other = ModelServer::start(ScriptedReply::says("stolen"));
        let (server, asked) =
            ask_once(wire, ScriptedReply::redirect(&format!("{}/v1/messages", other.url())));
        assert!(asked.error().contains("redirect"), "{}", asked.error());
        assert_eq!((server.requests().len(), other.requests().len()), (1, 0));
    }
}

#[test]
fn an_unreachable_server_is_named() {
    for wire in WIRES {
        let server = ModelServer::start(Script::new([]));
        let url = server.url().replace("http://", "");
        let provider = provider(&server, wire, "");
        drop(server);
        testkit::env::until("the port is closed", || {
            std::net::TcpStream::connect(&url).is_err().then_some(())
        });
        let asked = ask(provider.as_ref(), &user("go"));
        let said = format!("cannot reach {url}: ");
        assert!(asked.error().starts_with(&said), "{}", asked.error());
        assert_eq!(asked.retries.len(), 2);
        assert!(asked.retries[0].0.starts_with(&said), "{:?}", asked.retries);
    }
}

#[test]
fn truncated_or_invalid_arguments_are_kept_as_text() {
    for wire in WIRES {
        let broken = r#"{"command": "ls"#;
        let reply = ScriptedReply::new()
            .calls_raw("shell", broken)
            .calls("read_file", serde_json::json!({"a": 1}));
        let (_server, asked) = ask_once(wire, reply);
        let calls: Vec<_> = asked.reply().message.calls().collect();
        assert_eq!(calls[0].malformed.as_deref(), Some(broken));
        assert_eq!((calls[1].malformed.as_deref(), &calls[1].args["a"]), (None, &1.into()));
        assert_eq!(asked.reply().stop, StopReason::Calls);

        let (_server, asked) = ask_once(wire, ScriptedReply::new().calls_raw("shell", ""));
        assert_eq!(asked.reply().message.calls().next().unwrap().args, serde_json::json!({}));

        let stop = match wire {
            "anthropic" => "max_tokens",
            "responses" => "max_output_tokens",
            "gemini" => "MAX_TOKENS",
            _ => "length",
        };
        let (_server, asked) =
            ask_once(wire, ScriptedReply::new().calls_raw("shell", broken).stops(stop));
        assert_eq!(asked.reply().stop, StopReason::Length);
        assert!(asked.reply().message.calls().next().unwrap().malformed.is_some());
    }
}

#[test]
fn a_server_that_wants_responses_is_answered_with_the_setting() {
    let message = "Function tools with reasoning_effort are not supported for gpt-5.6 in \
                   /v1/chat/completions. To use function tools, use /v1/responses or set \
                   reasoning_effort to 'none'.";
    let body = serde_json::json!({"error": {"message": message, "type": "invalid_request_error"}});
    let refusal = ScriptedReply::status(400).body("application/json", body.to_string());
    let (_server, asked) = ask_once("openai", refusal);
    let error = asked.error();
    assert!(error.contains("set `wire = \"responses\"` for `openai.scripted`"), "{error}");
}

#[test]
fn a_rejected_parameter_is_omitted() {
    let refuses = |key: &str| {
        let message = format!("Unsupported parameter: '{key}' is not supported with this model.");
        let body =
            serde_json::json!({"error": {"message": message, "type": "invalid_request_error"}});
        ScriptedReply::status(400).body("application/json", body.to_string())
    };
    let script = [
        refuses("stream_options"),
        refuses("max_tokens"),
        ScriptedReply::says("a"),
        ScriptedReply::says("b"),
    ];
    let server = ModelServer::start(script);
    let provider = provider(&server, "openai", "");
    for _ in 0..2 {
        ask(provider.as_ref(), &user("go")).reply();
    }
    let bodies: Vec<_> = server.requests().into_iter().map(|request| request.body).collect();
    let keys = |at: usize| {
        ["stream_options", "max_tokens", "max_completion_tokens"]
            .map(|key| !bodies[at][key].is_null())
    };
    assert_eq!(keys(0), [true, true, false]);
    assert_eq!(keys(1), [false, true, false]);
    assert_eq!(keys(2), [false, false, true]);
    assert_eq!(keys(3), keys(2), "what was learnt is kept");

    let server = ModelServer::start(vec![refuses("stream_options"); 4]);
    let asked = ask(self::provider(&server, "openai", "").as_ref(), &user("go"));
    assert!(asked.error().contains("Unsupported parameter"), "{}", asked.error());
    assert_eq!(server.requests().len(), 2);
}
