//! Benchmarks of agents with the same scripted model: start, one turn, fifty turns, twenty at once.
//!
//! `./benches/run` builds the release binaries, runs this and writes docs/benchmarks.md. Peers are
//! measured if `BENCH_CODEX`, `BENCH_OPENCODE`, `BENCH_QWEN` and `BENCH_MINI` name their programs.
//! Figures are medians of interleaved runs; CPU is user plus system time of the whole process tree;
//! PSS is the peak of the tree's proportional set size, measured in a separate run; for
//! `--version`, which ends after a few samples, the largest of ten runs.

#[allow(dead_code, reason = "a part of it is for other benchmarks")]
mod common {
    pub mod measure;
    pub mod peers;
    pub mod table;
}

use std::path::{Path, PathBuf};

use common::measure::{Sample, adopt_orphans, measure, memory};
use common::peers::{Peer, peers};
use common::table::{Row, head};
use serde_json::json;
use testkit::model_server::ModelServer;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::request::ReceivedRequest;
use testkit::model_server::script::Script;

/// A model that makes this many turns with one shell call each, then reports that it is done.
fn script(turns: usize) -> Script {
    Script::by(move |request| {
        if answered(request) >= turns {
            return ScriptedReply::says("Done.");
        }
        let names = request.tool_names();
        let tool = ["shell", "shell_command", "exec_command", "run_shell_command", "bash"]
            .into_iter()
            .find(|tool| names.iter().any(|name| name == tool));
        // A different line each time, because an agent may stop a model that repeats itself.
        let line = format!("echo hi {}", answered(request));
        match tool {
            Some("exec_command") => ScriptedReply::call("exec_command", json!({"cmd": line})),
            Some("bash") if answered(request) + 1 == turns => ScriptedReply::call(
                "bash",
                json!({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}),
            ),
            Some("run_shell_command") => ScriptedReply::call(
                "run_shell_command",
                json!({"command": line, "is_background": false}),
            ),
            Some("bash") => {
                ScriptedReply::call("bash", json!({"command": line, "description": "says hi"}))
            }
            Some(tool) => ScriptedReply::call(tool, json!({"command": line})),
            None => ScriptedReply::says("Done."),
        }
    })
}

/// Returns how many calls of this conversation have a result.
fn answered(request: &ReceivedRequest) -> usize {
    request.tool_results().len()
}

fn main() {
    adopt_orphans();
    let place = tempfile::tempdir().expect("a temporary directory can be made");
    let peers = peers();
    let place = place.path();
    head();
    version(&peers, place).print();
    turns("one headless turn with one tool call", 1, 5, &peers, place).print();
    turns("fifty turns with one tool call each", 50, 3, &peers, place).print();
    at_once("eight at once, five turns each", 8, &peers, place).print();
    // Twenty of the others do not fit into the memory of a small machine.
    let light = ["g3", "codex", "mini-swe-agent"];
    let few: Vec<Peer> = peers.iter().filter(|peer| light.contains(&peer.name)).cloned().collect();
    at_once("twenty at once, five turns each", 20, &few, place).print();
    resume(10_000, &peers[0], place).print();
}

fn version(peers: &[Peer], place: &Path) -> Row {
    let mut row = Row::new("`--version`", peers.iter().map(|peer| peer.name));
    for _ in 0..7 {
        for (index, peer) in peers.iter().enumerate() {
            row.add(index, measure(vec![peer.version(place)]));
        }
    }
    for _ in 0..10 {
        for (index, peer) in peers.iter().enumerate() {
            row.add_memory(index, memory(vec![peer.version(place)]));
        }
    }
    row
}

fn turns(name: &str, turns: usize, runs: usize, peers: &[Peer], place: &Path) -> Row {
    let server = ModelServer::start(script(turns));
    let mut row = Row::new(name, peers.iter().map(|peer| peer.name));
    for _ in 0..runs {
        for (index, peer) in peers.iter().enumerate() {
            if let Some(sample) = checked(&server, peer, 1, turns, place) {
                row.add(index, sample);
            }
        }
    }
    for (index, peer) in peers.iter().enumerate() {
        row.add_memory(index, memory(vec![peer.task(&server, &fresh(place))]));
    }
    row
}

fn at_once(name: &str, many: usize, peers: &[Peer], place: &Path) -> Row {
    let server = ModelServer::start(script(5));
    let mut row = Row::new(name, peers.iter().map(|peer| peer.name));
    for (index, peer) in peers.iter().enumerate() {
        if let Some(sample) = checked(&server, peer, many, 5, place) {
            row.add(index, sample);
        }
        let jobs = (0..many).map(|_| peer.task(&server, &fresh(place))).collect();
        row.add_memory(index, memory(jobs));
    }
    row
}

/// Measures a session with this many messages that is resumed with one prompt.
fn resume(messages: usize, g3: &Peer, place: &Path) -> Row {
    let server = ModelServer::start(script(0));
    let dir = fresh(place);
    let mut row = Row::new(&format!("one question after {messages} messages"), ["g3"]);
    measure(vec![g3.task(&server, &dir)]);
    lengthen(&dir, messages);
    for _ in 0..5 {
        row.add(0, measure(vec![g3.task(&server, &dir).args(["--resume"])]));
    }
    row
}

/// Repeats the messages in the journal of the only session until it has this many.
fn lengthen(dir: &Path, messages: usize) {
    let sessions = std::fs::read_dir(dir.join(".g3/sessions")).expect("a session was made");
    let session = sessions.flatten().next().expect("a session was made").path();
    let journal = session.join("session.jsonl");
    let text = std::fs::read_to_string(&journal).expect("the journal is there");
    let turn: String = text
        .lines()
        .filter(|line| line.contains("\"request\"") || line.contains("\"reply\""))
        .map(|line| format!("{line}\n"))
        .collect();
    let turns = turn.repeat(messages / 2);
    std::fs::write(&journal, format!("{text}{turns}")).expect("the journal can be written");
}

/// Measures a command, and fails if it did not make the expected requests: a peer that fails
/// quickly is not fast.
#[allow(clippy::print_stderr, reason = "what is missing from the table is told")]
fn checked(
    server: &ModelServer,
    peer: &Peer,
    many: usize,
    turns: usize,
    place: &Path,
) -> Option<Sample> {
    let before = server.requests().len();
    let jobs = (0..many).map(|_| peer.task(server, &fresh(place))).collect();
    let sample = measure(jobs);
    let request_count = server.requests().len() - before;
    let due = many * turns;
    if request_count < due {
        eprintln!("{}: {request_count} of {due} requests were made; not counted", peer.name);
    }
    (request_count >= due).then_some(sample)
}

/// Creates an empty working directory.
fn fresh(place: &Path) -> PathBuf {
    let dir = tempfile::Builder::new().prefix("work-").tempdir_in(place).expect("writable");
    dir.keep()
}
