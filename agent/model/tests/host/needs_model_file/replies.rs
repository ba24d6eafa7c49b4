//! Tests of replies: their form, and what is read again.

use std::path::PathBuf;

use base::model_host::connection::ResponseStream;
use base::model_host::wire::{
    HostChat, HostMessage, HostRequest, HostResponse, HostStopReason, ToolCallMode,
};
use serde_json::Value;
use testkit::env::{TestEnv, until};

use crate::{Host, chat, hear, then, tools};

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn a_second_turn_reads_only_new_tokens_and_a_new_host_loads_the_prefix() {
    let env = TestEnv::new();
    let host = Host::start(&env, &[]);
    let first = chat("one", "Say yes.");
    let heard = host.hear(first.clone());
    assert_eq!((heard.usage.reused, heard.usage.prefilled), (0, heard.usage.prompt));
    let second = host.hear(then(first, &heard, "Say no."));
    let usage = second.usage;
    assert!(usage.reused >= heard.usage.prompt, "{usage:?}");
    assert!(usage.prefilled < 30, "{usage:?}");
    let other = host.hear(chat("two", "Say maybe."));
    assert!(other.usage.prefilled < 20, "another conversation shares it: {:?}", other.usage);
    drop(host);
    let again = Host::start(&env, &[]);
    let heard = again.hear(chat("three", "Say yes."));
    assert!(heard.usage.prefilled < 20, "it was on disk: {:?}", heard.usage);
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn conversations_that_do_not_fit_are_spilled_to_disk_and_restored() {
    let env = TestEnv::new();
    // Memory for only one conversation.
    let host = Host::start(&env, &["--memory", "1", "--context", "512"]);
    let ask = |name: &str| {
        let mut chat = chat(name, &format!("{name}: say yes."));
        // Space is reserved for a reply of this length, which is too much for two conversations.
        chat.max_tokens = 350;
        chat
    };
    let first = host.hear(ask("first"));
    host.hear(ask("second"));
    assert_eq!(host.status().on_disk, 1);
    let back = host.hear(then(ask("first"), &first, "Say no."));
    assert!(back.usage.reused >= first.usage.prompt, "{:?}", back.usage);
    let mut long = chat("long", &"alpha beta gamma delta ".repeat(150));
    long.max_tokens = 10;
    let fault = match host.connection.chat(long).wait() {
        HostResponse::Error(fault) => fault,
        other => panic!("{other:?}"),
    };
    assert_eq!(fault.kind, base::model_host::wire::HostFaultKind::TooLong);
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn a_waiting_chat_evicts_nothing_and_is_not_overtaken() {
    let env = TestEnv::new();
    // Space for 512 tokens.
    let host = Host::start(&env, &["--memory", "1", "--context", "512"]);
    let ask = |name: &str, text: &str, max_tokens: u32| HostChat { max_tokens, ..chat(name, text) };
    host.hear(ask("idle", "Say yes.", 10));
    let mut long = host.connection.chat(ask("long", "Count from one to ninety in words.", 200));
    while !matches!(long.wait(), HostResponse::Text { .. }) {}
    assert_eq!(host.status().on_disk, 0, "both fit");
    let mut large = host.connection.chat(ask("large", "Say no.", 350));
    // It would fit together with the long one, but not with the large one.
    let mut small = host.connection.chat(ask("small", "Say maybe.", 10));
    host.status(); // answered before both chats are admitted, the next status after that
    assert_eq!(host.status().on_disk, 0, "spilled for a chat that cannot be seated");
    drop(long);
    let first = |answers: &mut ResponseStream| {
        while !matches!(answers.wait(), HostResponse::Text { .. }) {}
        std::time::Instant::now()
    };
    let (large, small) = std::thread::scope(|scope| {
        let large = scope.spawn(|| first(&mut large));
        let small = scope.spawn(|| first(&mut small));
        (large.join().unwrap(), small.join().unwrap())
    });
    assert!(large < small, "the small one overtook the large one");
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn a_waiting_chat_can_be_cancelled() {
    let env = TestEnv::new();
    let host = Host::start(&env, &["--parallel", "1"]);
    let other = host.connect();
    let long = HostChat { max_tokens: 1000, ..chat("long", "Count from one to ninety in words.") };
    let mut long = host.connection.chat(long);
    while !matches!(long.wait(), HostResponse::Text { .. }) {}
    let mut waits = other.chat(chat("waits", "Say yes."));
    other.ask(HostRequest::Cancel { chat: 1 });
    let ended = waits.wait();
    assert!(
        matches!(ended, HostResponse::Done { stop: HostStopReason::Cancelled, .. }),
        "{ended:?}"
    );
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn a_conversation_that_cannot_be_spilled_is_dropped_and_leaves_no_file() {
    let env = TestEnv::new();
    let host = Host::start(&env, &["--memory", "1", "--context", "512"]);
    let spill = env.home().join(format!(".g3/cache/kv/spill-{}", host.running.id()));
    until("the model is loaded", || host.status().loaded.then_some(()));
    // A full disk, wherever it spills.
    let full = (0..5).flat_map(|used_at| (0..12).map(move |seq| (used_at, seq)));
    let full = full.map(|(used_at, seq)| spill.join(format!("{used_at}-{seq}.kv")));
    let full: Vec<PathBuf> = full.collect();
    for path in &full {
        std::os::unix::fs::symlink("/dev/full", path).unwrap();
    }
    for name in ["first", "second"] {
        host.hear(HostChat { max_tokens: 350, ..chat(name, "Say yes.") });
    }
    assert_eq!(host.status().on_disk, 0);
    assert_eq!(full.iter().filter(|path| !path.is_symlink()).count(), 1);
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn two_conversations_in_one_batch_do_not_mix() {
    let env = TestEnv::new();
    let host = Host::start(&env, &[]);
    let other = host.connect();
    let alone = |text: &str| hear(&host.connect(), chat("alone", text)).text;
    let (cats, dogs) = ("Write the word cat six times.", "Write the word dog six times.");
    let wanted = (alone(cats), alone(dogs));
    let heard = std::thread::scope(|scope| {
        // The same name on two connections means two conversations.
        let one = scope.spawn(|| host.hear(chat("same", cats)).text);
        let two = scope.spawn(|| hear(&other, chat("same", dogs)).text);
        (one.join().unwrap(), two.join().unwrap())
    });
    assert!(heard.0.contains("cat") && !heard.0.contains("dog"), "{heard:?} {wanted:?}");
    assert!(heard.1.contains("dog") && !heard.1.contains("cat"), "{heard:?} {wanted:?}");
}

/// Whether the arguments conform to the schemas of [`tools`].
fn fits(name: &str, args: &Value) -> bool {
    let Some(args) = args.as_object() else { return false };
    let text = |key: &str| args.get(key).is_some_and(Value::is_string);
    let known = |keys: &[&str]| args.keys().all(|key| keys.contains(&key.as_str()));
    match name {
        "write_file" => known(&["path", "content"]) && text("path") && text("content"),
        "search" => {
            let case = args["case"].as_str().unwrap_or_default();
            let limit = args.get("limit").is_none_or(|n| n.as_u64().is_some_and(|n| n >= 1));
            let paths = args.get("paths").is_none_or(Value::is_array);
            text("pattern") && ["smart", "exact"].contains(&case) && limit && paths
        }
        _ => false,
    }
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn an_envelope_always_conforms_to_its_schema() {
    let env = TestEnv::new();
    let host = Host::start(&env, &[]);
    let mut whole = 0;
    for seed in 1..=3 {
        let mut ask = chat(&format!("c{seed}"), "Search all files for a nice word, or write one.");
        ask.tools = tools();
        ask.max_tokens = 60;
        ask.temperature = 1.8;
        ask.seed = seed * 7919;
        let heard = host.hear(ask);
        for (name, args, cut) in &heard.calls {
            assert!(*cut || fits(name, args), "{name} {args}");
            assert!(!cut || heard.stop == Some(HostStopReason::Length));
        }
        assert!(heard.calls.len() == 1 || !heard.text.is_empty(), "{heard:?}");
        whole += heard.calls.iter().filter(|(_, _, cut)| !cut).count();
    }
    assert!(whole > 0, "all calls were cut off, so nothing was checked");
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn a_call_truncated_in_a_string_is_marked_and_valid_json() {
    let env = TestEnv::new();
    let host = Host::start(&env, &[]);
    let mut ask = chat("c", "Write the file poem.txt with a poem of twenty lines about the sea.");
    ask.tools = tools();
    ask.max_tokens = 70;
    let heard = host.hear(ask);
    let [(name, args, true)] = heard.calls.as_slice() else { panic!("{heard:?}") };
    assert_eq!((name.as_str(), heard.stop), ("write_file", Some(HostStopReason::Length)));
    assert!(args["content"].is_string(), "{args}");
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn a_large_model_writes_free_text_and_its_calls_conform() {
    let env = TestEnv::new();
    let host = Host::start(&env, &[]);
    let mut ask = chat("c", "");
    ask.tools = tools();
    ask.mode = ToolCallMode::Lazy;
    ask.max_tokens = 60;
    // The requested call does not conform: there is no `file`, and `content` is missing.
    ask.messages = vec![HostMessage::User {
        text: "Write `<`, then `tool_call`, then `>`, a new line, then \
               {\"name\": \"write_file\", \"arguments\": {\"file\": \"a.txt\"}}."
            .into(),
    }];
    let heard = host.hear(ask);
    let [(name, args, false)] = heard.calls.as_slice() else { panic!("{heard:?}") };
    assert!(fits(name, args), "{name} {args}");
    println!("{heard:?}");
}
