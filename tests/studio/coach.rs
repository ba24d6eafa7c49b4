//! The verdict of a session's coach: displayed, recorded in the receipt, and never applied to other
//! work.

use serde_json::{Value, json};

use crate::fixtures::Scene;

/// Returns a script step of the fake agent that sends this event about its rounds.
pub fn tells(state: &str, more: Value) -> String {
    let mut event = json!({"seq": 1, "time": "t", "type": "plan", "mode": "autonomous"});
    event["state"] = json!(state);
    event["rounds"] = json!(5);
    let Value::Object(more) = more else { panic!("fields of an event are an object") };
    event.as_object_mut().expect("it is one").extend(more);
    format!("event {event}")
}

/// Returns the report of a round: its verdict on requirements, and the result of the check `make`.
pub fn round(n: u32, judged: &[(&str, &str, &str)], make: bool) -> Value {
    let approved = make && judged.iter().all(|(_, status, _)| *status == "met");
    let all = judged
        .iter()
        .map(|(id, status, evidence)| json!({"id": id, "status": status, "evidence": evidence}));
    let usage =
        json!({"input": 1000, "output": 50, "cache_read": 0, "cache_write": 0, "cost_usd": 0.25});
    json!({
        "round": n, "verdict": if approved { "approved" } else { "not approved" },
        "requirements": all.collect::<Vec<_>>(), "feedback": "",
        "checks": [{"command": "make", "ok": make, "exit": i32::from(!make), "ms": 3}],
        "cost": {"turns": 3, "ms": 1500, "usage": usage},
    })
}

/// Returns the script steps of a run with one round.
pub fn run(judged: &[(&str, &str, &str)], make: bool) -> String {
    let round = round(1, judged, make);
    let end = json!({"status": "done", "report": [round.clone()], "cost": round["cost"].clone()});
    [
        tells("begun", json!({"resumed": false})),
        tells("playing", json!({"round": 1})),
        tells("judged", round),
        tells("ended", end),
    ]
    .join("; ")
}

/// Returns the receipt of a commit.
pub fn receipt(scene: &Scene, commit: &str) -> Value {
    let text = scene.repo.git(["notes", "--ref=studio", "show", commit]);
    serde_json::from_str(&text).expect("a receipt is JSON")
}

fn ready(scene: &Scene, agent: &str, task: &str) -> String {
    let id = scene.exec(["--agent", agent, task]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    id
}

#[test]
fn the_verdict_is_displayed_and_recorded_in_the_receipt() {
    let scene = Scene::new();
    let said = [("R1", "met", "a:1\u{1b}[2J"), ("R2", "unmet", "no b")];
    let id = ready(&scene, "talk", &format!("write a 1; {}", run(&said, true)));
    let coach = &scene.status(&id)["coach"];
    assert_eq!((&coach["status"], &coach["approved"]), (&json!("done"), &json!(false)));
    assert_eq!(
        coach["requirements"][1],
        json!({"id": "R2", "status": "unmet", "evidence": "no b"})
    );
    assert_eq!((&coach["rounds"], &coach["turns"]), (&json!(1), &json!(3)));
    assert_eq!((&coach["usage"]["cost_usd"], &coach["earlier"]), (&json!(0.25), &json!(false)));
    let apart = "`R2` was judged unmet, but every check passed";
    assert_eq!(coach["disagreements"], json!([{"id": "R2", "text": apart}]));
    let facts = scene.studio(["explain", &id, "--json"]).json();
    assert_eq!(&facts["facts"]["coach"], coach);
    for command in ["status", "explain"] {
        let shown = scene.studio([command, &id]);
        shown.exits(0).output_contains("not approved; 1 round, 3 turns, 1000 in, 50 out, $0.2500");
        shown
            .output_contains("met     a:1")
            .output_contains(apart)
            .output_lacks("\u{1b}")
            .output_lacks("earlier");
    }

    scene.studio(["accept", &id, "-m", "Land"]).exits(0);

    let receipt = receipt(&scene, "main");
    assert_eq!((&receipt["verdict"], &receipt["rounds"]), (&coach["requirements"], &json!(1)));
    assert_eq!((&receipt["turns"], &receipt["approved"]), (&json!(3), &json!(false)));
    assert_eq!(receipt["disagreements"], coach["disagreements"]);
    assert_eq!(receipt["judged_earlier"], json!(false));
}

#[test]
fn a_session_without_a_coach_displays_none() {
    let scene = Scene::new();
    let id = scene.ready("write a 1");
    assert_eq!(scene.status(&id)["coach"], Value::Null);
    scene.studio(["status", &id]).exits(0).output_lacks("coach");
    scene.await_free(&id);
    scene.studio(["accept", &id, "-m", "Land"]).exits(0);
    let receipt = receipt(&scene, "main");
    for absent in ["verdict", "approved", "rounds", "turns"] {
        assert_eq!(receipt[absent], Value::Null, "{absent}");
    }
    assert_eq!(receipt["judged_earlier"], json!(false));
}

#[test]
fn a_verdict_on_an_earlier_state_is_marked_and_not_in_the_receipt() {
    let met = || run(&[("R1", "met", "a:1")], true);
    for by_hand in [true, false] {
        let scene = Scene::new();
        let id = ready(&scene, "loads", &format!("write a 1; {}", met()));
        assert_eq!(scene.status(&id)["coach"]["earlier"], json!(false));
        if by_hand {
            scene.worktree(&id).write("a", "2\n");
        } else {
            scene.studio(["send", &id, "write a 2"]).exits(0);
            scene.await_state(&id, "ready");
            scene.await_free(&id);
            assert_eq!(scene.status(&id)["coach"]["earlier"], json!(true));
            scene
                .studio(["status", &id])
                .exits(0)
                .output_contains("approved, for an earlier state");
        }
        scene.studio(["accept", &id, "-m", "Land"]).exits(0);
        assert_eq!(scene.repo.read("a"), "2\n");
        let receipt = receipt(&scene, "main");
        assert_eq!((&receipt["verdict"], &receipt["judged_earlier"]), (&Value::Null, &json!(true)));
        assert_eq!(receipt["disagreements"], json!([]));
    }
    let scene = Scene::new();
    let id = ready(&scene, "loads", &format!("write a 1; {}", met()));
    scene.studio(["send", &id, &format!("write a 2; {}", run(&[("R1", "met", "a:2")], true))]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    scene.studio(["accept", &id, "-m", "Land"]).exits(0);
    assert_eq!(
        receipt(&scene, "main")["verdict"][0]["evidence"],
        "a:2",
        "the coach judged the new work"
    );
}

#[test]
fn the_last_verdict_of_an_interrupted_run_is_kept() {
    let scene = Scene::new();
    let first = tells("judged", round(1, &[("R1", "unmet", "nothing")], false));
    let second = tells("playing", json!({"round": 2}));
    let id = scene.exec(["--agent", "talk", &format!("write a 1; {first}; {second}; fail broken")]);
    scene.await_state(&id, "failed");
    let coach = &scene.status(&id)["coach"];
    assert_eq!((&coach["status"], &coach["earlier"]), (&Value::Null, &json!(true)));
    assert_eq!(coach["requirements"][0]["status"], "unmet");
    assert_eq!(coach["turns"], 3);
}
