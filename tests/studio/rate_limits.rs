//! Rate limits: one state for all sessions of an account, which park and continue by themselves.

use testkit::env::until;

use crate::fixtures::Scene;

const LIMITED: &str = "write a 1; fail usage limit reached, resets at 17:42";

/// Writes a configuration without notices for the real clock, and a second of waiting that lasts 20
/// ms.
fn real_time() -> Scene {
    let mut scene = Scene::new();
    scene.env.set("G3_TEST_NOW", "");
    scene.env.set("G3_TEST_RETRY_MS", 20);
    scene
}

fn entries(scene: &Scene, id: &str) -> Vec<String> {
    let journal = scene.journal(id);
    journal.iter().filter_map(|line| Some(line["entry"].as_str()?.to_owned())).collect()
}

#[test]
fn a_limit_parks_all_sessions_of_its_account_and_no_new_one_starts() {
    let scene = Scene::new();
    let working = scene.exec(["--agent", "talk", "write b 1; gate go"]);
    scene.await_state(&working, "working");
    let limited = scene.exec(["--agent", "talk", LIMITED]);
    for id in [&limited, &working] {
        let status = scene.await_state(id, "waiting");
        assert_eq!(status["why"], "rate limit until 17:42", "{status}");
        assert_eq!(status["waiting_until"], "2026-01-02T17:42:00+00:00");
        assert_eq!(status["next"][0], format!("studio resume {id} --now"));
    }
    let queued = scene.exec(["--agent", "talk", "write c 1"]);
    let status = scene.status(&queued);
    assert_eq!(
        (&status["state"], &status["why"]),
        (&"queued".into(), &"rate limit until 17:42".into())
    );
    assert_eq!(status["waiting_until"], "2026-01-02T17:42:00+00:00");
    // Another account is not affected.
    let other = scene.exec(["--agent", "stranger", "write d 1"]);
    scene.await_state(&other, "ready");

    scene.studio(["list"]).exits(0).output_contains("rate limit until 17:42");
    let inbox = scene.studio(["inbox", "--json"]).json();
    assert_eq!(inbox["parked"].as_array().map(Vec::len), Some(3), "{inbox}");
    scene.studio(["inbox"]).exits(0).output_contains("Waiting for a rate limit:");

    // Its work is kept, and it can be stopped.
    assert_eq!(scene.worktree(&limited).read("a"), "1\n");
    scene.studio(["stop", &limited]).exits(0);
    assert_eq!(scene.await_state(&limited, "stopped")["files_changed"], 1);
}

#[test]
fn the_limit_survives_the_kill_of_all_processes() {
    let scene = Scene::new();
    let limited = scene.exec(["--agent", "talk", LIMITED]);
    scene.await_state(&limited, "waiting");
    let journal = scene.journal(&limited);
    let spawned = journal.iter().find(|line| line["entry"] == "spawned");
    let pid = spawned.and_then(|line| line["pid"].as_i64()).expect("a supervisor");
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is running");
    scene.await_state(&limited, "crashed");
    scene.studio(["resume", &limited]).exits(0).output_contains("rate limit until 17:42");
    assert_eq!(scene.status(&limited)["state"], "queued");
    let text = scene.env.home().join(".local/state/studio/rate-limits");
    let files: Vec<String> = std::fs::read_dir(text)
        .expect("the shared state")
        .flatten()
        .map(|entry| std::fs::read_to_string(entry.path()).unwrap_or_default())
        .collect();
    assert!(files.iter().any(|text| text.contains("2026-01-02T17:42:00Z")), "{files:?}");
}

#[test]
fn resume_now_tries_one_session_at_once() {
    let scene = Scene::new();
    let limited = scene.exec(["--agent", "talk", LIMITED]);
    scene.await_state(&limited, "waiting");
    let queued = scene.exec(["--agent", "talk", "write c 1"]);
    assert_eq!(scene.status(&queued)["state"], "queued");
    scene.studio(["resume", &queued, "--now"]).exits(0);
    scene.await_state(&queued, "ready");
    // Its success ends the limit for the others.
    scene.await_state(&limited, "ready");
}

#[test]
fn parked_sessions_continue_by_themselves_and_the_attempt_is_not_counted() {
    let scene = real_time();
    let task = "write a 1; fail usage limit reached, try again in 100 s";
    let ids = [0, 1].map(|_| scene.exec(["--agent", "talk", "--max-turns", "3", task]));
    for id in &ids {
        let status = scene.await_state(id, "ready");
        assert_eq!((&status["attempt"], &status["files_changed"]), (&1.into(), &1.into()));
    }
    let parked = ids.iter().filter(|id| entries(&scene, id).contains(&"unparked".to_owned()));
    assert!(parked.count() >= 1);
}

/// Nothing runs that would start it: a process that only waits does.
#[test]
fn a_queued_session_starts_at_the_reset_without_another_command() {
    let scene = real_time();
    let task = "fail usage limit reached, try again in 400 s";
    let limited = scene.exec(["--agent", "talk", task]);
    scene.await_state(&limited, "waiting");
    let queued = scene.exec(["--agent", "talk", "write c 1"]);
    scene.studio(["stop", &limited]).exits(0);
    let journal = scene.session_file(&queued, "journal.jsonl");
    until("the queued session to be ready", || {
        let text = std::fs::read_to_string(&journal).unwrap_or_default();
        text.contains("\"state\":\"ready\"").then_some(())
    });
}

#[test]
fn a_limit_of_unknown_length_is_tried_again_with_growing_pauses() {
    let scene = real_time();
    let id = scene.exec(["--agent", "talk", "write a 1; fail Too many requests"]);
    scene.await_state(&id, "ready");
    assert!(entries(&scene, &id).contains(&"parked".to_owned()));
}

#[test]
fn retries_json_lines_and_printed_messages_park_a_session() {
    let retry = r#"event {"seq":1,"time":"t","type":"retry","why":"the provider limits requests (retry after 3600 s)","after_ms":3600000,"attempt":1}"#;
    let printed = "outcry You've hit your limit · resets 11am";
    for (agent, script) in [("talk", format!("{retry}; hang")), ("fake", printed.to_owned())] {
        let scene = Scene::new();
        let id = scene.exec(["--agent", agent, &script]);
        let status = scene.await_state(&id, "waiting");
        assert_eq!(status["why"], "rate limit until 11:00", "{agent}: {status}");
    }
}

/// Wakes the process that starts queued sessions, as a change of a rate limit does.
fn wake(scene: &Scene) {
    let directory = scene.env.home().join(".local/state/studio/rate-limits");
    let file = scene.env.home().join("wake");
    std::fs::write(&file, "").and_then(|()| std::fs::rename(file, directory.join("wake"))).ok();
}

/// Configures how much memory a session needs, in a file given with `--config` and, with another
/// value, in the user's.
fn needed_memory(scene: &Scene, mib: u64, of_user: u64) -> String {
    let line = |mib: u64| format!("limits.expected_memory_bytes = {}\n", mib << 20);
    let config = scene.env.home().join(".config/g3/config.toml");
    let other = scene.env.home().join("other.toml");
    scene.configure(&line(mib));
    std::fs::copy(&config, &other).expect("the home is writable");
    scene.configure(&line(of_user));
    other.display().to_string()
}

fn is_ready(scene: &Scene, id: &str) -> bool {
    let text = std::fs::read_to_string(scene.session_file(id, "journal.jsonl"));
    text.unwrap_or_default().contains("\"state\":\"ready\"")
}

#[test]
fn a_queued_session_starts_by_the_configuration_of_its_command() {
    let mut scene = real_time();
    scene.env.set("G3_TEST_MEMORY", 1 << 30);
    let other = needed_memory(&scene, 2048, 4096);
    let id = scene.exec(["--config", &other, "write a 1"]);
    assert_eq!(scene.status(&id)["state"], "queued");
    needed_memory(&scene, 512, 4096);
    until("the session to be ready", || {
        wake(&scene);
        is_ready(&scene, &id).then_some(())
    });
}

#[test]
fn a_failure_does_not_end_the_process_that_starts_queued_sessions() {
    let mut scene = real_time();
    scene.env.set("G3_TEST_MEMORY", 1 << 30);
    let other = needed_memory(&scene, 2048, 2048);
    let id = scene.exec(["--config", &other, "write a 1"]);
    let lock = scene.repo.path().join(".git/studio/scheduler.lock");
    std::fs::remove_file(&lock).expect("it is there");
    std::fs::create_dir(&lock).expect("it is ours");
    needed_memory(&scene, 512, 2048);
    let log = scene.repo.path().join(".git/studio/waker.log");
    until("two failures", || {
        wake(&scene);
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let has_failed = |line: &&str| line.contains("scheduler.lock") && line.contains("retrying");
        (text.lines().filter(has_failed).count() >= 2).then_some(())
    });
    std::fs::remove_dir(&lock).expect("it is ours");
    until("the session to be ready", || is_ready(&scene, &id).then_some(()));
}
