//! Checks that cannot pass, work that changed after its agent ended, and work that lands unchecked.

use serde_json::Value;
use testkit::env::until;

use crate::fixtures::{Scene, studio};

/// Creates a session that failed at its check.
fn failed(scene: &Scene, task: &str, check: &str) -> String {
    let id = scene.exec([task, "--check", check]);
    let failed = || (scene.status(&id)["state"] == "failed").then_some(());
    until("the session to fail", failed);
    scene.await_free(&id);
    id
}

#[test]
fn the_tools_of_a_check_come_from_outside_of_the_sessions() {
    let mut scene = Scene::new();
    scene.configure("checks = \"true\"");
    let plant = "sh mkdir bin && printf '#!/bin/sh\\nexit 0\\n' > bin/tool && chmod +x bin/tool";
    let id = scene.ready(plant);
    let other = scene.ready("write b 1");
    scene.await_free(&id);
    scene.await_free(&other);
    let worktree = scene.worktree(&id);
    let bin = worktree.path().join("bin");
    let path = std::env::var("PATH").unwrap_or_default();
    scene.env.set("PATH", format!("{}:bin:{path}", bin.display()));
    scene.env.set("RUSTC_WRAPPER", bin.join("tool").display());
    scene.env.set("NODE_OPTIONS", format!("--require={}", bin.join("tool").display()));
    // Without studio, the planted program is found.
    scene.env.run("sh", worktree.path(), ["-c", "tool && \"$RUSTC_WRAPPER\""]).exits(0);
    for id in [&id, &other] {
        scene.studio(["check", id, "--check", "tool"]).exits(1);
        let unset = "test -z \"$RUSTC_WRAPPER$NODE_OPTIONS\" && command -v git";
        scene.studio(["check", id, "--check", unset]).exits(0);
    }
    scene.studio(["accept", &id, "--dry-run"]).exits(0);
}

#[test]
fn checks_run_again_without_the_agent() {
    let scene = Scene::new();
    let id = failed(&scene, "write a 1", "test -e \"$HOME/../flag\" || test -e fixed");
    scene.studio(["accept", &id]).exits(3).output_contains(&format!("studio check {id}"));
    scene
        .studio(["check", &id])
        .exits(1)
        .output_contains("failed with exit code 1")
        .output_contains("is failed");
    let turns = scene.journal(&id).iter().filter(|line| line["entry"] == "turn").count();
    scene.worktree(&id).write("fixed", "");
    let ran = scene.studio(["check", &id, "--json"]);
    assert_eq!(ran.exits(0).json()["state"], "ready");
    assert_eq!(ran.json()["checks"][0]["ok"], true);
    let now = scene.journal(&id).iter().filter(|line| line["entry"] == "turn").count();
    assert_eq!(now, turns, "the agent had no turn");
    scene.studio(["accept", &id, "-m", "Land"]).exits(0).output_contains("landed on main");
    scene.studio(["check", &id]).exits(3).output_contains("already");
}

#[test]
fn trying_one_check_does_not_change_the_state() {
    let scene = Scene::new();
    let id = failed(&scene, "write a 1", "false");
    scene.studio(["check", &id, "--check", "test -e a"]).exits(0).output_contains("passed");
    assert_eq!(scene.status(&id)["state"], "failed");
    let empty = scene.exec(["nothing"]);
    scene.await_state(&empty, "empty");
    scene.await_free(&empty);
    scene.studio(["check", &empty]).exits(3).output_contains("nothing to check");
}

#[test]
fn a_change_of_a_sessions_checks_is_recorded() {
    let scene = Scene::new();
    let id = failed(&scene, "write a 1", "tset -e a");
    scene.studio(["edit", &id]).exits(2).output_contains("nothing to change");
    scene.studio(["edit", &id, "--check", " "]).exits(2).output_contains("a check is empty");
    scene.studio(["edit", &id, "--check", "x", "--no-checks"]).exits(2);
    let ran = scene.studio(["edit", &id, "--check", "test -e a", "--add-check", "test -d ."]);
    ran.exits(0)
        .output_contains("check `test -e a`")
        .output_contains(&format!("studio check {id}"));
    scene
        .studio(["logs", &id])
        .exits(0)
        .output_contains("you: set the checks to `test -e a`, `test -d .`");
    scene.studio(["check", &id]).exits(0).output_contains("is ready: all 2 checks passed");
    // The ready state was established by other checks.
    scene.studio(["edit", &id, "--add-check", "test -e b"]).exits(0);
    let status = scene.status(&id);
    assert_eq!(status["state"], "stopped", "{status}");
    scene.studio(["status", &id]).output_contains("its checks were changed and have not run");
    scene
        .studio(["accept", &id, "-m", "Land"])
        .exits(3)
        .output_contains(&format!("studio check {id}"));
    scene.studio(["edit", &id, "--check", "test -e a"]).exits(0);
    assert_eq!(scene.status(&id)["state"], "ready", "these have passed");
    scene.studio(["accept", &id, "-m", "Land", "--json"]).exits(0);
    let receipt: Value =
        serde_json::from_str(&scene.repo.git(["notes", "--ref", "studio", "show"])).unwrap();
    assert_eq!(receipt["checks"][0]["command"], "test -e a");
    assert_eq!(receipt.get("no_checks"), None);
}

#[test]
fn a_queued_session_starts_with_its_new_checks() {
    let scene = Scene::new();
    let first = scene.exec(["write a 1; gate go", "-j", "1"]);
    let second = scene.exec(["write b 2", "--check", "false", "-j", "1"]);
    until("the first to work", || (scene.status(&first)["state"] == "working").then_some(()));
    scene.studio(["edit", &first, "--no-checks"]).exits(3).output_contains("studio stop");
    scene.studio(["edit", &second, "--check", "true"]).exits(0);
    scene.worktree(&first).write("go", "");
    scene.await_state(&second, "ready");
}

#[test]
fn unchecked_work_lands_only_on_request_and_the_receipt_records_it() {
    let scene = Scene::new();
    let id = failed(&scene, "write a 1", "false");
    scene.studio(["accept", &id, "--force", "-m", "Land"]).exits(1).output_contains("--no-checks");
    let ran = scene.studio(["accept", &id, "--no-checks", "-m", "Land"]);
    ran.exits(0)
        .output_contains("no checks were run (--no-checks)")
        .output_contains("landed on main");
    let receipt: Value =
        serde_json::from_str(&scene.repo.git(["notes", "--ref", "studio", "show"])).unwrap();
    assert_eq!((&receipt["no_checks"], &receipt["checks"]), (&true.into(), &Value::Array(vec![])));
}

#[test]
fn a_check_that_also_fails_on_the_base_is_reported() {
    let scene = Scene::new();
    let id = failed(&scene, "write a 1", "test -e never");
    let why = scene.status(&id)["why"].as_str().unwrap().to_owned();
    assert!(why.ends_with("; this check also fails on `main`"), "{why}");
    assert_eq!(scene.status(&id)["checks"][0]["fails_on"], "main");
    scene.studio(["status", &id]).exits(0).output_contains("it also fails on `main`");
    let accepted = scene.studio(["accept", &id, "--force", "-m", "Land"]);
    accepted.exits(1).output_contains("this check also fails on `main`");
    let own = failed(&scene, "write broken 1", "test ! -e broken");
    let why = scene.status(&own)["why"].as_str().unwrap().to_owned();
    assert!(!why.contains("also fails"), "{why}");
    let accepted = scene.studio(["accept", &own, "--force", "-m", "Land"]);
    accepted.exits(1).output_lacks("also fails").output_contains("no output");
}

#[test]
fn a_worktree_changed_by_hand_is_not_empty() {
    let scene = Scene::new();
    scene.configure("checks = [\"test -e made\"]");
    for committed in [false, true] {
        let name = if committed { "committed" } else { "written" };
        let id = scene.exec(["nothing"]);
        scene.await_state(&id, "empty");
        scene.await_free(&id);
        let worktree = scene.worktree(&id);
        worktree.write("made", name);
        if committed {
            worktree.git(["add", "-A"]);
            worktree.git(["commit", "-q", "-m", "By hand"]);
        }
        scene.studio(["diff", &id]).exits(0).output_contains(&format!("+{name}"));
        let page = scene.studio(["status", &id]);
        page.exits(0)
            .output_contains("1 file")
            .output_contains("changed by hand")
            .output_contains(&format!("studio check {id}"));
        scene.studio(["accept", &id, "-m", "Land"]).exits(3).output_contains("accept --force");
        match committed {
            true => scene.studio(["check", &id]).exits(0).output_contains("is ready"),
            false => scene
                .studio(["accept", &id, "--force", "-m", "Land"])
                .exits(0)
                .output_contains("landed"),
        };
        if committed {
            scene.studio(["accept", &id, "-m", "Land"]).exits(0).output_contains("landed on main");
        }
        assert_eq!(scene.repo.read("made"), name);
    }
}

#[test]
fn reverted_changes_by_hand_leave_a_session_empty() {
    let scene = Scene::new();
    let id = scene.exec(["nothing"]);
    scene.await_state(&id, "empty");
    scene.await_free(&id);
    let worktree = scene.worktree(&id);
    worktree.write("made", "x");
    assert_eq!(scene.status(&id)["state"], "stopped");
    std::fs::remove_file(worktree.path().join("made")).unwrap();
    assert_eq!(scene.status(&id)["state"], "empty");
    scene
        .studio(["accept", &id, "--force", "-m", "Land"])
        .exits(3)
        .output_contains("nothing to land");
}

#[test]
fn a_session_with_one_too_large_file_reports_it_and_lands_it_on_request() {
    let scene = Scene::new();
    let id = scene.exec(["sh head -c 12000000 /dev/zero > big.bin"]);
    scene.await_state(&id, "empty");
    scene.await_free(&id);
    let why = scene.status(&id)["why"].as_str().unwrap().to_owned();
    assert!(why.contains("its only change, big.bin, is left out"), "{why}");
    let include = format!("studio accept {id} --include 'big.bin'");
    scene.studio(["status", &id]).output_contains("larger than 10 MB").output_contains(&include);
    scene.studio(["accept", &id, "-m", "Land"]).exits(3).output_contains(&include);
    scene
        .studio(["accept", &id, "--include", "big.bin", "-m", "Land"])
        .exits(0)
        .output_contains("landed");
    assert_eq!(scene.repo.git(["cat-file", "-s", "main:big.bin"]), "12000000");
}

#[test]
fn errors_and_notes_of_a_batch_name_their_session() {
    let scene = Scene::new();
    let red = failed(&scene, "write a 1", "test -e never");
    let good = scene.ready("write b 2");
    scene.await_free(&good);
    let ran = scene.studio(["accept", &red, &good, "--force", "-m", "Land"]);
    ran.exits(1).output_contains(&format!("error: {red}: check `test -e never` fails"));
    ran.output_contains(&format!("{red}: checking `test -e never` on the merged tree"));
    let ids = [scene.ready("write c 3"), scene.ready("write d 4")];
    ids.iter().for_each(|id| scene.await_free(id));
    let ran = scene.studio(["accept", &ids[0], &ids[1], "--no-checks", "-m", "Land"]);
    ran.exits(0);
    for id in &ids {
        ran.output_contains(&format!("note: {id}: no checks were run"));
    }
}

#[test]
fn ctrl_c_during_checks_leaves_no_process_behind() {
    let scene = Scene::new();
    let mark = scene.env.home().join("tmp/checking");
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    // Only the landing's check waits: in the sandbox of the main checkout it finds no worktree of
    // `id`.
    scene.studio(["edit", &id, "--check", "echo begun; exec sleep 600"]).exits(0);
    let before = scene.repo.everything();
    let args = ["accept", &id, "--force", "-m", "Land"];
    let mut landing = scene.env.start(studio(), scene.repo.path(), args);
    let packs = scene.repo.path().join(".git/objects/pack");
    let keeps = || {
        let all = std::fs::read_dir(&packs).into_iter().flatten().flatten();
        all.filter(|entry| entry.path().extension().is_some_and(|ext| ext == "keep")).count()
    };
    until("the check to run", || (keeps() > 0 && sleeps(&scene) > 0).then_some(()));
    base::process::signal_group(landing.id(), rustix::process::Signal::INT);
    let status = landing.wait_until(None).unwrap().expect("it ends");
    assert_eq!(status.code(), Some(130));
    assert_eq!(keeps(), 0, "no pack is kept");
    assert_eq!(scene.repo.everything(), before);
    until("the check to end", || (sleeps(&scene) == 0).then_some(()));
    let scratch = scene.repo.path().join(".git/studio/scratch");
    assert_eq!(std::fs::read_dir(scratch).map_or(0, Iterator::count), 0);
    assert!(!mark.exists());
    scene.studio(["doctor"]).exits(0).output_lacks("removed");
    scene.studio(["accept", &id, "--no-checks", "--force", "-m", "Land"]).exits(0);
}

/// Returns the number of sleeping processes of this test.
fn sleeps(scene: &Scene) -> usize {
    let home = scene.env.home().to_string_lossy().into_owned();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter(|entry| {
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let ours = String::from_utf8_lossy(&read("environ")).contains(&home);
        ours && read("cmdline").starts_with(b"sleep\x00600")
    })
    .count()
}
