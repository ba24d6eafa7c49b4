//! Tests of player and coach over the Agent Client Protocol: prompts that start and continue a run.

use base::text::CONTINUE_PROMPT;
use serde_json::{Value, json};
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::request::ReceivedRequest;
use testkit::model_server::script::Script;

use crate::agent_env::Stage;
use crate::autonomous::{is_coach, sides, verdict, writes};
use crate::editor::Editor;

const TWO: &str =
    "Make two files.\n\n{{CURRENT REQUIREMENTS}}\n\n- R1: make one.txt\n- R2: make two.txt\n";
const AUTONOMOUS: &[&str] = &["acp", "--autonomous"];

/// Opens an editor with player and coach, and a session.
fn open(stage: &Stage, more: &[&str]) -> (Editor, String) {
    let mut editor = Editor::before(stage, &[AUTONOMOUS, more].concat(), json!({}));
    let session = editor.new_session(stage.repo.path());
    (editor, session)
}

/// Like [`open`], with an existing session.
fn load(stage: &Stage, session: &str, more: &[&str]) -> Editor {
    let mut editor = Editor::before(stage, &[AUTONOMOUS, more].concat(), json!({}));
    let params = json!({"sessionId": session, "cwd": stage.repo.path(), "mcpServers": []});
    editor.request("session/load", params);
    editor
}

/// Sends a prompt and returns the stop reason of the turn.
fn stop(editor: &mut Editor, session: &str, text: &str) -> String {
    let id = editor.prompt(session, text);
    let answer = editor.answer(id);
    answer["result"]["stopReason"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Returns the events of one type, newest first.
fn told(editor: &Editor, kind: &str) -> Vec<Value> {
    let own = editor.own_events().into_iter().rev().map(|own| own["event"].clone());
    own.filter(|event| event["type"] == kind).collect()
}

fn players(stage: &Stage) -> Vec<ReceivedRequest> {
    stage.asked().into_iter().filter(|request| !is_coach(request)).collect()
}

#[test]
fn the_first_prompt_starts_a_run_whose_events_and_cost_reach_the_editor() {
    let player = [writes("one.txt"), writes("two.txt")].concat();
    let coach = [verdict(false, &["met", "unmet"]), verdict(true, &["met", "met"])];
    let stage = Stage::new(sides(player, coach));
    let (mut editor, session) = open(&stage, &["--check", "test -e one.txt"]);
    assert_eq!(stop(&mut editor, &session, TWO), "end_turn");
    assert_eq!(stage.repo.read("two.txt"), "two.txt\n");
    let states: Vec<Value> =
        told(&editor, "plan").iter().rev().map(|e| e["state"].clone()).collect();
    let round = ["playing", "checking", "judging", "judged"];
    let all = [&["begun"][..], &round, &round, &["ended"]].concat();
    assert_eq!(states, all);
    assert_eq!(told(&editor, "plan")[0]["mode"], "autonomous");
    assert_eq!((told(&editor, "start").len(), told(&editor, "end").len()), (1, 1));
    assert_eq!(told(&editor, "usage").len(), 6, "the replies of both sides");
    for request in stage.asked() {
        let (text, coach) = (request.text(), is_coach(&request));
        assert!(text.contains("- R2: make two.txt"), "{text}");
        assert_eq!(text.contains("Make two files."), !coach, "the task is the player's: {text}");
        assert!(!coach || text.contains("`test -e one.txt` passed"), "{text}");
    }
    assert!(stage.session_dir().join("rounds.jsonl").exists());
    assert!(stage.session_dir().ends_with(&session));
}

#[test]
fn a_run_without_approval_says_so_and_the_next_prompt_adds_rounds() {
    let player = [writes("one.txt"), writes("two.txt"), writes("three.txt")].concat();
    let coach = [
        verdict(false, &["met", "unmet"]),
        verdict(false, &["met", "unmet"]),
        verdict(true, &["met", "met"]),
    ];
    let stage = Stage::new(sides(player, coach));
    let (mut editor, session) = open(&stage, &["--max-turns", "1"]);
    assert_eq!(stop(&mut editor, &session, TWO), "refusal");
    let why = told(&editor, "error").remove(0)["text"].to_string();
    assert!(why.contains("not approved after 1 round: R2 unmet: seen 2"), "{why}");
    assert_eq!(stop(&mut editor, &session, "two.txt is short"), "refusal");
    let again = players(&stage).remove(2);
    assert!(again.last().contains("Round 2 of 2"), "{}", again.last());
    assert!(again.last().contains("The user says:\n\ntwo.txt is short"), "{}", again.last());
    // Sending the requirements again, as studio does, adds nothing new.
    let go_on = TWO.replace("Make two files.", CONTINUE_PROMPT);
    assert_eq!(stop(&mut editor, &session, &go_on), "end_turn");
    let last = players(&stage).remove(4);
    assert!(last.last().contains("Round 3 of 3") && !last.last().contains("The user says"));
    assert!(!last.last().contains(CONTINUE_PROMPT), "{}", last.last());
}

#[test]
fn an_approved_run_continues_with_new_input() {
    let player = [writes("one.txt"), writes("two.txt")].concat();
    let coach = [verdict(true, &["met", "met"]), verdict(true, &["met", "met"])];
    let stage = Stage::new(sides(player, coach));
    let (mut editor, session) = open(&stage, &[]);
    assert_eq!(stop(&mut editor, &session, TWO), "end_turn");
    editor.leave();
    let mut editor = load(&stage, &session, &[]);
    assert_eq!(stop(&mut editor, &session, "also in capitals"), "end_turn");
    let words = players(&stage).remove(2).last();
    assert!(words.contains("your work was approved, and the user wants you to go on"), "{words}");
    assert!(words.contains("also in capitals"), "{words}");
    let report = &told(&editor, "plan")[0];
    assert_eq!((&report["rounds"], report["report"].as_array().unwrap().len()), (&json!(6), 2));
}

#[test]
fn messages_sent_during_review_are_not_lost_on_approval() {
    let gate = ReplyGate::new();
    let player = [writes("one.txt"), writes("two.txt")].concat();
    let approved = || verdict(true, &["met", "met"]);
    let slow = ScriptedReply::says("I look.").gate(&gate);
    let stage = Stage::new(sides(player, [slow, approved(), approved()]));
    let (mut editor, session) = open(&stage, &["--max-turns", "1"]);
    let id = editor.prompt(&session, TWO);
    gate.wait_until_reached(1);
    editor.send(json!({"jsonrpc": "2.0", "method": "session/cancel",
        "params": {"sessionId": session}}));
    assert_eq!(editor.answer(id)["result"]["stopReason"], "cancelled");
    gate.open_all();
    assert_eq!(stop(&mut editor, &session, "and two.txt"), "end_turn");
    let asked: Vec<bool> = stage.asked().iter().map(is_coach).collect();
    assert_eq!(asked, [false, false, true, true, false, false, true], "judged, then played again");
    assert!(players(&stage)[2].last().contains("and two.txt"));
}

#[test]
fn a_cancelled_player_continues_in_the_same_round() {
    let gate = ReplyGate::new();
    let player = [
        ScriptedReply::says("half a ").then_says("sentence").gate(&gate),
        writes("one.txt")[0].clone(),
        ScriptedReply::says("done"),
    ];
    let stage = Stage::new(sides(player, [verdict(true, &["met", "met"])]));
    let (mut editor, session) = open(&stage, &[]);
    let id = editor.prompt(&session, TWO);
    gate.wait_until_reached(1);
    editor.send(json!({"jsonrpc": "2.0", "method": "session/cancel",
        "params": {"sessionId": session}}));
    assert_eq!(editor.answer(id)["result"]["stopReason"], "cancelled");
    gate.open_all();
    assert_eq!(stop(&mut editor, &session, CONTINUE_PROMPT), "end_turn");
    assert!(stage.asked()[1].last().contains("Round 1 was interrupted"));
    assert_eq!(told(&editor, "plan")[0]["report"].as_array().unwrap().len(), 1);
}

#[test]
fn limits_apply_to_each_prompt() {
    let coach = [verdict(true, &["met", "met"])];
    let player = [writes("one.txt"), writes("two.txt")].concat();
    let stage = Stage::new(sides(player, coach));
    let (mut editor, session) = open(&stage, &["--max-tokens", "1"]);
    assert_eq!(stop(&mut editor, &session, TWO), "max_turn_requests");
    let why = told(&editor, "error").remove(0)["text"].to_string();
    assert!(why.contains("limit of 1 tokens"), "{why}");
    let before = stage.asked().len();
    assert_eq!(stop(&mut editor, &session, CONTINUE_PROMPT), "max_turn_requests");
    assert!(stage.asked().len() > before, "the next prompt may spend again");
}

/// Replies depend only on the request, so that a killed run may repeat requests.
fn by_what_is_there() -> Script {
    Script::by(|request| {
        let text = request.text();
        if is_coach(request) {
            let both = text.contains("+one.txt") && text.contains("+two.txt");
            let statuses = ["met", if both { "met" } else { "unmet" }];
            return verdict(both, &statuses);
        }
        let make = |name: &str| {
            let line = format!("echo {name} > {name}; echo made-{name}");
            ScriptedReply::call("shell", json!({"command": line}))
        };
        match (text.contains("made-one.txt"), text.contains("made-two.txt")) {
            (false, _) => make("one.txt"),
            (true, false) if text.contains("Round 2") => make("two.txt"),
            (true, _) => ScriptedReply::says("done"),
        }
    })
}

#[test]
fn a_prompt_completes_a_run_killed_at_any_step() {
    for name in ["begun", "played", "checked", "judged"] {
        for pass in 1..=2 {
            if (name, pass) == ("begun", 2) {
                continue;
            }
            let mut stage = Stage::new(by_what_is_there());
            let step = format!("g3.rounds.{name}:{pass}");
            stage.env.set("G3_TEST_KILL_AT", &step);
            let checks = ["--check", "test -e one.txt"];
            let (mut editor, session) = open(&stage, &checks);
            editor.prompt(&session, TWO);
            editor.wait_for_end();
            // And killed again at the moment in which it is resumed.
            stage.env.set("G3_TEST_KILL_AT", "g3.rounds.resumed");
            let mut editor = load(&stage, &session, &checks);
            let go_on = TWO.replace("Make two files.", CONTINUE_PROMPT);
            editor.prompt(&session, &go_on);
            if name != "begun" {
                editor.wait_for_end();
                stage.env.set("G3_TEST_KILL_AT", "");
                editor = load(&stage, &session, &checks);
                assert_eq!(stop(&mut editor, &session, &go_on), "end_turn", "killed at {step}");
            } else {
                editor.wait("the end", |m| m["result"]["stopReason"] == "end_turn");
            }
            for name in ["one.txt", "two.txt"] {
                assert_eq!(stage.repo.read(name), format!("{name}\n"), "killed at {step}");
            }
            let plan = told(&editor, "plan").remove(0)["report"].clone();
            assert_eq!(plan.as_array().unwrap().len(), 2, "no round lost or twice at {step}");
            assert_eq!(stage.session_dirs().len(), 1, "no second session at {step}");
        }
    }
}

#[test]
fn runs_that_cannot_start_or_continue_are_errors_with_hints() {
    let stage = Stage::new(sides(writes("one.txt"), [verdict(false, &["met", "unmet"])]));
    let checks = ["--max-turns", "1", "--check", "true"];
    let (mut editor, session) = open(&stage, &checks);
    for (text, why) in
        [(" \n", "empty"), (CONTINUE_PROMPT, "no requirements yet"), ("R1: a\nR1: b", "R1")]
    {
        let id = editor.prompt(&session, text);
        let error = editor.answer(id)["error"].clone();
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
        assert!(!error["data"]["try"].as_array().unwrap().is_empty(), "{error}");
    }
    assert!(stage.asked().is_empty());
    assert_eq!(stop(&mut editor, &session, TWO), "refusal");
    editor.leave();
    let mut editor = load(&stage, &session, &[]);
    let id = editor.prompt(&session, "more");
    let error = editor.answer(id)["error"]["message"].to_string();
    assert!(
        error.contains("not given on this machine"),
        "checks that were not given are not run: {error}"
    );
    let ran = stage.g3(["acp", "--autonomous", "--agent", "scout"]);
    ran.exits(2).output_contains("--agent");
}

#[test]
fn permissions_modes_and_the_session_list_work_as_usual() {
    let stage = Stage::new(Script::by(|request| match is_coach(request) {
        true => verdict(true, &["met", "met"]),
        false if request.assistant_messages() > 0 => ScriptedReply::says("done"),
        false => {
            ScriptedReply::call("write_file", json!({"file_path": "../out.txt", "content": "x"}))
        }
    }));
    let (mut editor, session) = open(&stage, &[]);
    let id = editor.prompt(&session, TWO);
    editor.serve(
        "session/request_permission",
        json!({"outcome": {"outcome": "selected", "optionId": "once"}}),
    );
    assert_eq!(editor.answer(id)["result"]["stopReason"], "end_turn");
    assert!(stage.env.home().join("out.txt").exists());
    editor.request("session/set_mode", json!({"sessionId": session, "modeId": "ask"}));
    let listed = editor.request("session/list", json!({"cwd": stage.repo.path()}));
    assert_eq!(listed["sessions"][0]["sessionId"], session.as_str());
    editor.request("session/close", json!({"sessionId": session}));
    let params = json!({"sessionId": session, "cwd": stage.repo.path(), "mcpServers": []});
    let resumed = editor.request("session/resume", params);
    assert_eq!(resumed["modes"]["currentModeId"], "ask");
    assert_eq!(stop(&mut editor, &session, "go through it again"), "end_turn");
    assert_eq!(stage.session_dirs().len(), 1);
}
