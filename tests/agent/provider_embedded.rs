//! Tests of the local model: the real g3 with a scripted host on an inherited socket, as with a
//! supervisor. No model is needed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};

use base::model_host::connection::lines;
use base::model_host::wire::{
    Hello, HostChat, HostFault, HostFaultKind, HostMessage, HostRequest, HostRequestLine,
    HostResponse, HostResponseLine, HostStopReason, ReplyUsage, VERSION,
};
use base::process::{self, Command, OutputLimits, Stream, exit_code};
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::env::{CommandRun, TestEnv, until};
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::{G3, of_type};

/// Runs g3 with a local model that sends these replies. Returns the chats that it received.
fn run(env: &TestEnv, replies: Vec<Vec<HostResponse>>) -> (CommandRun, Vec<HostChat>) {
    let repo = env.repo();
    let (job, seen) = job(env, repo.path(), &["go"], replies);
    let ran = CommandRun::from(job.output(OutputLimits::seconds(60)).unwrap());
    let asked = seen.lock().unwrap().chats.clone();
    (ran, asked)
}

/// The requests that the host received.
#[derive(Default)]
struct ReceivedRequests {
    chats: Vec<HostChat>,
    cancels: usize,
}

/// Returns a command that runs g3 with a local model that sends these replies.
fn job(
    env: &TestEnv,
    cwd: &Path,
    args: &[&str],
    replies: Vec<Vec<HostResponse>>,
) -> (Command, Arc<Mutex<ReceivedRequests>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let seen = Arc::new(Mutex::new(ReceivedRequests::default()));
    let theirs_seen = Arc::clone(&seen);
    std::thread::spawn(move || play(ours, replies, &theirs_seen));
    let job = env.command(G3, cwd).arg("--json").args(args);
    (job.env("G3_MODEL_HOST_FD", "5").descriptor(theirs.into(), 5), seen)
}

fn play(socket: UnixStream, replies: Vec<Vec<HostResponse>>, seen: &Mutex<ReceivedRequests>) {
    let mut writer = socket.try_clone().unwrap();
    let mut replies = replies.into_iter();
    for line in lines::<HostRequestLine>(socket) {
        let Ok(HostRequestLine { id, what }) = line else { return };
        let told = match what {
            HostRequest::Hello { .. } => vec![HostResponse::Hello(Hello {
                version: VERSION,
                model: "scripted".into(),
                parameters: 8_000_000_000,
                context: 32_768,
                pid: 1,
                embedder: None,
            })],
            HostRequest::Chat(chat) => {
                seen.lock().unwrap().chats.push(chat);
                // A host without a reply dies.
                let Some(reply) = replies.next() else { return };
                reply
            }
            HostRequest::Cancel { .. } => {
                seen.lock().unwrap().cancels += 1;
                continue;
            }
            HostRequest::Embed { .. } | HostRequest::Status | HostRequest::Unknown => continue,
        };
        for what in told {
            let line = serde_json::to_string(&HostResponseLine { id, what }).unwrap();
            writeln!(writer, "{line}").unwrap();
        }
    }
}

fn text(text: &str) -> HostResponse {
    HostResponse::Text { text: text.into() }
}

fn call(name: &str, args: Value) -> HostResponse {
    HostResponse::Call { name: name.into(), args, truncated_at_cap: false }
}

fn done(stop: HostStopReason) -> HostResponse {
    HostResponse::Done {
        stop,
        usage: ReplyUsage { prefilled: 70, reused: 5, written: 7, ..ReplyUsage::default() },
    }
}

fn local() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("G3_TEST_RETRY_MS", 5);
    env.config(
        "[providers]\ndefault_provider = \"embedded.x\"\n[providers.embedded.x]\nmodel = \"m\"\n",
    );
    env
}

fn said(events: &[Value]) -> String {
    of_type(events, "text").iter().filter_map(|event| event["text"].as_str()).collect()
}

#[test]
fn text_is_streamed_and_costs_nothing() {
    let (ran, asked) =
        run(&local(), vec![vec![text("Hello "), text("wörld"), done(HostStopReason::Done)]]);
    ran.ok();
    let events = ran.json_lines();
    assert_eq!(said(&events), "Hello wörld");
    let usage = of_type(&events, "usage")[0];
    assert_eq!(
        (&usage["input"], &usage["cache_read"], &usage["output"]),
        (&json!(70), &json!(5), &json!(7))
    );
    assert_eq!(usage["cost_usd"], 0.0);
    assert_eq!(asked[0].messages, [HostMessage::User { text: "go".into() }]);
}

#[test]
fn all_calls_of_a_reply_run_and_their_results_are_sent_in_order() {
    let first = vec![
        text("I look."),
        call("shell", json!({"command": "echo one"})),
        call("shell", json!({"command": "echo two"})),
        done(HostStopReason::Calls),
    ];
    let (ran, asked) = run(&local(), vec![first, vec![text("Done."), done(HostStopReason::Done)]]);
    ran.ok();
    assert_eq!(said(&ran.json_lines()), "I look.Done.");
    let results: Vec<&str> = asked[1]
        .messages
        .iter()
        .filter_map(|turn| match turn {
            HostMessage::Result { text, .. } => Some(text.as_str()),
            HostMessage::User { .. } | HostMessage::Assistant { .. } => None,
        })
        .collect();
    assert!(results[0].contains("one") && results[1].contains("two"), "{results:?}");
    assert_eq!(asked[0].conversation, asked[1].conversation);
}

#[test]
fn a_truncated_call_of_the_local_model_is_not_run() {
    let args = json!({"file_path": "a.txt", "content": "half"});
    let cut = HostResponse::Call { name: "write_file".into(), args, truncated_at_cap: true };
    let (ran, _) = run(
        &local(),
        vec![
            vec![cut, done(HostStopReason::Length)],
            vec![text("Sorry."), done(HostStopReason::Done)],
        ],
    );
    let events = ran.json_lines();
    assert_eq!(of_type(&events, "tool_end")[0]["ok"], false);
    assert!(of_type(&events, "tool_end")[0]["text"].as_str().unwrap().contains("output limit"));
}

#[test]
fn an_image_is_mentioned_and_not_sent() {
    let env = local();
    let repo = env.repo();
    let dir = env.g3_state(repo.path()).join("sessions/seen-abcd");
    std::fs::create_dir_all(&dir).unwrap();
    // A session in which another model received images, from the user and from a tool.
    let picture = json!({"media_type": "image/png", "data": "cGl4ZWxz"});
    let entry = |entry: &str, key: &str, value: Value| json!({"entry": entry, key: value});
    let mut reply = entry(
        "reply",
        "message",
        json!({"role": "assistant", "parts": [
        {"kind": "call", "id": "a", "name": "shell", "args": {"command": "ls"}}]}),
    );
    reply["usage"] = json!({"input": 1, "output": 1, "cache_read": 0, "cache_write": 0});
    reply["stop"] = json!("calls");
    let lines = [
        json!({"entry": "opened", "time": "2026-01-02T10:00:00Z", "cwd": repo.path(),
            "provider": "x", "model": "x"}),
        entry(
            "request",
            "message",
            json!({"role": "user", "parts": [
            {"kind": "text", "text": "look"},
            {"kind": "image", "media_type": "image/png", "data": "cGl4ZWxz"}]}),
        ),
        reply,
        entry(
            "result",
            "result",
            json!({"call_id": "a", "name": "shell", "ok": true,
            "text": "drawn", "images": [picture]}),
        ),
    ];
    let journal: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(dir.join("session.jsonl"), journal).unwrap();
    let replies = vec![vec![text("I see nothing."), done(HostStopReason::Done)]];
    let (job, seen) = job(&env, repo.path(), &["what is on it?", "--resume"], replies);
    CommandRun::from(job.output(OutputLimits::seconds(60)).unwrap()).ok();
    let sent = format!("{:?}", seen.lock().unwrap().chats);
    assert_eq!(sent.matches("[a picture; this model cannot see]").count(), 2, "{sent}");
    assert!(sent.contains("drawn") && !sent.contains("cGl4ZWxz"), "{sent}");
}

#[test]
fn an_interrupt_cancels_the_chat_at_the_host() {
    let env = local();
    let repo = env.repo();
    // The host never finishes the reply.
    let (job, seen) = job(&env, repo.path(), &["go"], vec![vec![text("Hello ")]]);
    let mut g3 = job.stdin(Stream::Null).spawn().unwrap();
    let mut out = BufReader::new(g3.child.stdout.take().unwrap()).lines();
    assert!(out.any(|line| line.unwrap().contains("Hello ")), "the words are heard");
    process::signal_group(g3.id(), Signal::INT);
    assert_eq!(exit_code(g3.wait_until(None).unwrap().unwrap()), 130);
    until("the host to hear of it", || (seen.lock().unwrap().cancels == 1).then_some(()));
    assert_eq!(seen.lock().unwrap().chats.len(), 1, "nothing was asked again");
    let rest: Vec<String> = out.map_while(Result::ok).collect();
    assert!(rest.last().unwrap().contains("\"cancelled\""), "{rest:?}");
}

#[test]
fn a_refusal_is_reported_once_and_a_host_that_keeps_dying_in_the_end() {
    let mut fault = HostFault::new(HostFaultKind::Rejected, "too little memory");
    fault.next.push("close other programs".into());
    let (ran, asked) = run(&local(), vec![vec![HostResponse::Error(fault)]]);
    ran.exits(1).output_contains("too little memory").output_contains("close other programs");
    assert_eq!(asked.len(), 1);
    let (ran, _) = run(&local(), Vec::new());
    ran.exits(1).output_contains("g3 --resume");
}

#[test]
fn a_local_model_escalates_its_turn_to_the_configured_one() {
    let strong = ModelServer::start(ScriptedReply::says("I know."));
    let env = local();
    env.config(&format!(
        "[providers]\ndefault_provider = \"embedded.x\"\nescalation = \"anthropic.strong\"\n\
         [providers.embedded.x]\nmodel = \"m\"\n[providers.anthropic.strong]\nmodel = \"s\"\n\
         api_key = \"k\"\nbase_url = \"{}\"\n",
        strong.url()
    ));
    let reason = json!({"reason": "no idea"});
    let (ran, asked) =
        run(&env, vec![vec![call("suggest_escalation", reason), done(HostStopReason::Calls)]]);
    ran.ok();
    assert_eq!(said(&ran.json_lines()), "I know.");
    assert!(asked[0].tools.iter().any(|tool| tool.name == "suggest_escalation"));
    assert_eq!(strong.requests().len(), 1);
}
