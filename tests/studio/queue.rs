//! `studio accept --all`: order, checks of combinations, refusals, crashes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;
use testkit::env::{CommandRun, until};

use crate::fixtures::{RESOLVES, Scene, studio};

/// A check that passes if every name in `uses` is in `names`.
const NAMES: &str = "for u in uses/*; do [ ! -e \"$u\" ] || grep -qx \"$(cat \"$u\")\" names || \
     { echo \"$u: unknown name\"; exit 1; }; done\n";

/// A repository with the check of names.
fn with_names() -> Scene {
    let scene = Scene::new();
    scene.configure("checks = \"sh check.sh\"");
    scene.repo.commit_file("names", "old\n");
    scene.repo.commit_file("check.sh", NAMES);
    scene
}

fn ready<const N: usize>(scene: &Scene, scripts: [&str; N]) -> [String; N] {
    let ids = scripts.map(|script| scene.ready(script));
    ids.iter().for_each(|id| scene.await_free(id));
    ids
}

fn ids(outcome: &Value, field: &str) -> Vec<String> {
    let sessions = outcome[field].as_array().expect("a list");
    sessions.iter().map(|it| it["id"].as_str().expect("an id").to_owned()).collect()
}

fn commits(scene: &Scene) -> usize {
    scene.repo.git(["rev-list", "--count", "main"]).trim().parse().expect("a number")
}

fn subjects(scene: &Scene) -> Vec<String> {
    scene.repo.git(["log", "--reverse", "--format=%s"]).lines().map(str::to_owned).collect()
}

fn is_clean(scene: &Scene) {
    scene.studio(["doctor"]);
    scene.studio(["doctor"]).exits(0).output_contains("no problems found");
    scene.repo.is_sound();
    assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
}

/// Checks that wait in the check worktree until the test lets them go on.
struct Gate {
    dir: PathBuf,
}

impl Gate {
    fn new(scene: &Scene) -> Gate {
        let dir = scene.env.home().join("gate");
        std::fs::create_dir(&dir).expect("the home is writable");
        let path = dir.display();
        // Sessions have a branch, check worktrees a detached HEAD.
        let line = format!(
            "git symbolic-ref -q HEAD >/dev/null || {{ mktemp {path}/run.XXXXXX; \
             while [ ! -e {path}/open ]; do sleep 0.05; done; }}"
        );
        scene.configure(&format!("checks = {line:?}\n[sandbox]\nwrite = [\"{path}\"]"));
        Gate { dir }
    }

    /// Returns how many checks have started on merged trees.
    fn runs(&self) -> usize {
        let entries = std::fs::read_dir(&self.dir).expect("it is there").flatten();
        entries.filter(|it| it.file_name().to_string_lossy().starts_with("run.")).count()
    }

    fn open(&self) {
        std::fs::write(self.dir.join("open"), "").expect("it is writable");
    }
}

/// Starts the queue and returns its result after a change while its checks run.
fn during_checks(scene: &Scene, gate: &Gate, change: impl FnOnce()) -> CommandRun {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| scene.studio(["accept", "--all", "--json"]));
        until("a check to run", || (gate.runs() > 0).then_some(()));
        change();
        gate.open();
        run.join().expect("it does not panic")
    })
}

#[test]
fn all_ready_sessions_land_as_commits_of_their_own() {
    let scene = with_names();
    let ids_before = ready(&scene, ["write a 1", "write b 1", "write c 1"]);
    let outcome = scene.studio(["accept", "--all", "--json"]).exits(0).json();
    assert_eq!(ids(&outcome, "landed"), ids_before);
    assert_eq!(ids(&outcome, "refused"), [""; 0]);
    assert_eq!((outcome["schema"].as_u64(), outcome["operation"].as_str()), (Some(1), Some("op3")));
    assert_eq!(subjects(&scene)[3..], ["Write a 1", "Write b 1", "Write c 1"]);
    for (n, landed) in outcome["landed"].as_array().unwrap().iter().enumerate() {
        let commit = landed["commit"].as_str().unwrap();
        let note = scene.repo.git(["notes", "--ref", "studio", "show", commit]);
        let receipt: Value = serde_json::from_str(&note).unwrap();
        assert_eq!(receipt["session"], ids_before[n].as_str());
        assert_eq!(receipt["checks"][0]["command"], "sh check.sh");
        let tree = scene.repo.git(["rev-parse", &format!("{commit}^{{tree}}")]);
        assert_eq!(receipt["tree"], tree.trim(), "what lands is what was checked");
    }
    // Each is an operation of its own.
    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.status(&ids_before[2])["state"], "ready");
    assert_eq!(scene.repo.read("b"), "1\n");
    scene.studio(["accept", "--all"]).exits(0).output_contains("landed on main");
    scene.studio(["accept", "--all"]).exits(0).output_contains("no ready sessions");
    is_clean(&scene);
}

#[test]
fn sessions_that_fail_only_together_are_told_apart() {
    let scene = with_names();
    let [first, renames, third, calls, last] = ready(
        &scene,
        ["write a 1", "write names new", "write c 1", "write uses/b old", "write e 1"],
    );
    let outcome = scene.studio(["accept", "--all", "--json"]).exits(1).json();
    assert_eq!(ids(&outcome, "landed"), [first, renames.clone(), third, last]);
    assert_eq!(ids(&outcome, "refused"), [calls.as_str()]);
    let refused = &outcome["refused"][0];
    assert_eq!(refused["fails_with"], renames.as_str(), "{refused}");
    let why = refused["why"].as_str().unwrap();
    assert!(why.contains(&format!("it passes without `{renames}`, which landed as")), "{why}");
    assert!(why.contains("fails together with it") && why.contains("unknown name"), "{why}");
    assert_eq!(scene.status(&calls)["state"], "ready");
    assert!(!scene.repo.path().join("uses").exists());
    // Again: it alone is refused, and nothing else is checked.
    let again = scene.studio(["accept", "--all", "--json"]).exits(1).json();
    assert_eq!((ids(&again, "landed"), ids(&again, "refused")), (vec![], vec![calls]));
    is_clean(&scene);
}

#[test]
fn a_session_that_fails_on_its_own_names_no_other() {
    let scene = with_names();
    let [good] = ready(&scene, ["write a 1"]);
    // It passes on the session's branch, and fails in every check worktree.
    let bad = scene.exec(["--check", "git symbolic-ref -q HEAD", "write b 1"]);
    scene.await_state(&bad, "ready");
    scene.await_free(&bad);
    let outcome = scene.studio(["accept", "--all", "--json"]).exits(1).json();
    assert_eq!(ids(&outcome, "landed"), [good]);
    let refused = &outcome["refused"][0];
    assert_eq!((&refused["id"], &refused["fails_with"]), (&bad.as_str().into(), &Value::Null));
    assert!(refused["why"].as_str().unwrap().contains("also fails on `main`"), "{refused}");
}

#[test]
fn a_flaky_check_is_repeated_once_and_told() {
    let scene = Scene::new();
    scene.repo.commit_file(".gitignore", "seen\n");
    let check = "git symbolic-ref -q HEAD >/dev/null || [ -e seen/it ] || { mkdir -p seen; : > seen/it; exit 1; }";
    scene.configure(&format!("checks = {check:?}\ncheck_caches = [\"seen\"]"));
    let [id] = ready(&scene, ["write a 1"]);
    let outcome = scene.studio(["accept", "--all", "--json"]).exits(0).json();
    assert_eq!(ids(&outcome, "landed"), [id]);
    assert_eq!(outcome["landed"][0]["checks"][0]["flaky"], true, "{outcome}");
    let note = scene.repo.git(["notes", "--ref", "studio", "show"]);
    let receipt: Value = serde_json::from_str(&note).unwrap();
    assert_eq!(receipt["checks"][0]["flaky"], true, "{receipt}");

    let other = check.replace("seen/it", "seen/other");
    scene.configure(&format!("checks = {other:?}\ncheck_caches = [\"seen\"]"));
    ready(&scene, ["write b 1"]);
    scene
        .studio(["accept", "--all"])
        .exits(0)
        .output_contains("is flaky: it failed, and passed when it was repeated");
}

#[test]
fn a_conflict_refuses_one_session_and_its_agent_can_resolve_it() {
    let scene = with_names();
    let [hub, left, right] = ready(&scene, [RESOLVES, "write shared left", "write other 1"]);
    let outcome = scene.studio(["accept", "--all", "--json"]).exits(4).json();
    assert_eq!(ids(&outcome, "landed").len(), 2, "{outcome}");
    assert!(ids(&outcome, "landed").contains(&right));
    let refused = &outcome["refused"][0];
    assert_eq!((refused["exit"].as_u64(), &refused["files"][0]), (Some(4), &"shared".into()));
    // The one that comes first lands; undo both, so that the other one lands first.
    scene.studio(["undo"]).exits(0);
    scene.studio(["undo"]).exits(0);
    scene.studio(["accept", &left, "-m", "Left"]).exits(0);
    let outcome = scene.studio(["accept", "--all", "--resolve", "--json"]).exits(0).json();
    let landed: BTreeSet<String> = ids(&outcome, "landed").into_iter().collect();
    assert_eq!(landed, BTreeSet::from([hub.clone(), right]));
    assert_eq!(scene.repo.read("shared"), "resolved\n");
    let turns = scene.journal(&hub).iter().filter(|line| line["entry"] == "turn").count();
    assert_eq!(turns, 2);
    is_clean(&scene);
}

#[test]
fn an_agent_gets_a_bounded_number_of_turns_for_a_conflict() {
    let scene = Scene::new();
    let [stubborn] = ready(&scene, ["write shared mine"]);
    scene.repo.commit_file("shared", "theirs\n");
    let ran = scene.studio(["accept", "--all", "--resolve=2"]);
    ran.exits(4).output_contains("its agent gets a turn to resolve it");
    let turns = scene.journal(&stubborn).iter().filter(|line| line["entry"] == "turn").count();
    assert_eq!(turns, 3, "the task and two turns");
    assert_eq!(scene.status(&stubborn)["state"], "ready");
}

#[test]
fn a_session_discarded_during_the_queue_does_not_land() {
    let scene = Scene::new();
    let gate = Gate::new(&scene);
    let [first, dropped, last] = ready(&scene, ["write a 1", "write b 1", "write c 1"]);
    let ran = during_checks(&scene, &gate, || {
        scene.studio(["discard", &dropped]).exits(0);
    });
    let outcome = ran.exits(3).json();
    assert_eq!(ids(&outcome, "landed"), [first, last]);
    assert_eq!(ids(&outcome, "refused"), [dropped.as_str()]);
    let why = outcome["refused"][0]["why"].as_str().unwrap();
    assert!(why.contains("is already discarded"), "{why}");
    assert!(!scene.repo.path().join("b").exists());
    scene.studio(["undo", "op1"]).exits(0);
    assert_eq!(scene.status(&dropped)["state"], "ready");
    is_clean(&scene);
}

#[test]
fn a_commit_of_the_user_during_the_queue_is_kept_and_checked() {
    let scene = Scene::new();
    let gate = Gate::new(&scene);
    let landed = ready(&scene, ["write a 1", "write b 1"]);
    let mut before = 0;
    let ran = during_checks(&scene, &gate, || {
        before = gate.runs();
        scene.repo.commit_file("mine", "1\n");
    });
    let outcome = ran.exits(0).json();
    assert_eq!(ids(&outcome, "landed"), landed);
    assert_eq!(subjects(&scene)[1..], ["add mine", "Write a 1", "Write b 1"]);
    assert!(gate.runs() >= before + 2, "both trees were checked again");
    is_clean(&scene);
}

#[test]
fn work_that_changes_during_the_queue_is_checked_again_before_it_lands() {
    let scene = Scene::new();
    let gate = Gate::new(&scene);
    let [id] = ready(&scene, ["write a 1"]);
    let ran = during_checks(&scene, &gate, || scene.worktree(&id).write("more", "1\n"));
    let outcome = ran.exits(0).json();
    assert_eq!(ids(&outcome, "landed"), [id]);
    assert_eq!(scene.repo.read("more"), "1\n");
    assert_eq!(gate.runs(), 2);
}

#[test]
fn two_queues_at_once_land_each_session_once() {
    let scene = Scene::new();
    let gate = Gate::new(&scene);
    ready(&scene, ["write a 1", "write b 1", "write c 1"]);
    std::thread::scope(|scope| {
        let runs = [1, 2].map(|_| scope.spawn(|| scene.studio(["accept", "--all"])));
        until("a check to run", || (gate.runs() > 0).then_some(()));
        gate.open();
        for run in runs {
            run.join().expect("it does not panic").exits(0);
        }
    });
    assert_eq!(commits(&scene), 4);
    assert_eq!(gate.runs(), 3, "no tree was checked twice");
    is_clean(&scene);
}

#[test]
fn a_stacked_session_lands_after_the_one_it_is_based_on() {
    let scene = with_names();
    let [below] = ready(&scene, ["write a 1; commit a; write more 1"]);
    let branch = scene.status(&below)["branch"].as_str().unwrap().to_owned();
    let above = scene.exec(["--base", &branch, "write b 1; sh echo 2 >> a"]);
    scene.await_state(&above, "ready");
    scene.await_free(&above);
    scene
        .studio(["accept", &above])
        .exits(3)
        .output_contains(&format!("it is based on `{below}`, which has not landed"));
    let outcome = scene.studio(["accept", "--all", "--json"]).exits(0).json();
    assert_eq!(ids(&outcome, "landed"), [below, above]);
    assert_eq!(scene.repo.git(["show", "--format=", "--name-only", "main"]).trim(), "a\nb");
    assert_eq!(scene.repo.read("a"), "1\n2\n");
    is_clean(&scene);
}

#[test]
fn a_dry_run_of_the_queue_checks_all_and_lands_nothing() {
    let scene = with_names();
    ready(&scene, ["write names new", "write uses/b old", "write c 1"]);
    let before = scene.repo.everything();
    let outcome = scene.studio(["accept", "--all", "--dry-run", "--json"]).exits(1).json();
    assert_eq!((ids(&outcome, "landed").len(), ids(&outcome, "refused").len()), (2, 1));
    assert_eq!(outcome["landed"][0]["commit"], Value::Null);
    assert_eq!(scene.repo.everything(), before);
}

/// Runs studio with a variable of the crash tests.
fn with(scene: &Scene, key: &str, value: &str) -> CommandRun {
    let job = scene.env.command(studio(), scene.repo.path()).args(["accept", "--all"]);
    scene.env.run_command(job.env(key, value))
}

#[test]
fn a_queue_killed_at_any_step_continues_and_lands_each_session_once() {
    let prepared = || {
        let scene = with_names();
        ready(&scene, ["write a 1", "write b 1"]);
        scene
    };
    let scene = prepared();
    let file = scene.env.home().join("steps");
    with(&scene, "G3_TEST_STEPS", &file.display().to_string()).exits(0);
    let text = std::fs::read_to_string(file).expect("there are steps");
    let names: BTreeSet<&str> = text.lines().collect();
    assert!(names.contains("queue.checked") && names.contains("accept.moved"), "{names:?}");
    for name in names {
        // In the second landing, if it passes twice: then the first session has landed.
        let passes = text.lines().filter(|line| *line == name).count();
        let at = format!("{name}:{}", passes.min(2));
        let scene = prepared();
        let killed = with(&scene, "G3_TEST_KILL_AT", &at);
        assert_eq!(killed.code, 137, "{at}: {killed}");
        let again = scene.studio(["accept", "--all"]);
        again.exits(0);
        assert_eq!((scene.repo.read("a"), scene.repo.read("b")), ("1\n".into(), "1\n".into()));
        assert_eq!(commits(&scene), 5, "{at}");
        is_clean(&scene);
    }
}

#[test]
fn an_error_after_a_landing_loses_no_report_and_no_further_work() {
    let json = |scene: &Scene| scene.studio(["accept", "--all", "--json"]).exits(1).json();
    // The scheduler cannot be called after each landing.
    let scene = Scene::new();
    let landed = ready(&scene, ["write a 1", "write b 1"]);
    let lock = scene.repo.path().join(".git/studio/scheduler.lock");
    std::fs::remove_file(&lock).expect("it is there");
    std::fs::create_dir(&lock).expect("it is ours");
    let outcome = json(&scene);
    assert_eq!(ids(&outcome, "landed"), landed, "{outcome}");
    assert_eq!(ids(&outcome, "refused"), [""; 0], "{outcome}");
    let what = outcome["error"]["what"].as_str().unwrap_or_default();
    assert!(what.contains("scheduler.lock"), "{outcome}");
    std::fs::remove_dir(&lock).expect("it is ours");
    let [last] = ready(&scene, ["write c 1"]);
    std::fs::remove_file(&lock).expect("it is there");
    std::fs::create_dir(&lock).expect("it is ours");
    let text = scene.studio(["accept", "--all"]);
    text.exits(1).output_contains(&format!("{last} landed on main"));
    assert!(text.err.lines().any(|line| line.starts_with("error: cannot lock")), "{text}");

    // The reason of a refusal cannot be found after the first session has landed.
    let scene = Scene::new();
    let dir = scene.env.home().join("gate");
    std::fs::create_dir(&dir).expect("the home is writable");
    let path = dir.display();
    let check = format!(
        "git symbolic-ref -q HEAD >/dev/null || [ ! -e b ] || {{ mktemp {path}/run.XXXXXX; \
         [ $(ls {path} | grep -c run) = 1 ] || while [ ! -e {path}/open ]; do sleep 0.05; done; \
         exit 1; }}"
    );
    scene.configure(&format!("checks = {check:?}\n[sandbox]\nwrite = [\"{path}\"]"));
    let [good, bad] = ready(&scene, ["write a 1", "write b 1"]);
    let slot = scene.repo.path().join(".git/studio/checks/1/lock");
    let outcome = std::thread::scope(|scope| {
        let run = scope.spawn(|| json(&scene));
        let runs = || std::fs::read_dir(&dir).expect("it is there").count();
        until("the repeated check", || (runs() == 2).then_some(()));
        until("the landing", || scene.repo.path().join("a").exists().then_some(()));
        // From now on no check can run.
        std::fs::remove_file(&slot).expect("it is there");
        std::fs::create_dir(&slot).expect("it is ours");
        std::fs::write(dir.join("open"), "").expect("it is writable");
        run.join().expect("it does not panic")
    });
    assert_eq!(ids(&outcome, "landed"), [good], "{outcome}");
    assert_eq!(ids(&outcome, "refused"), [bad.as_str()], "{outcome}");
    assert_eq!(outcome["error"]["what"], "cannot prepare the worktree for the checks");
    let rechecked = scene.session_file(&bad, "target_check.json");
    until("the checks after the landing", || rechecked.exists().then_some(()));
}

/// Returns what `--status` says about a session.
fn queued(scene: &Scene, id: &str) -> Value {
    let status = scene.studio(["accept", "--all", "--status", "--json"]).exits(0).json();
    let sessions = status["sessions"].as_array().expect("a list").clone();
    sessions.into_iter().find(|it| it["id"] == id).unwrap_or_default()
}

#[test]
fn the_progress_of_the_queue_is_shown_while_it_runs_and_after() {
    let scene = Scene::new();
    let gate = Gate::new(&scene);
    let status = || scene.studio(["accept", "--all", "--status"]);
    status().output_contains("no queue has run yet");
    let [good, clash, other] = ready(&scene, ["write a 1", "write same 1", "write same 2"]);
    status().output_contains("ready to land").output_contains(&good);
    let json = || scene.studio(["accept", "--all", "--status", "--json"]).exits(0).json();
    assert_eq!((&json()["state"], &json()["began_at"]), (&"none".into(), &Value::Null));
    scene.studio(["accept", "--all", "--dry-run", "--no-checks"]);
    assert_eq!(json()["state"], "none", "a dry run is not recorded");
    during_checks(&scene, &gate, || {
        assert_eq!(json()["state"], "running");
        let activity = || {
            let activity = queued(&scene, &good)["activity"].as_str().map(str::to_owned);
            activity.filter(|activity| activity.contains("checking"))
        };
        let activity = until("the check to be named", activity);
        assert!(activity.contains("checking `git symbolic-ref"), "{activity}");
        assert!(activity.contains("on the merged tree"), "{activity}");
        assert_eq!(queued(&scene, &good)["state"], "waiting");
        status().output_contains("the queue has been running for").output_contains("checking `git");
    });
    let commit = queued(&scene, &good)["commit"].as_str().unwrap().to_owned();
    assert!(scene.repo.git(["log", "--format=%H"]).contains(&commit));
    assert_eq!(json()["state"], "over");
    let states = [&clash, &other].map(|id| queued(&scene, id)["state"].clone());
    let refused = if states[0] == "refused" { &clash } else { &other };
    assert!(states.contains(&"refused".into()) && states.contains(&"landed".into()), "{states:?}");
    assert!(queued(&scene, refused)["reason"].as_str().unwrap().contains("conflict"));
    assert_eq!(queued(&scene, refused)["activity"], Value::Null);
    assert_eq!(json()["ready"], serde_json::json!([refused]));
    status().output_contains("landed as").output_contains("refused:");
    // Without sessions to land, the last result stays.
    scene.studio(["discard", refused, "--yes"]).exits(0);
    scene.studio(["accept", "--all"]).exits(0);
    assert_eq!(json()["sessions"].as_array().unwrap().len(), 3);
    scene.studio(["accept", "--status"]).exits(2);
}

#[test]
fn a_killed_queue_is_not_shown_as_running() {
    let scene = Scene::new();
    let gate = Gate::new(&scene);
    let [first, second] = ready(&scene, ["write a 1", "write b 1"]);
    let args = ["accept", "--all"];
    let mut running = scene.env.start(studio(), scene.repo.path(), args);
    until("a check to run", || (gate.runs() > 0).then_some(()));
    let id = rustix::process::Pid::from_raw(running.id().cast_signed()).expect("a process");
    rustix::process::kill_process(id, rustix::process::Signal::KILL).expect("it runs");
    until("the queue to end", || running.wait_until(None).ok().flatten());
    let status = || scene.studio(["accept", "--all", "--status", "--json"]).exits(0).json();
    until("the lock to be free", || (status()["state"] == "interrupted").then_some(()));
    for id in [&first, &second] {
        let session = queued(&scene, id);
        assert_eq!((&session["state"], &session["activity"]), (&"waiting".into(), &Value::Null));
    }
    scene.studio(["accept", "--all", "--status"]).output_contains("was killed");
    gate.open();
    let outcome = scene.studio(["accept", "--all", "--json"]).exits(0).json();
    assert_eq!(ids(&outcome, "landed"), [first, second]);
    assert_eq!(status()["state"], "over");
    is_clean(&scene);
}
