//! The provider against a host that plays a script over a real socket.

use std::io::Write;
use std::os::unix::net::UnixStream;

use base::host::connection::lines;
use base::host::wire::{Ask, Asked, Told};
use serde_json::json;

use super::*;
use crate::message::ToolResult;
use crate::provider::ToolSpec;

/// A provider whose host answers every chat with the script; gives the chats it was asked.
fn provider(script: Vec<Tell>) -> (Embedded, std::sync::mpsc::Receiver<Chat>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (send, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut writer = theirs.try_clone().unwrap();
        for line in lines::<Asked>(theirs) {
            let Asked { id, what: Ask::Chat(chat) } = line.unwrap() else { continue };
            send.send(chat).unwrap();
            for what in script.clone() {
                let told = serde_json::to_string(&Told { id, what }).unwrap();
                writeln!(writer, "{told}").unwrap();
            }
            if script.is_empty() {
                return; // a host that dies
            }
        }
    });
    let hello = Hello { version: 1, model: "m".into(), parameters: 1, context: 4096, pid: 1 };
    let config = EmbeddedConfig::default();
    let facts = facts(&hello, &config, "embedded.default", "m".into());
    let host = Host::over(None, Connection::new(ours).unwrap());
    (Embedded { facts, temperature: 0.0, host }, asked)
}

async fn ask(provider: &Embedded, messages: &[Message]) -> (Result<Reply, ProviderError>, String) {
    let parameters = json!({"type": "object"});
    let tools = [ToolSpec { name: "shell".into(), description: "Runs.".into(), parameters }];
    let request = Request { system: "s", messages, tools: &tools, max_output: 9, session: "sid" };
    let mut heard = String::new();
    let mut hear = |delta: Delta<'_>| {
        if let Delta::Text(text) = delta {
            heard.push_str(text);
        }
    };
    let reply = provider.ask(&request, &mut hear).await;
    (reply, heard)
}

fn done(stop: wire::Stop) -> Tell {
    let usage = wire::Usage { prefilled: 5, reused: 7, written: 3, ..wire::Usage::default() };
    Tell::Done { stop, usage }
}

#[tokio::test]
async fn words_calls_and_costs_arrive() {
    let text = |text: &str| Tell::Text { text: text.into() };
    let args = json!({"command": "ls"});
    let call = Tell::Call { name: "shell".into(), args, truncated_at_cap: false };
    let (provider, _asked) =
        provider(vec![text("I "), text("look"), call, done(wire::Stop::Calls)]);
    let (reply, heard) = ask(&provider, &[Message::text(Role::User, "hi")]).await;
    let reply = reply.unwrap();
    assert_eq!((heard.as_str(), reply.message.words().as_str()), ("I look", "I look"));
    assert_eq!((reply.stop, reply.usage.input, reply.usage.cache_read), (Stop::Calls, 5, 7));
    assert_eq!(reply.message.calls().next().unwrap().args["command"], "ls");
    assert!(provider.facts().small);
}

#[tokio::test]
async fn a_call_that_the_limit_cut_is_malformed_and_kept_short() {
    let args = json!({"path": "a", "content": "x".repeat(5000)});
    let call = Tell::Call { name: "write_file".into(), args, truncated_at_cap: true };
    let (provider, asked) = provider(vec![call, done(wire::Stop::Length)]);
    let question = Message::text(Role::User, "write");
    let (reply, _) = ask(&provider, std::slice::from_ref(&question)).await;
    let reply = reply.unwrap();
    assert_eq!(reply.stop, Stop::Length);
    let call = reply.message.calls().next().unwrap().clone();
    assert!(call.malformed.is_some());
    let result = Part::Result(ToolResult {
        call_id: call.id,
        name: call.name,
        ok: false,
        text: "not run".into(),
        images: Vec::new(),
    });
    let result = Message { role: Role::User, parts: vec![result] };
    let _ = ask(&provider, &[question, reply.message, result]).await;
    let chat = asked.iter().nth(1).unwrap();
    assert_eq!(chat.conversation, "sid");
    let Turn::Assistant { calls, .. } = &chat.messages[1] else { panic!("{chat:?}") };
    assert_eq!(calls[0].args["content"].as_str().unwrap().len(), KEPT_OF_CUT);
    let Turn::Result { name, text } = &chat.messages[2] else { panic!("{chat:?}") };
    assert!(name == "write_file" && text.starts_with("not run\n\nThat failed."), "{text}");
}

#[tokio::test]
async fn a_host_that_dies_is_a_broken_reply_and_a_refusal_says_what_to_try() {
    let (dying, _asked) = provider(Vec::new());
    let (reply, _) = ask(&dying, &[Message::text(Role::User, "hi")]).await;
    assert!(matches!(reply, Err(ProviderError::Broken(_))));
    let mut fault = Fault::new(FaultKind::Rejected, "too little memory");
    fault.next.push("close other programs".into());
    let (refusing, _asked) = provider(vec![Tell::Error(fault)]);
    let (reply, _) = ask(&refusing, &[Message::text(Role::User, "hi")]).await;
    let failure = reply.unwrap_err().failure();
    assert_eq!(failure.next, ["close other programs"]);
}
