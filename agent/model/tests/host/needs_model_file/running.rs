//! Tests of how hosts are found, started, shared and stopped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use base::model_host::connection::Connection;
use base::model_host::find::{self, HostQuery};
use base::model_host::socket_path::{self, HostPaths};
use base::model_host::wire::{HostFaultKind, HostResponse};
use base::process::{Command, OutputLimits, Running, Stream, is_alive};
use rustix::process::{Pid, Signal, kill_process};
use testkit::env::{TestEnv, built, until};

use crate::{Host, chat, hear, model, then};

fn client(env: &TestEnv, idle: &str) -> Running {
    let job = env.command(built("host-client"), env.home()).arg(model()).arg(idle);
    job.stdin(Stream::Piped).stderr(Stream::Inherit).spawn().unwrap()
}

/// Returns the process id of the host that a client found.
fn found(client: &mut Running) -> u32 {
    let mut line = String::new();
    BufReader::new(client.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().parse().unwrap_or_else(|_| panic!("the client found no host: {line:?}"))
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn eight_concurrent_clients_start_one_host_and_another_after_a_kill() {
    let env = TestEnv::new().with("PATH", path_with_host());
    let mut clients: Vec<Running> = (0..8).map(|_| client(&env, "0")).collect();
    let pids: Vec<u32> = clients.iter_mut().map(found).collect();
    assert!(pids.iter().all(|pid| *pid == pids[0]), "several hosts: {pids:?}");
    kill(pids[0]);
    let mut next = client(&env, "0");
    let second = found(&mut next);
    assert_ne!(second, pids[0]);
    drop((next, clients));
    until("the host ends with its last connection", || (!is_alive(second)).then_some(()));
}

fn path_with_host() -> String {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_g3-model"));
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", program.parent().unwrap().display())
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn killing_a_host_during_a_reply_breaks_the_reply() {
    let env = TestEnv::new();
    let host = Host::start(&env, &[]);
    let mut answers = host.connection.chat(chat("c", "Count from one to one hundred in words."));
    while !matches!(answers.wait(), HostResponse::Text { .. }) {}
    kill(host.running.id());
    let fault = loop {
        match answers.wait() {
            HostResponse::Error(fault) => break fault,
            HostResponse::Text { .. } | HostResponse::Progress { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(fault.kind, HostFaultKind::Broken);
    drop(host);
    let again = Host::start(&env, &[]);
    assert!(!again.hear(chat("c", "Say yes.")).text.is_empty());
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn an_idle_host_exits() {
    let env = TestEnv::new();
    let host = Host::start(&env, &["--idle", "1"]);
    host.ends();
    let host = Host::start(&env, &["--idle", "0"]);
    let socket = host.socket.clone();
    let second = host.connect();
    second.hello().unwrap(); // ensures that the host knows the connection
    drop(host.connection);
    second.hello().unwrap();
    drop(second);
    let mut running = host.running;
    let until = std::time::Instant::now() + Duration::from_secs(60);
    assert!(running.wait_until(Some(until)).unwrap().unwrap().success());
    assert!(!socket.exists(), "the socket is left behind");
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn a_client_that_leaves_or_cancels_stops_its_reply() {
    let env = TestEnv::new();
    let host = Host::start(&env, &[]);
    let long = || {
        let mut chat = chat("long", "Count from one to one thousand in words.");
        chat.max_tokens = 1500;
        chat
    };
    let mut cancelled = host.connection.chat(long());
    while !matches!(cancelled.wait(), HostResponse::Text { .. }) {}
    drop(cancelled);
    let other = host.connect();
    let mut left = other.chat(long());
    while !matches!(left.wait(), HostResponse::Text { .. }) {}
    drop((left, other));
    let short = host.hear(chat("short", "Say yes."));
    assert!(!short.text.is_empty());
    until("no reply is left", || (host.status().chats == 0).then_some(()));
    assert_eq!(host.status().connections, 1);
}

/// Returns a host that exits with its last connection, for a model whose name only this test uses.
fn own(dir: &Path, model: &Path) -> HostQuery {
    let own = dir.join("own.gguf");
    std::fs::hard_link(model, &own).unwrap();
    HostQuery {
        idle: Some(0),
        threads: Some(1),
        context: Some(2048),
        program: Some(env!("CARGO_BIN_EXE_g3-model").into()),
        ..HostQuery::model(own)
    }
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn a_client_that_connects_while_a_host_exits_gets_the_next_one() {
    let model = model();
    let dir = tempfile::tempdir_in(model.parent().unwrap()).unwrap();
    let wanted = own(dir.path(), &model);
    let socket = HostPaths::of(&wanted.model).unwrap().socket();
    let (connection, first) = find::open(&wanted).unwrap();
    // The engine is still loading, so exiting takes a while.
    drop(connection);
    until("the host ends", || match socket_path::connect(&socket).and_then(Connection::new) {
        Ok(connection) => connection.hello().is_err().then_some(()),
        Err(_) => Some(()),
    });
    let (connection, next) = find::open(&wanted).unwrap();
    assert_ne!(first.pid, next.pid);
    assert!(!hear(&connection, chat("c", "Say yes.")).text.is_empty());
    let third = Command::new(env!("CARGO_BIN_EXE_g3-model"), "/").arg("--model").arg(&wanted.model);
    let refused = third.output(OutputLimits::seconds(60)).unwrap();
    assert!(refused.error_text().contains("another host serves this model already"));
    drop(connection);
    until("the host ends with its last connection", || (!is_alive(next.pid)).then_some(()));
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn a_relay_outlives_the_host_behind_it() {
    let model = model();
    let dir = tempfile::tempdir_in(model.parent().unwrap()).unwrap();
    let wanted = own(dir.path(), &model);
    let relayed = base::model_host::relay::open(wanted).unwrap();
    let connection = Connection::new(relayed.into()).unwrap();
    let first = connection.hello().unwrap().pid;
    let mut answers = connection.chat(chat("c", "Count from one to one hundred in words."));
    while !matches!(answers.wait(), HostResponse::Text { .. }) {}
    kill(first);
    while !matches!(answers.wait(), HostResponse::Error(fault) if fault.kind == HostFaultKind::Broken)
    {
    }
    // The first request may still reach the socket of the exiting host; g3 retries then.
    until("another host answers", || {
        let mut answers = connection.chat(chat("c", "Say yes."));
        loop {
            match answers.wait() {
                HostResponse::Done { .. } => return Some(()),
                HostResponse::Error(fault) if fault.kind == HostFaultKind::Broken => return None,
                HostResponse::Text { .. } | HostResponse::Progress { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    });
    let second = connection.hello().unwrap().pid;
    assert_ne!(first, second);
    drop((connection, answers));
    until("the host ends with the relay", || (!is_alive(second)).then_some(()));
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn a_busy_machine_uses_fewer_threads_without_reading_conversations_again() {
    let mut env = TestEnv::new();
    let busy = env.home().join("busy");
    env.set("G3_TEST_BUSY", busy.display());
    std::fs::write(&busy, "0").unwrap();
    let host = Host::start_with(&env, &[]);
    host.hear(chat("idle", "Say no."));
    let ask = chat("c", "Say yes.");
    let first = host.hear(ask.clone());
    let most = host.status().threads;
    assert!(most >= 1);
    std::fs::write(&busy, "999").unwrap();
    let ask = then(ask, &first, "Say no.");
    let second = host.hear(ask.clone());
    assert_eq!(host.status().threads, 1);
    assert!(second.usage.reused >= first.usage.prompt, "{:?}", second.usage);
    std::fs::write(&busy, "0").unwrap();
    assert_eq!(host.status().on_disk, 1, "idle conversations are on disk and not in memory");
    let third = host.hear(then(ask, &second, "Count to ten in words."));
    assert_eq!(host.status().threads, most, "threads come back when the machine is quiet");
    assert!(third.usage.reused >= second.usage.prompt, "{:?}", third.usage);
    assert!(third.text.to_lowercase().contains("two"), "it went on in mid-reply: {third:?}");
}

#[test]
#[ignore = "needs the model file: ./scripts/fetch-model"]
fn an_invalid_request_ends_only_its_own_connection() {
    let env = TestEnv::new();
    let host = Host::start(&env, &[]);
    let mut bad = socket_path::connect(&host.socket).unwrap();
    std::io::Write::write_all(&mut bad, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut bad, &mut rest).unwrap();
    assert!(rest.is_empty());
    let other: Connection = host.connect();
    assert!(!hear(&other, chat("c", "Say yes.")).text.is_empty());
}
