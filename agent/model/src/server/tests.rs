//! Tests of how clients see the end of a host.

use std::io::Read;

use base::model_host::wire::{HostChat, ToolCallMode};

use super::*;

fn asked(id: u64) -> HostRequestLine {
    let conversation = "c".to_owned();
    let chat =
        HostChat { conversation, mode: ToolCallMode::Free, max_tokens: 1, ..HostChat::default() };
    HostRequestLine { id, what: HostRequest::Chat(chat) }
}

/// Returns the last line that a slow client receives from a host whose engine ends.
fn last_words(loaded: bool) -> HostResponseLine {
    let (events, happened) = channel();
    let hello = Hello {
        version: VERSION,
        model: String::new(),
        parameters: 0,
        context: 0,
        pid: 0,
        embedder: None,
    };
    let socket = PathBuf::from("/nonexistent/socket");
    let (engine, _) = channel();
    let mut host = Host::new(hello, Duration::ZERO, engine, events.clone(), socket);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    host.open(theirs).unwrap();
    host.send(1, 1, HostResponse::Text { text: "more than a socket holds".repeat(200_000) });
    events.send(ServerEvent::Asked(1, asked(1))).unwrap();
    if loaded {
        events.send(ServerEvent::Loaded).unwrap();
    }
    start_engine(|| Err(Failure::failed("it is over")), events.clone()).unwrap();
    assert_eq!(host.run(&happened).unwrap_err().what, "it is over");
    let client = thread::spawn(move || {
        let mut text = String::new();
        ours.read_to_string(&mut text).unwrap();
        text
    });
    host.finish();
    let answered = |event| matches!(event, ServerEvent::Answered(1, 1));
    assert!(happened.try_iter().any(answered), "the process would have ended before");
    let text = client.join().unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn all_waiting_clients_are_told_why_the_host_ends() {
    for (loaded, kind) in [(false, HostFaultKind::Rejected), (true, HostFaultKind::Broken)] {
        let fault = HostFault::new(kind, "it is over");
        assert_eq!(
            last_words(loaded),
            HostResponseLine { id: 1, what: HostResponse::Error(fault) }
        );
    }
}

#[test]
fn a_panicking_engine_ends_the_host() {
    let (events, happened) = channel();
    start_engine(|| panic!("on purpose"), events).unwrap();
    assert!(matches!(happened.recv().unwrap(), ServerEvent::Ended(Err(_))));
}
