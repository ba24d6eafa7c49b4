//! Ready sessions whose target has moved are checked again without being asked.

use testkit::env::{in_process_namespace, poll, until};

use crate::fixtures::{OpenCounter, Scene, studio};

/// A check that counts its runs on merged trees in a directory outside of the sandbox.
fn scene(check: &str, more: &str) -> (Scene, std::path::PathBuf) {
    let scene = Scene::new();
    let dir = scene.env.home().join("runs");
    std::fs::create_dir(&dir).expect("the home is writable");
    let path = dir.display();
    let line = format!("git symbolic-ref -q HEAD >/dev/null || mktemp {path}/run.XXXXXX; {check}");
    scene.configure(&format!("checks = {line:?}\n{more}\n[sandbox]\nwrite = [\"{path}\"]"));
    (scene, dir)
}

/// Waits for a check with a lower priority, which takes its time on a busy machine.
fn await_check<T>(condition: impl Fn() -> Option<T>) -> T {
    let result = (0..20).find_map(|_| poll(&condition));
    result.expect("the check in the background ends")
}

/// Removes the setting that turns the checks in the background off.
fn turn_on(scene: &Scene) {
    let config = scene.env.home().join(".config/g3/config.toml");
    let text = std::fs::read_to_string(&config).expect("it is there");
    let text = text.replace("recheck = false", "");
    std::fs::write(&config, text).expect("the home is writable");
}

fn runs(dir: &std::path::Path) -> usize {
    std::fs::read_dir(dir).expect("it is there").count()
}

#[test]
fn sessions_behind_their_target_are_checked_and_land_without_another_check() {
    let (scene, dir) = scene("true", "");
    let [first, second] = ["write a 1", "write b 1"].map(|task| scene.ready(task));
    [&first, &second].iter().for_each(|id| scene.await_free(id));
    scene.studio(["accept", &first]).exits(0);
    let file = scene.session_file(&second, "target_check.json");
    await_check(|| file.exists().then_some(()));
    let before = runs(&dir);
    assert_eq!(before, 2, "the landing, and the session that was left behind");
    assert_eq!(scene.status(&second)["state"], "ready");
    scene.studio(["accept", &second]).exits(0);
    assert_eq!(runs(&dir), before);
}

#[test]
fn a_session_that_fails_on_the_new_tip_says_so_and_stays_ready() {
    let (scene, _) = scene("! [ -e a ] || ! [ -e b ]", "");
    let [first, breaks, conflicts] =
        ["write a 1", "write b 1", "write a 2"].map(|task| scene.ready(task));
    [&first, &breaks, &conflicts].iter().for_each(|id| scene.await_free(id));
    let before = scene.repo.rev("main");
    scene.studio(["accept", &first]).exits(0);
    let why = |id: &str| scene.status(id)["why"].as_str().unwrap_or_default().to_owned();
    let tip = scene.repo.rev("main");
    assert_ne!(tip, before);
    await_check(|| why(&breaks).contains("fails on the merged tree").then_some(()));
    await_check(|| why(&conflicts).contains("conflict in a").then_some(()));
    assert!(why(&breaks).contains(&format!("merged with `main` at {}", &tip[..12])));
    assert_eq!(scene.status(&breaks)["state"], "ready");
    assert_eq!(scene.status(&conflicts)["conflicts"], serde_json::json!(["a"]));
    scene.studio(["list"]).exits(0).output_contains("ready");
    // The tip that it failed on is gone.
    scene.studio(["undo"]).exits(0);
    assert!(!why(&breaks).contains("merged with"), "{}", why(&breaks));
}

#[test]
fn the_checks_in_the_background_can_be_turned_off() {
    let (scene, dir) = scene("true", "recheck = false");
    let [first, second] = ["write a 1", "write b 1"].map(|task| scene.ready(task));
    [&first, &second].iter().for_each(|id| scene.await_free(id));
    scene.studio(["accept", &first]).exits(0);
    scene.studio(["accept", &second]).exits(0);
    assert_eq!(runs(&dir), 2);
    assert!(!scene.session_file(&second, "target_check.json").exists());
}

#[test]
fn a_result_that_cannot_be_stored_ends_the_checks_in_the_background() {
    let (scene, _) = scene("true", "");
    let [first, second] = ["write a 1", "write b 1"].map(|task| scene.ready(task));
    [&first, &second].iter().for_each(|id| scene.await_free(id));
    std::fs::create_dir(scene.session_file(&second, "target_check.json")).expect("it is ours");
    scene.studio(["accept", &first]).exits(0);
    let root = scene.repo.path().display().to_string();
    let recheck = ["__recheck", &format!("{root}/.git"), &root];
    // One that `accept` started may be running; a second one then ends at once.
    let failed =
        until("the checks to fail", || Some(scene.studio(recheck)).filter(|ran| ran.code != 0));
    failed.exits(1).output_contains("target_check.json");
}

#[test]
fn a_pass_reads_each_session_once_however_many_it_checks() {
    let (scene, _) = scene("true", "recheck = false");
    let idle = scene.exec(["--agent", "talk", "say nothing"]);
    scene.await_state(&idle, "empty");
    let tasks = ["write a 1", "write b 1", "write c 1", "write d 1", "write e 1"];
    let ids = tasks.map(|task| scene.ready(task));
    ids.iter().chain([&idle]).for_each(|id| scene.await_supervisor(id));
    scene.studio(["accept", &ids[0]]).exits(0);
    turn_on(&scene);

    let opened = OpenCounter::of(&scene.session_file(&idle, "session.json"));
    let root = scene.repo.path().display().to_string();
    scene.studio(["__recheck", &format!("{root}/.git"), &root]).exits(0);
    for id in &ids[1..] {
        assert!(scene.session_file(id, "target_check.json").exists(), "{id}");
    }
    assert_eq!(opened.count(), 1);
}

/// These tests need namespaces (unshare -r).
mod needs_mount_namespace {
    use super::*;

    #[test]
    #[ignore = "needs namespaces of its own (unshare -r)"]
    fn the_checks_run_in_a_namespace_without_the_leader_of_their_process_session() {
        let (scene, _) = scene("true", "recheck = false");
        let [first, second] = ["write a 1", "write b 1"].map(|task| scene.ready(task));
        [&first, &second].iter().for_each(|id| scene.await_supervisor(id));
        scene.studio(["accept", &first]).exits(0);
        turn_on(&scene);
        let root = scene.repo.path();
        let words = in_process_namespace();
        let job = scene.env.command(words[0], root).args(&words[1..]).arg(studio());
        let job = job.arg("__recheck").arg(root.join(".git")).arg(root);
        scene.env.run_command(job).exits(0);
        assert!(scene.session_file(&second, "target_check.json").exists());
    }
}
