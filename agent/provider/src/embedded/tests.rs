//! Tests the provider against a scripted host on a real socket.

use std::io::Write;
use std::os::unix::net::UnixStream;

use base::model_host::connection::lines;
use base::model_host::wire::{HostRequest, HostRequestLine, HostResponseLine};
use serde_json::json;

use super::*;
use crate::message::{NotePurpose, ToolResult};
use crate::provider::ToolDefinition;

/// Creates a provider whose host answers every chat with the script, and a channel of the chats
/// that the host received.
fn provider(script: Vec<HostResponse>) -> (EmbeddedProvider, std::sync::mpsc::Receiver<HostChat>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (send, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut writer = theirs.try_clone().unwrap();
        for line in lines::<HostRequestLine>(theirs) {
            let HostRequestLine { id, what: HostRequest::Chat(chat) } = line.unwrap() else {
                continue;
            };
            send.send(chat).unwrap();
            for what in script.clone() {
                let told = serde_json::to_string(&HostResponseLine { id, what }).unwrap();
                writeln!(writer, "{told}").unwrap();
            }
            if script.is_empty() {
                return; // simulates a host that dies
            }
        }
    });
    let hello = Hello {
        version: 1,
        model: "m".into(),
        parameters: 1,
        context: 4096,
        pid: 1,
        embedder: None,
    };
    let config = EmbeddedConfig::default();
    let facts = facts(&hello, &config, "embedded.default", "m".into());
    let host = Host::new(None, Connection::new(ours).unwrap());
    (EmbeddedProvider { facts, temperature: 0.0, host }, asked)
}

async fn ask(
    provider: &EmbeddedProvider,
    messages: &[Message],
) -> (Result<Reply, ProviderError>, String) {
    let parameters = json!({"type": "object"});
    let tools = [ToolDefinition { name: "shell".into(), description: "Runs.".into(), parameters }];
    let request =
        ChatRequest { system: "s", messages, tools: &tools, max_output: 9, session: "sid" };
    let mut heard = String::new();
    let mut hear = |delta: Delta<'_>| {
        if let Delta::Text(text) = delta {
            heard.push_str(text);
        }
    };
    let reply = provider.ask(&request, &mut hear).await;
    (reply, heard)
}

fn done(stop: wire::HostStopReason) -> HostResponse {
    let usage =
        wire::ReplyUsage { prefilled: 5, reused: 7, written: 3, ..wire::ReplyUsage::default() };
    HostResponse::Done { stop, usage }
}

#[tokio::test]
async fn text_calls_and_usage_are_returned() {
    let text = |text: &str| HostResponse::Text { text: text.into() };
    let args = json!({"command": "ls"});
    let call = HostResponse::Call { name: "shell".into(), args, truncated_at_cap: false };
    let (provider, _asked) =
        provider(vec![text("I "), text("look"), call, done(wire::HostStopReason::Calls)]);
    let (reply, heard) = ask(&provider, &[Message::text(MessageRole::User, "hi")]).await;
    let reply = reply.unwrap();
    assert_eq!((heard.as_str(), reply.message.full_text().as_str()), ("I look", "I look"));
    assert_eq!((reply.stop, reply.usage.input, reply.usage.cache_read), (StopReason::Calls, 5, 7));
    assert_eq!(reply.message.calls().next().unwrap().args["command"], "ls");
    assert!(provider.facts().small);
}

#[tokio::test]
async fn a_truncated_call_is_malformed_and_shortened() {
    let args = json!({"path": "a", "content": "x".repeat(5000)});
    let call = HostResponse::Call { name: "write_file".into(), args, truncated_at_cap: true };
    let (provider, asked) = provider(vec![call, done(wire::HostStopReason::Length)]);
    let question = Message::text(MessageRole::User, "write");
    let (reply, _) = ask(&provider, std::slice::from_ref(&question)).await;
    let reply = reply.unwrap();
    assert_eq!(reply.stop, StopReason::Length);
    let call = reply.message.calls().next().unwrap().clone();
    assert!(call.malformed.is_some());
    let result = ContentPart::Result(ToolResult {
        call_id: call.id,
        name: call.name,
        ok: false,
        text: "not run".into(),
        images: Vec::new(),
        not_run: false,
    });
    let result = Message { role: MessageRole::User, parts: vec![result] };
    let _ = ask(&provider, &[question, reply.message, result]).await;
    let chat = asked.iter().nth(1).unwrap();
    assert_eq!(chat.conversation, "sid");
    let HostMessage::Assistant { calls, .. } = &chat.messages[1] else { panic!("{chat:?}") };
    assert_eq!(calls[0].args["content"].as_str().unwrap().len(), MAX_TRUNCATED_ARG);
    let HostMessage::Result { name, text } = &chat.messages[2] else { panic!("{chat:?}") };
    assert_eq!((name.as_str(), text.as_str()), ("write_file", "not run"));
}

#[tokio::test]
async fn a_host_crash_breaks_the_reply_and_a_refusal_has_hints() {
    let (dying, _asked) = provider(Vec::new());
    let (reply, _) = ask(&dying, &[Message::text(MessageRole::User, "hi")]).await;
    assert!(matches!(reply, Err(ProviderError::Broken(_))));
    let mut fault = HostFault::new(HostFaultKind::Rejected, "too little memory");
    fault.next.push("close other programs".into());
    let (refusing, _asked) = provider(vec![HostResponse::Error(fault)]);
    let (reply, _) = ask(&refusing, &[Message::text(MessageRole::User, "hi")]).await;
    let failure = reply.unwrap_err().failure();
    assert_eq!(failure.hints, ["close other programs"]);
}

#[tokio::test]
async fn repetition_raises_the_temperature_and_a_reminder_requires_a_call() {
    let (provider, asked) = provider(vec![done(wire::HostStopReason::Done)]);
    let call = |id: &str| {
        let (id, name) = (id.to_owned(), "shell".to_owned());
        let args = json!({"command": "ls"});
        Message {
            role: MessageRole::Assistant,
            parts: vec![ContentPart::Call(ToolCall { id, name, args, malformed: None })],
        }
    };
    let answered = |id: &str| {
        let (call_id, name, text) = (id.to_owned(), "shell".to_owned(), "ok".to_owned());
        let result =
            ToolResult { call_id, name, ok: true, text, images: Vec::new(), not_run: false };
        Message { role: MessageRole::User, parts: vec![ContentPart::Result(result)] }
    };
    let mut messages = vec![Message::text(MessageRole::User, "look"), call("a"), answered("a")];
    let _ = ask(&provider, &messages).await;
    messages.extend([call("b"), answered("b")]);
    let _ = ask(&provider, &messages).await;
    messages.push(Message::text(MessageRole::Assistant, "done"));
    messages.push(Message::note(NotePurpose::Reminder, "[Not done] Look again."));
    let _ = ask(&provider, &messages).await;
    let chats: Vec<HostChat> = asked.iter().take(3).collect();
    assert_eq!(chats.iter().map(|chat| chat.act).collect::<Vec<_>>(), [false, false, true]);
    assert!(chats[0].temperature == 0.0 && chats[1].temperature > 0.5);
    let said = [
        HostMessage::User { text: "look".into() },
        HostMessage::User { text: "[Not done] Look again.".into() },
    ];
    assert_eq!(chats[2].messages, said, "it begins again with the task");
}

#[test]
fn rejected_calls_are_removed_except_the_last_ones_reason() {
    let call = |id: &str| ToolCall {
        id: id.into(),
        name: "shell".into(),
        args: json!({"command": id}),
        malformed: None,
    };
    let asks = |id: &str| Message {
        role: MessageRole::Assistant,
        parts: vec![ContentPart::Call(call(id))],
    };
    let result = |id: &str, ok: bool, text: &str| {
        let (call_id, name, text) = (id.to_owned(), "shell".to_owned(), text.to_owned());
        let not_run = text.starts_with("not run");
        let result = ToolResult { call_id, name, ok, text, images: Vec::new(), not_run };
        Message { role: MessageRole::User, parts: vec![ContentPart::Result(result)] }
    };
    let mut talk =
        vec![Message::text(MessageRole::User, "look"), asks("a"), result("a", true, "ok")];
    talk.extend([asks("b"), result("b", false, "not run: nothing changed")]);
    assert_eq!(drop_not_run(talk.clone()), talk, "the reason is heard once");
    talk.extend([asks("c"), result("c", false, "not run: nothing changed")]);
    assert_eq!((drop_not_run(talk.clone()).len(), trailing_not_run(&talk)), (3, 2));
    talk.extend([asks("d"), result("d", false, "it failed")]);
    let left: Vec<Message> = talk[..3].iter().chain(&talk[7..]).cloned().collect();
    assert_eq!(drop_not_run(talk), left);
}
