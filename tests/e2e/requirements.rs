//! `studio run --requirements`: sessions in which g3 works as player and coach.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::env::until;
use testkit::model_server::gate::ReplyGate;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::request::ReceivedRequest;
use testkit::model_server::script::Script;

use crate::fixtures::Scene;

const FILE: &str =
    "A plan.\n\n{{CURRENT REQUIREMENTS}}\n\n# Two files\n- make one.txt\n- R7: make two.txt\n";
const BOTH: &str = "test -e one.txt && test -e two.txt";

fn is_coach(request: &ReceivedRequest) -> bool {
    request.tool_names().contains(&"verdict".to_owned())
}

/// A model whose replies depend on the conversation: it writes two.txt once the conversation
/// contains these words, and its coach judges by the diff.
fn script(words: &'static str) -> Script {
    let script = Script::by(move |request| {
        let text = request.text();
        if is_coach(request) {
            return verdict(text.contains("+one.txt") && text.contains("+two.txt"));
        }
        let make = |name: &str| {
            let line = format!("echo {name} > {name}; echo made-{name}");
            ScriptedReply::call("shell", json!({"command": line}))
        };
        match (text.contains("made-one.txt"), text.contains("made-two.txt")) {
            (false, _) => make("one.txt"),
            (true, false) if text.contains(words) => make("two.txt"),
            (true, _) => ScriptedReply::says("It is done."),
        }
    });
    script.commit_message("Make two files")
}

fn verdict(both: bool) -> ScriptedReply {
    let judged = |id: &str, met: bool| json!({"id": id, "status": if met { "met" } else { "unmet" }, "evidence": format!("saw {id}")});
    let feedback = if both { "" } else { "write two.txt" };
    let requirements = [judged("R1", true), judged("R7", both)];
    let args = json!({"approved": both, "requirements": requirements, "feedback": feedback});
    ScriptedReply::call("verdict", args)
}

fn scene(script: Script) -> Scene {
    let scene = Scene::new("anthropic", script);
    std::fs::write(scene.env.home().join("plan.md"), FILE).expect("the home is writable");
    scene
}

/// Waits until the session has this state, and returns it.
fn settled(scene: &Scene, state: &str) -> Value {
    until(&format!("the session to be {state}"), || {
        let session = scene.sessions().remove(0);
        (session["state"] == state).then_some(session)
    })
}

fn id(session: &Value) -> &str {
    session["id"].as_str().expect("an id")
}

fn journal(scene: &Scene, id: &str) -> Vec<Value> {
    scene.studio(["logs", id, "--json"]).json_lines()
}

/// Returns the requests of the session, without those for the message of its commit.
fn session_requests(scene: &Scene) -> Vec<ReceivedRequest> {
    let mut requests = scene.model.requests();
    requests.retain(|request| !request.text().contains("commit message"));
    requests
}

/// Returns the number of rounds in the session, over all its runs.
fn rounds(scene: &Scene, id: &str) -> usize {
    let reports = journal(scene, id).into_iter().map(|line| line["event"].clone());
    let mut reports = reports.filter(|it| it["type"] == "plan" && it["state"] == "ended");
    reports.next_back().expect("a report")["report"].as_array().expect("rounds").len()
}

#[test]
fn requirements_are_met_checked_accounted_and_named_in_the_commit() {
    let scene = scene(script("Round 2"));
    // The agents can also run the check, which has the same limited access to g3's files.
    let check = format!("{BOTH} && ! cat ~/.config/g3/config.toml");
    let args = ["run", "--requirements", "../plan.md", "--check", &check];
    scene.studio(args).exits(0).output_contains("ready");
    let session = settled(&scene, "ready");
    assert_eq!((&session["task"], &session["agent"]), (&json!("Two files"), &json!("g3")));
    assert_eq!(rounds(&scene, id(&session)), 2);
    let asked = session_requests(&scene);
    assert_eq!(asked.iter().filter(|request| is_coach(request)).count(), 2);
    assert_eq!(session["usage"]["output"], 5 * asked.len(), "player and coach: {session:#}");
    let coach = asked.iter().rfind(|request| is_coach(request)).expect("a coach").text();
    assert!(coach.contains("- R1: make one.txt\n- R7: make two.txt"), "{coach}");
    assert!(coach.contains(&format!("`{check}` passed")) && !coach.contains("A plan."), "{coach}");
    scene.studio(["accept", id(&session)]).exits(0);
    let landed = scene.repo.git(["log", "-1", "--format=%B%n%N", "--notes=studio"]);
    assert!(landed.contains("Requirement: R1\nRequirement: R7"), "{landed}");
    assert!(landed.contains("\"requirements\": [\n    \"R1\",\n    \"R7\""), "{landed}");
    assert_eq!(scene.repo.read("two.txt"), "two.txt\n");
    let said = |id: &str| json!({"id": id, "status": "met", "evidence": format!("saw {id}")});
    assert_eq!(session["coach"]["requirements"], json!([said("R1"), said("R7")]));
    assert_eq!(
        (&session["coach"]["status"], &session["coach"]["earlier"]),
        (&json!("done"), &json!(false))
    );
    let receipt: Value = serde_json::from_str(&scene.repo.git(["notes", "--ref=studio", "show"]))
        .expect("a receipt");
    assert_eq!(receipt["verdict"], session["coach"]["requirements"], "{receipt:#}");
    assert_eq!((&receipt["rounds"], &receipt["turns"]), (&json!(2), &json!(asked.len())));
    let traced = scene.studio(["trace", "--file", "../plan.md", "--json"]).exits(0).json();
    assert_eq!(traced["requirements"][1]["coach"]["status"], "met", "{traced:#}");
    scene.studio(["verify", "--file", "../plan.md"]).exits(0);
}

#[test]
fn each_task_implements_the_same_requirements_and_lands_separately() {
    let scene = scene(script("Meet these requirements"));
    let args = ["run", "--requirements", "../plan.md", "--accept", "--json", "-j", "1"];
    let ran = scene.studio(args.into_iter().chain(["write them in haste"]));
    ran.exits(0);
    let summary = ran.json_lines().pop().expect("a summary");
    assert_eq!(summary["sessions"][0]["state"], "accepted", "{summary}");
    let player = scene.model.requests().remove(0).last();
    assert!(player.contains("write them in haste\n\n{{CURRENT REQUIREMENTS}}"), "{player}");
    assert_eq!(scene.repo.read("one.txt"), "one.txt\n");
}

#[test]
fn an_unapproved_session_fails_with_its_reason_and_continues_after_a_message() {
    let scene = scene(script("The user says"));
    scene.studio(["run", "--requirements", "../plan.md", "--check", BOTH]).exits(1);
    let session = settled(&scene, "failed");
    let why = session["why"].as_str().expect("a reason");
    assert!(why.starts_with("not approved after 5 rounds: R7 unmet: saw R7; "), "{why}");
    assert!(why.contains(BOTH) && !why.contains('\n'), "{why}");
    let id = id(&session);
    scene.studio(["send", id, "two.txt is still missing"]).exits(0);
    let session = settled(&scene, "ready");
    assert_eq!(rounds(&scene, id), 6);
    let asked = session_requests(&scene);
    let heard = asked.iter().find(|request| request.last().contains("The user says"));
    let heard = heard.expect("the player hears it").last();
    assert!(heard.contains("two.txt is still missing") && heard.contains("Round 6 of 10"));
    assert_eq!(heard.matches("{{CURRENT").count(), 1, "they are not said again: {heard}");
    assert_eq!(session["usage"]["output"], 5 * asked.len());
}

#[test]
fn a_killed_g3_continues_at_its_last_step() {
    for step in ["begun", "played", "checked", "judged:2", "resumed"] {
        let mut scene = scene(script("Round 2"));
        let resumes = step == "resumed";
        let at = |step: &str| format!("g3.rounds.{step}");
        scene.env.set("G3_TEST_KILL_AT", at(if resumes { "played" } else { step }));
        let args = ["run", "--requirements", "../plan.md", "--check", BOTH, "in haste"];
        scene.studio(args).exits(1).output_contains("exited with code 137");
        let id = id(&scene.sessions()[0]).to_owned();
        if resumes {
            scene.env.set("G3_TEST_KILL_AT", at(step));
            scene.studio(["resume", &id]).exits(0);
            until("the second end", || {
                let ends = journal(&scene, &id);
                let ends = ends.iter().filter(|line| line["entry"] == "exit").count();
                (ends == 2).then_some(())
            });
        }
        scene.env.set("G3_TEST_KILL_AT", "");
        scene.studio(["resume", &id]).exits(0);
        settled(&scene, "ready");
        assert_eq!(rounds(&scene, &id), 2, "no round is lost or played twice: {step}");
        let asked = scene.model.requests();
        let coaches = asked.iter().filter(|request| is_coach(request)).count();
        assert!(coaches <= 3, "{coaches} coaches after a kill at {step}");
        assert!(asked[0].text().contains("in haste\n\n{{CURRENT"), "its task is lost at {step}");
    }
}

#[test]
fn a_stop_and_a_killed_supervisor_lose_nothing() {
    for killed in [false, true] {
        let gate = ReplyGate::new();
        let (held, usual) = (gate.clone(), script("Round 2"));
        let slow = Script::by(move |request| {
            let reply = usual.answer(request);
            let is_second = request.text().contains("Round 2");
            if is_second && !is_coach(request) { reply.gate(&held) } else { reply }
        });
        let scene = scene(slow);
        let id = scene.studio(["exec", "--requirements", "../plan.md"]).ok().to_owned();
        gate.wait_until_reached(1);
        if killed {
            let journal = journal(&scene, &id);
            let spawned = journal.iter().rfind(|line| line["entry"] == "spawned");
            let pid = spawned.expect("a supervisor")["pid"].as_i64().expect("its id");
            let pid = Pid::from_raw(i32::try_from(pid).expect("a process")).expect("a process");
            kill_process(pid, Signal::KILL).expect("the process is ours");
            settled(&scene, "crashed");
        } else {
            scene.studio(["stop", &id]).exits(0);
            settled(&scene, "stopped");
        }
        gate.open_all();
        scene.studio(["resume", &id]).exits(0);
        settled(&scene, "ready");
        assert_eq!(rounds(&scene, &id), 2, "killed: {killed}");
    }
}

#[test]
fn limits_of_a_session_include_player_and_coach() {
    let scene = scene(script("Round 2"));
    // The player has one request left after the coach's two.
    scene.studio(["run", "--requirements", "../plan.md", "--max-turns", "3"]).exits(1);
    let why = settled(&scene, "failed")["why"].to_string();
    assert!(why.contains("limit of 3 turns"), "{why}");
    assert!(scene.model.requests().iter().any(is_coach), "the coach's question counts");
}

#[test]
fn a_lost_conversation_is_restarted_with_the_same_requirements() {
    let scene = scene(script("Round 2"));
    scene.studio(["run", "--requirements", "../plan.md"]).exits(0);
    let session = settled(&scene, "ready");
    let worktree = scene.repo.worktrees().join(id(&session));
    let state = scene.repo.path().join(".git/studio/sessions").join(id(&session));
    std::fs::remove_dir_all(state.join("agent-state")).expect("its conversation is there");
    for name in ["one.txt", "two.txt"] {
        std::fs::remove_file(worktree.join(name)).expect("its work is there");
    }
    scene.studio(["send", id(&session), "- is two.txt there?"]).exits(0);
    let again = until("another player", || {
        let asked = scene.model.requests();
        asked.into_iter().find(|request| request.text().contains("You have worked on"))
    });
    assert!(again.text().contains("is two.txt there?"), "{}", again.text());
    settled(&scene, "ready");
    let coach = scene.model.requests().into_iter().rfind(is_coach).expect("a coach").text();
    assert!(
        coach.contains("- R7: make two.txt") && !coach.contains("is two.txt there?"),
        "{coach}"
    );
}
