//! The matrix: every hosted provider over real HTTP in every situation. The local model is tested
//! in `provider_embedded`.

use provider::message::{ContentPart, Image, Message, MessageRole, StopReason, ToolResult};
use provider::{Provider, ProviderError};
use serde_json::{Value, json};
use testkit::env::until;
use testkit::model_server::ModelServer;
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;

use crate::provider_support::{RequestResult, WIRES, ask, ask_async, provider, runtime, user};

/// A column: what the server sends, and the expected result.
struct Case {
    name: &'static str,
    script: fn(&str) -> Vec<ScriptedReply>,
    check: fn(&str, &ModelServer, &dyn Provider, &RequestResult),
}

const CASES: &[Case] = &[
    Case { name: "text", script: |_| vec![words()], check: text },
    Case { name: "one call", script: |_| vec![one_call()], check: call },
    Case { name: "parallel calls", script: |_| vec![two_calls(), words()], check: parallel },
    Case { name: "reasoning", script: |_| vec![thought(), words()], check: reasoning },
    Case { name: "image", script: |_| vec![one_call(), words()], check: image },
    Case { name: "refused", script: |_| vec![ScriptedReply::status(400), words()], check: refused },
    Case { name: "failing", script: |_| vec![ScriptedReply::status(500); 3], check: failing },
    Case { name: "in the stream", script: |_| vec![broken(), words()], check: survived },
    Case { name: "cut off", script: |_| vec![words().cut_after(200), words()], check: survived },
    Case { name: "out of room", script: |wire| vec![half(wire)], check: out_of_room },
];

#[test]
fn every_provider_in_every_situation() {
    for wire in WIRES {
        for case in CASES {
            println!("{wire}: {}", case.name);
            let server = ModelServer::start((case.script)(wire));
            let provider = provider(&server, wire, "");
            let asked = ask(provider.as_ref(), &user("go"));
            (case.check)(wire, &server, provider.as_ref(), &asked);
        }
    }
}

fn words() -> ScriptedReply {
    ScriptedReply::says("Hello ").then_says("wörld").usage(70, 7)
}

fn one_call() -> ScriptedReply {
    ScriptedReply::says("I look.").calls("shell", json!({"command": "ls ü"}))
}

fn two_calls() -> ScriptedReply {
    one_call().calls("read_file", json!({"file_path": "a"}))
}

fn thought() -> ScriptedReply {
    ScriptedReply::new().thinks("first the date").calls("shell", json!({"command": "date"}))
}

fn broken() -> ScriptedReply {
    ScriptedReply::says("Hel").error_event("api_error", "we are down")
}

/// Returns a call that the output limit truncates within its arguments.
fn half(wire: &str) -> ScriptedReply {
    let stop = match wire {
        "anthropic" => "max_tokens",
        "responses" => "max_output_tokens",
        "gemini" => "MAX_TOKENS",
        _ => "length",
    };
    ScriptedReply::new().calls_raw("shell", "{\"command\": \"ec").stops(stop)
}

fn text(wire: &str, server: &ModelServer, _: &dyn Provider, asked: &RequestResult) {
    let reply = asked.reply();
    assert_eq!(
        (reply.message.full_text().as_str(), reply.stop),
        ("Hello wörld", StopReason::Done),
        "{wire}"
    );
    assert_eq!(asked.text, "Hello wörld");
    assert_eq!((reply.usage.input, reply.usage.output), (70, 7), "{wire}");
    let sent = &server.requests()[0];
    assert_eq!((sent.system().as_str(), sent.last().as_str()), ("You are terse.", "go"), "{wire}");
    assert_eq!(sent.tool_names(), ["read_file", "shell"]);
}

fn call(wire: &str, _: &ModelServer, _: &dyn Provider, asked: &RequestResult) {
    let reply = asked.reply();
    assert_eq!(
        (reply.message.full_text().as_str(), reply.stop),
        ("I look.", StopReason::Calls),
        "{wire}"
    );
    let calls: Vec<_> = reply.message.calls().collect();
    assert_eq!((calls.len(), calls[0].name.as_str()), (1, "shell"));
    assert_eq!(calls[0].args, json!({"command": "ls ü"}), "{wire}");
    assert!(!calls[0].id.is_empty() && calls[0].malformed.is_none());
}

/// Returns the results of all calls of a reply, each with these images.
fn results(asked: &RequestResult, images: &[Image]) -> Message {
    let calls = asked.reply().message.calls();
    let result = |call: &provider::message::ToolCall| {
        ContentPart::Result(ToolResult {
            call_id: call.id.clone(),
            name: call.name.clone(),
            ok: true,
            text: format!("result of {}", call.name),
            images: images.to_vec(),
            not_run: false,
        })
    };
    Message { role: MessageRole::User, parts: calls.map(result).collect() }
}

fn parallel(wire: &str, server: &ModelServer, provider: &dyn Provider, asked: &RequestResult) {
    let calls: Vec<_> = asked.reply().message.calls().collect();
    assert_eq!((calls[0].name.as_str(), calls[1].name.as_str()), ("shell", "read_file"), "{wire}");
    assert_ne!(calls[0].id, calls[1].id);
    let messages = [user("go"), vec![asked.reply().message.clone(), results(asked, &[])]].concat();
    ask(provider, &messages).reply();
    let sent: Vec<String> =
        server.requests()[1].tool_results().into_iter().map(|(_, text)| text).collect();
    assert_eq!(sent, ["result of shell", "result of read_file"], "{wire}");
}

fn reasoning(wire: &str, server: &ModelServer, provider: &dyn Provider, asked: &RequestResult) {
    assert_eq!((asked.reasoning.as_str(), asked.text.as_str()), ("first the date", ""), "{wire}");
    let messages = [user("go"), vec![asked.reply().message.clone(), results(asked, &[])]].concat();
    ask(provider, &messages).reply();
    let seal = if wire == "openai" { "first the date" } else { "signature-1" };
    assert!(server.requests()[1].body.to_string().contains(seal), "{wire}");
}

/// Returns where each wire format has the user's image and a result's image.
fn places(wire: &str) -> [&'static str; 2] {
    match wire {
        "anthropic" => {
            ["/messages/0/content/1/source/data", "/messages/2/content/0/content/1/source/data"]
        }
        "responses" => ["/input/0/content/1/image_url", "/input/3/output/1/image_url"],
        "gemini" => ["/contents/0/parts/1/inlineData/data", "/contents/2/parts/1/inlineData/data"],
        _ => ["/messages/1/content/1/image_url/url", "/messages/4/content/1/image_url/url"],
    }
}

fn image(wire: &str, server: &ModelServer, provider: &dyn Provider, asked: &RequestResult) {
    let picture = |data: &str| Image { media_type: "image/png".into(), data: data.into() };
    let shown = Message {
        role: MessageRole::User,
        parts: vec![
            ContentPart::Text { text: "look".into() },
            ContentPart::Image(picture("dXNlcg==")),
        ],
    };
    let results = results(asked, &[picture("dG9vbA==")]);
    ask(provider, &[shown, asked.reply().message.clone(), results]).reply();
    let body = &server.requests()[1].body;
    for (place, data) in places(wire).into_iter().zip(["dXNlcg==", "dG9vbA=="]) {
        let found = body.pointer(place).and_then(Value::as_str).unwrap_or_default();
        assert!(found.ends_with(data), "{wire}: no {data} at {place}: {body:#}");
        assert!(!found.contains("http"), "a picture is sent, not its address");
    }
}

fn refused(wire: &str, server: &ModelServer, _: &dyn Provider, asked: &RequestResult) {
    assert!(matches!(asked.result, Err(ProviderError::Rejected(_))), "{wire}: {asked:?}");
    assert_eq!(server.requests().len(), 1, "{wire}");
}

fn failing(wire: &str, server: &ModelServer, _: &dyn Provider, asked: &RequestResult) {
    assert!(matches!(asked.result, Err(ProviderError::Overloaded(_))), "{wire}: {asked:?}");
    assert_eq!((server.requests().len(), asked.retries.len()), (3, 2), "{wire}");
}

fn survived(wire: &str, server: &ModelServer, _: &dyn Provider, asked: &RequestResult) {
    assert_eq!(asked.reply().message.full_text(), "Hello wörld", "{wire}");
    assert_eq!((server.requests().len(), asked.retries.len()), (2, 1), "{wire}");
    assert_eq!(asked.text, "Hello wörld", "{wire}: words are heard once");
}

fn out_of_room(wire: &str, server: &ModelServer, _: &dyn Provider, asked: &RequestResult) {
    assert_eq!(asked.reply().stop, StopReason::Length, "{wire}");
    assert!(asked.reply().message.calls().all(|call| call.malformed.is_some()), "{wire}");
    assert_eq!(server.requests().len(), 1, "{wire}: asking again would not help");
}

#[test]
fn a_cancelled_request_closes_its_connection_and_the_next_one_succeeds() {
    for wire in WIRES {
        let gate = ReplyGate::new();
        let long =
            (0..200).fold(ScriptedReply::new(), |reply, _| reply.then_says("x".repeat(4000)));
        let server = ModelServer::start([long.gate(&gate), words()]);
        let provider = provider(&server, wire, "");
        let messages = user("go");
        let watch = gate.clone();
        runtime().block_on(async {
            let reached = tokio::task::spawn_blocking(move || {
                watch.open();
                watch.wait_until_reached(2);
            });
            tokio::select! {
                asked = ask_async(provider.as_ref(), &messages) => panic!("{wire}: {asked:?}"),
                reached = reached => reached.unwrap(),
            }
        });
        gate.open_all();
        until("the server notices the closed connection", || (server.hangups() == 1).then_some(()));
        assert_eq!(
            ask(provider.as_ref(), &user("again")).reply().message.full_text(),
            "Hello wörld"
        );
    }
}
