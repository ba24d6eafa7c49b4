//! Tests of `g3 --auto`: requirements line by line, with the real binary.

use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;

use crate::agent_env::Stage;
use crate::autonomous::{is_coach, sides, verdict};
use base::process::{self, Stream, exit_code};
use rustix::process::Signal;
use std::io::Write;
use testkit::env::until;

fn list(stage: &Stage) -> String {
    stage.repo.read(".g3/requirements.md")
}

#[test]
fn each_line_adds_a_requirement_and_starts_a_run_over_all() {
    let player = [ScriptedReply::says("one"), ScriptedReply::says("two")];
    let coach = [verdict(true, &["met"]), verdict(true, &["met", "met"])];
    let stage = Stage::new(sides(player, coach));
    let ran = stage
        .g3_with_input(["--auto"], "make a\n\n/requirements\n/nope\nmake b\n/help\nexit\nmake c\n");
    ran.ok();
    ran.output_contains("R1  make a")
        .output_contains("no such command: `/nope`")
        .output_contains("/chat");
    assert_eq!(list(&stage), "# Project Requirements\n\n1. make a\n2. make b\n");
    let asked = stage.asked();
    assert_eq!(asked.len(), 4);
    assert!(asked[2].last().contains("1. make a\n2. make b"));
    assert!(asked[2].last().contains("R2 is the newest"));
    assert_eq!(asked[2].messages().len(), 1, "each run has its own player");
    assert_eq!(stage.repo.git(["status", "--porcelain"]), "");
}

#[test]
fn the_list_is_stored_and_numbering_continues() {
    let player = [ScriptedReply::says("x"), ScriptedReply::says("y")];
    let coach = [verdict(true, &["met"]), verdict(false, &["met", "unmet"])];
    let stage = Stage::new(sides(player, coach));
    stage.g3_with_input(["--auto"], "make a\n").ok();
    let ran = stage.g3_with_input(["--auto", "--max-turns", "1"], "make b\n");
    ran.exits(3).output_contains("1 requirement in").output_contains("not approved after 1 round");
    assert_eq!(list(&stage), "# Project Requirements\n\n1. make a\n2. make b\n");
}

#[test]
fn a_list_that_cannot_be_written_is_reported_and_the_run_continues() {
    let player = [ScriptedReply::says("x")];
    let stage = Stage::new(sides(player, [verdict(true, &["met"])]));
    std::fs::create_dir_all(stage.repo.path().join(".g3/requirements.md/in-the-way")).unwrap();
    stage.g3_with_input(["--auto"], "make a\n").exits(1).output_contains("requirements.md");
    std::fs::remove_dir_all(stage.repo.path().join(".g3/requirements.md")).unwrap();
    stage.g3_with_input(["--auto"], "make a\n").ok();
}

#[test]
fn chat_knows_the_requirements() {
    let stage = Stage::new(sides(
        [ScriptedReply::says("built"), ScriptedReply::says("chatted")],
        [verdict(true, &["met"])],
    ));
    stage
        .g3_with_input(["--auto"], "make a\n/chat\nwhat was it?\n")
        .output_contains("chatted")
        .ok();
    let last = stage.asked().pop().unwrap();
    assert!(
        last.system().contains("The requirements so far:") && last.system().contains("1. make a")
    );
    assert_eq!(last.last(), "what was it?");
}

#[test]
fn an_interrupt_cancels_the_run_and_not_the_program() {
    let gate = ReplyGate::new();
    let player = [
        ScriptedReply::says("half a ").then_says("sentence").gate(&gate),
        ScriptedReply::says("two"),
    ];
    let stage = Stage::new(sides(player, [verdict(true, &["met", "met"])]));
    let mut g3 = stage.job(["--auto"]).stdin(Stream::Piped).spawn().unwrap();
    let mut stdin = g3.child.stdin.take().unwrap();
    stdin.write_all(b"make a\n").unwrap();
    gate.wait_until_reached(1);
    process::signal_group(g3.id(), Signal::INT);
    // The journal records the cancellation of the player before the next line is read.
    until("the end of the run", || {
        let dir = stage.session_dirs().into_iter().next()?;
        let text = std::fs::read_to_string(dir.join("session.jsonl")).ok()?;
        text.contains("\"cancelled\"").then_some(())
    });
    gate.open_all();
    stdin.write_all(b"make b\n").unwrap();
    drop(stdin);
    assert_eq!(exit_code(g3.wait_until(None).unwrap().unwrap()), 0);
    assert!(stage.asked().iter().filter(|request| is_coach(request)).count() == 1);
    assert_eq!(list(&stage), "# Project Requirements\n\n1. make a\n2. make b\n");
}
