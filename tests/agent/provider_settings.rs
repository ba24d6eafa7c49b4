//! Tests that settings reach each wire format, and that unset ones are not sent.

use std::time::Instant;

use provider::ProviderError;
use serde_json::{Value, json};
use testkit::env::until;
use testkit::model_server::ModelServer;
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;

use crate::provider_support::{WIRES, ask, ask_once, provider, user};

/// Returns the path of the temperature in each wire format.
fn temperature(wire: &str) -> &'static str {
    if wire == "gemini" { "/generationConfig/temperature" } else { "/temperature" }
}

#[test]
fn a_temperature_is_sent_only_if_set() {
    for wire in WIRES {
        let server = ModelServer::start([ScriptedReply::says("a"), ScriptedReply::says("b")]);
        ask(provider(&server, wire, "").as_ref(), &user("go")).reply();
        ask(provider(&server, wire, "temperature = 0.25\n").as_ref(), &user("go")).reply();
        let sent: Vec<Option<Value>> = server
            .requests()
            .iter()
            .map(|request| request.body.pointer(temperature(wire)).cloned())
            .collect();
        // This small request leaves no space for a budget, so the model does not think.
        assert_eq!(sent, [None, Some(json!(0.25))], "{wire}");
    }
}

#[test]
fn the_output_limit_is_not_the_context_window() {
    for wire in WIRES {
        let server = ModelServer::start([]);
        let provider = provider(&server, wire, "max_tokens = 4321\ncontext_length = 64000\n");
        assert_eq!(provider.facts().max_output, 4321, "{wire}");
        assert_eq!(provider.facts().context, 64_000, "{wire}");
    }
}

#[test]
fn numbers_and_words_in_an_error_message_do_not_change_its_kind() {
    for wire in WIRES {
        for words in ["max 500 items at capacity", "field `timeout`: 429 is too large"] {
            let body = json!({"error": {"type": "invalid_request_error", "message": words}});
            let refusal = ScriptedReply::status(400).body("application/json", body.to_string());
            let (server, asked) = ask_once(wire, [refusal, ScriptedReply::says("no")]);
            assert!(matches!(asked.result, Err(ProviderError::Rejected(_))), "{wire}: {asked:?}");
            assert_eq!(server.requests().len(), 1);
        }
    }
}

#[test]
fn a_key_is_never_part_of_a_url() {
    for wire in WIRES {
        let (server, asked) = ask_once(wire, ScriptedReply::status(404));
        assert!(!server.requests()[0].path.contains("test-key"), "{wire}");
        assert!(!asked.error().contains("test-key"), "{wire}");
    }
}

#[test]
fn the_reasoning_effort_is_sent_in_each_wire_format() {
    let server = ModelServer::start(["a", "b", "c"].map(ScriptedReply::says));
    let more = "reasoning_effort = \"low\"\n";
    for wire in ["openai", "responses", "anthropic"] {
        ask(provider(&server, wire, more).as_ref(), &user("go")).reply();
    }
    let asked = server.requests();
    assert_eq!(asked[0].body["reasoning_effort"], "low");
    assert_eq!(asked[1].body["reasoning"], json!({"effort": "low"}));
    assert_eq!(asked[2].body["output_config"], json!({"effort": "low"}));
}

#[test]
fn a_reply_longer_than_the_idle_timeout_is_read_to_its_end() {
    for wire in WIRES {
        let gate = ReplyGate::new();
        let reply = (0..6).fold(ScriptedReply::new(), |reply, n| reply.then_says(format!("{n} ")));
        let server = ModelServer::start(reply.gate(&gate));
        let provider = provider(&server, wire, "\n[agent]\ntimeout_seconds = 1\n");
        // Each piece arrives well within a second; all of them together take longer.
        let opener = std::thread::spawn(move || {
            for piece in 1..=7 {
                gate.wait_until_reached(piece);
                // The time itself is tested.
                let since = Instant::now();
                until("a moment", || (since.elapsed().as_millis() > 200).then_some(()));
                gate.open();
            }
        });
        let asked = ask(provider.as_ref(), &user("go"));
        assert_eq!(asked.reply().message.full_text(), "0 1 2 3 4 5 ", "{wire}");
        assert!(asked.took.as_millis() > 1000 && asked.retries.is_empty(), "{asked:?}");
        opener.join().unwrap();
    }
}
