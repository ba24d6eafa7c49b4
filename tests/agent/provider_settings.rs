//! What the configuration says reaches each wire; what it does not say is not made up.

use std::time::Instant;

use provider::ProviderError;
use serde_json::{Value, json};
use testkit::env::until;
use testkit::model_server::ModelServer;
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;

use crate::provider_support::{WIRES, ask, ask_once, provider, user};

/// Where each wire has the temperature.
fn temperature(wire: &str) -> &'static str {
    if wire == "gemini" { "/generationConfig/temperature" } else { "/temperature" }
}

#[test]
fn a_temperature_is_sent_where_one_is_set_and_nowhere_else() {
    for wire in WIRES {
        let server = ModelServer::start([ScriptedReply::says("a"), ScriptedReply::says("b")]);
        ask(provider(&server, wire, "").as_ref(), &user("go")).reply();
        ask(provider(&server, wire, "temperature = 0.25\n").as_ref(), &user("go")).reply();
        let sent: Vec<Option<Value>> = server
            .requests()
            .iter()
            .map(|request| request.body.pointer(temperature(wire)).cloned())
            .collect();
        // This small question leaves a budget no room, so the model does not think.
        assert_eq!(sent, [None, Some(json!(0.25))], "{wire}");
    }
}

#[test]
fn the_limit_of_a_reply_is_no_context_window() {
    for wire in WIRES {
        let server = ModelServer::start([]);
        let provider = provider(&server, wire, "max_tokens = 4321\ncontext_length = 64000\n");
        assert_eq!(provider.facts().max_output, 4321, "{wire}");
        assert_eq!(provider.facts().context, 64_000, "{wire}");
    }
}

#[test]
fn numbers_and_words_in_a_refusal_do_not_make_it_another_one() {
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
fn a_key_is_never_part_of_an_address() {
    for wire in WIRES {
        let (server, asked) = ask_once(wire, ScriptedReply::status(404));
        assert!(!server.requests()[0].path.contains("test-key"), "{wire}");
        assert!(!asked.error().contains("test-key"), "{wire}");
    }
}

#[test]
fn how_much_a_model_thinks_is_said_in_the_words_of_its_wire() {
    let server = ModelServer::start([ScriptedReply::says("a"), ScriptedReply::says("b")]);
    let more = "reasoning_effort = \"low\"\n";
    ask(provider(&server, "openai", more).as_ref(), &user("go")).reply();
    ask(provider(&server, "responses", more).as_ref(), &user("go")).reply();
    let asked = server.requests();
    assert_eq!(asked[0].body["reasoning_effort"], "low");
    assert_eq!(asked[1].body["reasoning"], json!({"effort": "low"}));
}

#[test]
fn a_reply_that_is_longer_than_the_silence_that_is_allowed_is_heard_to_its_end() {
    for wire in WIRES {
        let gate = ReplyGate::new();
        let reply = (0..6).fold(ScriptedReply::new(), |reply, n| reply.then_says(format!("{n} ")));
        let server = ModelServer::start(reply.gate(&gate));
        let provider = provider(&server, wire, "\n[agent]\ntimeout_seconds = 1\n");
        // Each piece comes well within a second, all of them take longer.
        let opener = std::thread::spawn(move || {
            for piece in 1..=7 {
                gate.wait_until_reached(piece);
                // The time itself is what is tested.
                let since = Instant::now();
                until("a moment", || (since.elapsed().as_millis() > 200).then_some(()));
                gate.open();
            }
        });
        let asked = ask(provider.as_ref(), &user("go"));
        assert_eq!(asked.reply().message.words(), "0 1 2 3 4 5 ", "{wire}");
        assert!(asked.took.as_millis() > 1000 && asked.retries.is_empty(), "{asked:?}");
        opener.join().unwrap();
    }
}
