//! Frequent complaints of users of such tools, by number.

use serde_json::Value;
use testkit::env::until;

use crate::fixtures::Scene;

fn ids(sessions: &Value) -> Vec<&str> {
    let sessions = sessions.as_array().into_iter().flatten();
    sessions.filter_map(|session| session["id"].as_str()).collect()
}

/// A session that waits is never shown as working, nor the reverse, in any view.
#[test]
fn pain_14_every_view_shows_the_same_true_state() {
    let scene = Scene::new();
    let id = scene.exec(["--agent", "talk", "--ask", "ask one; gate go"]);
    let views = |expected: &str| {
        assert_eq!(scene.status(&id)["state"], expected);
        let listed = scene.studio(["list", "--json"]).json();
        assert_eq!(listed["sessions"][0]["state"], expected, "{listed}");
        scene.studio(["list"]).exits(0).output_contains(expected);
        assert_eq!(scene.studio(["explain", &id, "--json"]).json()["state"], expected);
        let inbox = scene.studio(["inbox", "--json"]).json();
        let asks = ids(&inbox["questions"]);
        assert_eq!(asks.contains(&id.as_str()), expected == "waiting", "{inbox}");
        assert_eq!(ids(&inbox["unseen"]).contains(&id.as_str()), expected == "ready", "{inbox}");
    };
    scene.await_state(&id, "waiting");
    views("waiting");
    scene.studio(["answer", &id, "1", "allow"]).exits(0);
    scene.await_state(&id, "working");
    views("working");
    scene.worktree(&id).write("go", "");
    scene.await_state(&id, "ready");
    views("ready");
}

/// An agent that reports nothing for a long time is named, not only by a state that says `working`.
#[test]
fn pain_15_a_stuck_agent_is_named_and_stopped_without_loss() {
    let mut scene = Scene::new();
    let stuck = scene.exec(["--agent", "talk", "write a 1; hang"]);
    scene.await_state(&stuck, "working");
    let asking = scene.exec(["--agent", "talk", "--ask", "ask one"]);
    scene.await_state(&asking, "waiting");
    let quiet = |scene: &Scene| scene.studio(["inbox", "--json"]).json()["quiet"].clone();
    assert_eq!(ids(&quiet(&scene)), [""; 0]);

    scene.env.set("G3_TEST_NOW", "2026-01-02T10:10:00Z");
    assert_eq!(ids(&quiet(&scene)), [&stuck], "the other one waits for the user");
    let page = scene.studio(["inbox"]);
    page.exits(0)
        .output_contains("No event for 10 minutes or more:")
        .output_contains("write a 1; hang");
    scene.studio(["stop", &stuck]).exits(0);
    scene.await_state(&stuck, "stopped");
    assert_eq!(ids(&quiet(&scene)), [""; 0]);
    assert_eq!(scene.worktree(&stuck).read("a"), "1\n");
}

/// A stuck agent becomes `waiting` by itself; the user is told once, and a message goes on from
/// there.
#[test]
fn pain_15_a_stuck_agent_waits_for_the_user_and_a_message_continues_it() {
    let scene = Scene::new();
    let told = scene.env.home().join("told");
    let line =
        format!("notify = [\"sh\", \"-c\", \"echo $STUDIO_REASON >> {}\"]\n", told.display());
    scene.configure(&format!("{line}limits.stall_seconds = 1\n"));
    let stuck = scene.exec(["--agent", "talk", "write a 1; hang"]);
    let status = scene.await_state(&stuck, "waiting");
    assert_eq!(status["why"], "stalled: no event for 1 s", "{status}");
    let inbox = scene.studio(["inbox", "--json"]).json();
    assert_eq!(ids(&inbox["stalled"]), [&stuck], "{inbox}");
    until("the notification", || {
        let text = std::fs::read_to_string(&told).unwrap_or_default();
        text.contains("stalled: no event for 1 s").then_some(())
    });
    scene.studio(["send", &stuck, "write b 2"]).exits(0);
    scene.await_state(&stuck, "ready");
    assert_eq!(scene.worktree(&stuck).read("b"), "2\n");
    let text = std::fs::read_to_string(&told).unwrap_or_default();
    assert_eq!(text.matches("stalled").count(), 1, "{text}");
}

/// The same call again and again is a stall as well.
#[test]
fn pain_15_an_agent_that_repeats_one_call_is_named() {
    let scene = Scene::new();
    let call = r#"event {"seq":1,"time":"t","type":"tool_start","id":"c","name":"shell","args":{"command":"make"}}; event {"seq":1,"time":"t","type":"tool_end","id":"c","name":"shell","ok":false,"text":"error","ms":1}; "#;
    let id = scene.exec(["--agent", "talk", &format!("{}hang", call.repeat(10))]);
    let status = scene.await_state(&id, "waiting");
    let why = "stalled: `shell` was called 10 times with the same arguments and result";
    assert_eq!(status["why"], why);
    scene.studio(["stop", &id]).exits(0);
    scene.await_state(&id, "stopped");
}

/// A run as a whole has a budget: a session starts only if its reservation fits into the rest, and
/// what is used up stops the others in order.
#[test]
fn pain_21_the_total_budget_of_a_run_is_never_exceeded_by_a_start() {
    let scene = Scene::new();
    let usage = |usd: &str| {
        format!(
            r#"event {{"seq":1,"time":"t","type":"usage","input":1,"output":1,"cache_read":0,"cache_write":0,"cost_usd":{usd}}}"#
        )
    };
    let task = format!("- write a 1; {}\n", usage("0.4"));
    scene.repo.write("tasks.md", task.repeat(4));
    let flags =
        ["run", "--agent", "talk", "--jobs", "4", "--budget", "0.5", "--total-budget", "1.2"];
    let ran = scene.env.run(
        crate::fixtures::studio(),
        scene.repo.path(),
        flags.into_iter().chain(["--tasks", "tasks.md"]),
    );
    ran.exits(0).output_contains("of the total budget of $1.20 is left");
    let sessions = scene.studio(["list", "--json"]).json()["sessions"].clone();
    let all = sessions.as_array().expect("a list");
    let spent: f64 = all.iter().filter_map(|it| it["usage"]["cost_usd"].as_f64()).sum();
    assert!(spent <= 1.2, "{sessions:#}");
    let queued: Vec<&Value> = all.iter().filter(|it| it["state"] == "queued").collect();
    assert_eq!(queued.len(), 2, "two have spent 0.80, and the third needs 0.50: {sessions:#}");
    assert_eq!(queued[0]["why"], "$0.40 of the total budget of $1.20 is left, and it needs $0.50");
    let id = queued[0]["id"].as_str().unwrap_or_default().to_owned();
    assert_eq!(queued[0]["next"][0], format!("studio resume {id} --total-budget USD"));
    scene.studio(["resume", &id, "--total-budget", "2"]).exits(0);
    scene.await_state(&id, "ready");
}

#[test]
fn pain_21_a_used_up_budget_stops_the_running_session_in_order() {
    let scene = Scene::new();
    let usage = r#"event {"seq":1,"time":"t","type":"usage","input":1,"output":1,"cache_read":0,"cache_write":0,"cost_usd":0.7}"#;
    let script = format!("write a 1; {usage}; {usage}; hang");
    let id = scene.exec(["--agent", "talk", "--total-budget", "1.2", &script]);
    let status = scene.await_state(&id, "failed");
    assert_eq!(status["why"], "it reached its limit of a total budget of $1.20 for its run");
    assert_eq!(scene.worktree(&id).read("a"), "1\n");
}

/// Of twenty sessions on one account, the first that is limited parks the others: those that are
/// not started yet ask nothing.
#[test]
fn pain_22_a_rate_limit_causes_no_storm_of_requests() {
    let scene = Scene::new();
    let task = "- write asked 1; fail Too many requests, retry after 3600 s\n";
    scene.repo.write("tasks.md", task.repeat(20));
    scene.exec(["--agent", "talk", "--jobs", "3", "--tasks", "tasks.md"]);
    let sessions = || scene.studio(["list", "--json"]).json()["sessions"].clone();
    let count = |sessions: &Value, state: &str| {
        let all = sessions.as_array().into_iter().flatten();
        all.filter(|session| session["state"] == state).count()
    };
    until("the account to be parked", || {
        let sessions = sessions();
        let (waiting, queued) = (count(&sessions, "waiting"), count(&sessions, "queued"));
        (waiting > 0 && waiting + queued == 20).then_some(())
    });
    scene.studio(["resume", "--all"]).exits(0);
    let sessions = sessions();
    let all = sessions.as_array().expect("a list");
    let asked = |id: &str| scene.repo.worktrees().join(id).join("asked").exists();
    let asked = all.iter().filter(|session| asked(session["id"].as_str().unwrap_or_default()));
    assert!(asked.count() <= 3, "{sessions:#}");
    assert!(count(&sessions, "queued") >= 17, "{sessions:#}");
    assert!(all.iter().all(|session| session["why"] == "rate limit until 11:00"), "{sessions:#}");
}

/// More tasks than job slots, with dependencies, are a queue that ends.
#[test]
fn pain_23_a_queue_with_a_limit_and_dependencies_runs_to_its_end() {
    let scene = Scene::new();
    let list = "- write a 1\n- write b 1\n- write c 1\n  after: t1, t2\n";
    scene.repo.write("tasks.md", list);
    let ran = scene.studio(["run", "--jobs", "1", "--accept", "--tasks", "tasks.md"]);
    ran.exits(0);
    let names = scene.repo.git(["log", "--format=%H"]);
    assert_eq!(names.lines().count(), 4, "{names}");
    assert_eq!(scene.repo.read("c"), "1\n");
}
