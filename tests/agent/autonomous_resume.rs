//! Tests of resuming autonomous runs that were interrupted or are over.

use base::process::{self, exit_code};
use rustix::process::Signal;
use serde_json::json;
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::agent_env::of_type;
use crate::autonomous::{is_coach, sides, stage, verdict, writes};

#[test]
fn an_interrupted_run_can_be_resumed() {
    let gate = ReplyGate::new();
    let player = [
        ScriptedReply::says("half a ").then_says("sentence").gate(&gate),
        writes("one.txt")[0].clone(),
        ScriptedReply::says("done"),
    ];
    let stage = stage(sides(player, [verdict(true, &["met", "met"])]));
    let mut g3 = stage.start(["--autonomous"]);
    gate.wait_until_reached(1);
    process::signal_group(g3.id(), Signal::INT);
    let status = g3.wait_until(None).unwrap().unwrap();
    assert_eq!(exit_code(status), 130);
    gate.open_all();
    stage.g3(["--autonomous", "--resume"]).ok();
    let asked = stage.asked();
    assert!(asked[1].last().contains("Round 1 was interrupted"), "{}", asked[1].last());
}

#[test]
fn resume_completes_an_autonomous_run_killed_at_any_step() {
    let script = || {
        Script::by(|request| {
            let (text, last) = (request.text(), request.last());
            if is_coach(request) {
                let both = text.contains("+one.txt") && text.contains("+two.txt");
                return if both {
                    verdict(true, &["met", "met"])
                } else {
                    verdict(false, &["met", "unmet"])
                };
            }
            let make = |name: &str| {
                let line = format!("echo {name} > {name}; echo made-{name}");
                ScriptedReply::call("shell", json!({"command": line}))
            };
            let second = text.contains("Round 2");
            match (text.contains("made-one.txt"), text.contains("made-two.txt")) {
                (false, _) => make("one.txt"),
                (true, false) if second => make("two.txt"),
                (true, _) => ScriptedReply::says(format!("done after {} bytes", last.len())),
            }
        })
    };
    let stage = stage(script());
    let steps = stage.env.home().join("steps");
    stage.env.run_command(stage.job(["--autonomous"]).env("G3_TEST_STEPS", &steps)).ok();
    let steps = std::fs::read_to_string(&steps).unwrap();
    let names: Vec<&str> = steps.lines().filter(|name| name.starts_with("g3.rounds.")).collect();
    assert_eq!(names.len(), 7, "{names:?}");
    for name in ["rounds.begun", "rounds.played", "rounds.checked", "rounds.judged"] {
        for pass in 1..=2 {
            check_killed_at(&format!("g3.{name}:{pass}"), script());
        }
    }
    for pass in 1..=steps.matches("g3.journal.reply").count() {
        check_killed_at(&format!("g3.journal.reply:{pass}"), script());
    }
}

fn check_killed_at(step: &str, script: Script) {
    let stage = stage(script);
    let args = ["--autonomous", "--check", "test -e one.txt"];
    let ran = stage.env.run_command(stage.job(args).env("G3_TEST_KILL_AT", step));
    if step == "g3.rounds.begun:2" {
        ran.ok();
        return;
    }
    ran.exits(137);
    if step == "g3.rounds.begun:1" {
        stage.g3(["--autonomous", "--resume"]).exits(2);
        return;
    }
    let again = stage.g3(["--autonomous", "--resume", "--json"]);
    assert_eq!(again.code, 0, "killed at {step}:\n{again}");
    for name in ["one.txt", "two.txt"] {
        assert_eq!(stage.repo.read(name), format!("{name}\n"), "killed at {step}");
    }
    let plan = of_type(&again.json_lines(), "plan").last().unwrap()["report"].clone();
    assert_eq!(plan.as_array().unwrap().len(), 2, "no round is lost or played twice at {step}");
    assert_eq!(stage.session_dirs().len(), 1, "no second session at {step}");
}

#[test]
fn checks_stored_in_a_repository_do_not_run() {
    let player = [writes("one.txt"), writes("two.txt")].concat();
    let coach = [verdict(false, &["met", "unmet"]), verdict(true, &["met", "met"])];
    let stage = stage(sides(player, coach));
    let check = "echo ran >> ran";
    stage.g3(["--autonomous", "--max-turns", "1", "--check", check]).exits(3);
    let ran = || stage.repo.read("ran").lines().count();
    let before = ran();
    // As in a clone of a repository with committed sessions: the files exist here, but not the
    // user's state.
    std::fs::remove_dir_all(stage.env.home().join(".g3/runs")).unwrap();
    let refused = stage.g3(["--autonomous", "--resume", "--max-turns", "4"]);
    refused.exits(2).output_contains("not given on this machine").output_contains(check);
    assert_eq!(ran(), before);
    stage.g3(["--autonomous", "--resume", "--max-turns", "4", "--check", check]).ok();
    assert!(ran() > before);
}

#[test]
fn a_finished_run_says_so_and_accepts_more_rounds() {
    let player = [writes("one.txt"), writes("two.txt")].concat();
    let coach = [verdict(false, &["met", "unmet"]), verdict(true, &["met", "met"])];
    let stage = stage(sides(player, coach));
    stage.g3(["--autonomous", "--max-turns", "1"]).exits(3);
    stage.g3(["--autonomous", "--resume"]).exits(3).output_contains("not approved after 1 round");
    assert_eq!(stage.asked().len(), 3, "no one was asked");
    stage.g3(["--autonomous", "--resume", "--max-turns", "4"]).ok();
    stage.g3(["--autonomous", "--resume"]).ok();
    assert_eq!(stage.asked().len(), 6);
}
