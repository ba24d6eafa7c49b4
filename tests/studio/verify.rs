//! `studio verify`: re-runs the recorded checks on landed work.

use std::fs;

use serde_json::{Value, json};
use testkit::env::until;

use crate::fixtures::{Scene, studio};

const WISHES: &str = "{{CURRENT REQUIREMENTS}}\n\n- R1: a log\n";

/// Creates a repository with one landed session for R1, with this configured check, or with this
/// one given by flag.
fn landed(configured: &str, typed: Option<&str>) -> Scene {
    let scene = Scene::new();
    scene.configure(configured);
    scene.repo.commit_file("g3-plan/current_requirements.md", WISHES);
    land(&scene, "write log 1", "'R1'", typed);
    scene
}

fn land(scene: &Scene, text: &str, requirements: &str, check: Option<&str>) {
    let checks = check.map(|line| format!("checks = ['''{line}''']\n")).unwrap_or_default();
    let task = format!("[[task]]\nrequirements = [{requirements}]\n{checks}text = '''{text}'''\n");
    scene.repo.write("t.toml", &task);
    scene.studio(["run", "--tasks", "t.toml", "--accept"]).exits(0);
}

fn kinds(verified: &Value) -> Vec<&str> {
    let all = verified["findings"].as_array().expect("a list");
    all.iter().map(|it| it["kind"].as_str().expect("a kind")).collect()
}

#[test]
fn recorded_checks_run_on_the_tip_and_on_each_landing() {
    let scene = landed("checks = [\"test -e log\"]", None);
    let good = scene.studio(["verify"]);
    good.exits(0)
        .output_contains("R1")
        .output_contains("test -e log")
        .output_contains("passed (")
        .output_contains("every recorded check passes on");
    let main = scene.repo.rev("main");
    let told = scene.studio(["verify", "r1", "--json"]).exits(0).json();
    let check = &told["checks"][0];
    assert_eq!(
        (&told["ok"], &told["onto"], &told["schema"]),
        (&json!(true), &json!(main), &json!(1))
    );
    assert_eq!(
        (&check["ran"], &check["exit"], &check["on"]),
        (&json!(true), &json!(0), &json!(main))
    );
    assert_eq!((&check["requirements"], &check["commits"]), (&json!(["R1"]), &json!([main])));
    assert_eq!(told["findings"], json!([]));

    scene.repo.git(["rm", "-q", "log"]);
    scene.repo.git(["commit", "-q", "-m", "Lose it"]);

    let bad = scene.studio(["verify"]);
    bad.exits(1)
        .output_contains("failed (1")
        .output_contains("test -e log failed with 1 on")
        .output_contains("1 of 1 checks");
    let told = scene.studio(["verify", "--json"]).exits(1).json();
    assert_eq!(
        (&told["checks"][0]["passed_then"], &told["checks"][0]["ok"]),
        (&json!(true), &json!(false))
    );
    let each = scene.studio(["verify", "--each", "--json"]).exits(0).json();
    assert_eq!(each["checks"][0]["on"], main);
    scene.studio(["verify", "--onto", &main]).exits(0);
    assert_eq!(
        scene.repo.git(["status", "--porcelain", "--", "log"]),
        "",
        "the checkout is left alone"
    );
    scene.studio(["verify", "R9"]).exits(5);
    scene.studio(["verify", "--onto", "nowhere"]).exits(2);
    scene.repo.is_sound();
}

#[test]
fn an_earlier_result_is_not_reused() {
    let scene = Scene::new();
    let flag = scene.env.home().join("bin/flag");
    fs::create_dir(scene.env.home().join("bin")).expect("it can be created");
    let check = format!("echo 'why ``` not'; test ! -e {}", flag.display());
    scene.configure(&format!("checks = [\"{check}\"]"));
    scene.repo.commit_file("g3-plan/current_requirements.md", WISHES);
    land(&scene, "write log 1", "'R1'", None);
    fs::write(&flag, "").expect("it can be written");
    let bad = scene.studio(["verify"]);
    bad.exits(1).output_contains("  why ``` not").output_contains("1 of 1 checks fail");
    let report = scene.studio(["verify", "--markdown"]);
    report
        .exits(1)
        .output_contains("| requirement | check | then | now | on |")
        .output_contains("| R1 |")
        .output_contains("passed | failed (1,");
    report.output_contains("````text\nwhy ``` not\n````");
    scene.configure("setup = \"echo no; exit 4\"");
    let told = scene.studio(["verify"]);
    told.exits(1)
        .output_contains("setup failed (4)")
        .output_contains("setup echo no; exit 4 failed with 4")
        .output_contains("  no");
}

#[test]
fn an_untrusted_command_does_not_run_by_default() {
    let scene = landed("", Some("exit $(test -e log; echo $?)"));
    scene.studio(["verify"]).exits(0);
    let clone = scene.env.home().join("clone");
    let (from, to) = (scene.repo.path().to_str().expect("text"), clone.to_str().expect("text"));
    scene.repo.git(["clone", "-q", from, to]);
    testkit::repo::Repo::at(&clone).git(["fetch", "-q", "origin", "refs/notes/*:refs/notes/*"]);

    let refused = scene.studio_in(&clone, ["verify"]);

    refused
        .exits(1)
        .output_contains("not run")
        .output_contains("it is known only from a receipt")
        .output_contains("--run-recorded");
    let told = scene.studio_in(&clone, ["verify", "--json"]).exits(1).json();
    assert_eq!((&told["checks"][0]["ran"], kinds(&told)), (&json!(false), vec!["refused"]));
    scene.studio_in(&clone, ["verify", "--run-recorded"]).exits(0);
    scene.configure("checks = [\"exit $(test -e log; echo $?)\"]");
    scene.studio_in(&clone, ["verify"]).exits(0);
    // The landings here are still known after the sessions were discarded.
    scene.configure("");
    fs::remove_dir_all(scene.repo.path().join(".git/studio/sessions")).expect("they are there");
    scene.studio(["verify"]).exits(0);
}

#[test]
fn insufficient_evidence_is_reported() {
    let scene = landed("", Some("test -e log"));
    let wishes = format!("{WISHES}- R2: by hand\n- R3: nothing\n");
    scene.repo.commit_file("g3-plan/current_requirements.md", &wishes);
    scene.repo.git(["commit", "-q", "--allow-empty", "-m", "By hand\n\nRequirement: R2"]);
    land(&scene, "write more 1", "", Some("test -e more"));
    let told = scene.studio(["verify", "--json"]).exits(1).json();
    assert_eq!(kinds(&told), ["no_check", "not_landed", "no_receipt", "no_requirement"]);
    let shown = scene.studio(["verify"]);
    shown
        .exits(1)
        .output_contains("warning: R2 has no passing check")
        .output_contains("warning: R3 has not landed");
    shown
        .output_contains("names R2 and has no receipt")
        .output_contains("`test -e more` covers no requirement");
    shown
        .output_contains("2 of 3 requirements have not landed with a passing check; 0 of 2 checks");
    let one = scene.studio(["verify", "R1", "--json"]).exits(0).json();
    assert_eq!(one["checks"].as_array().map(Vec::len), Some(1), "only what R1 needs");

    let first = scene.repo.git(["log", "--format=%H", "--grep=Requirement: R1"]);
    let forged = json!({
        "session": "x", "tree": scene.repo.rev("main^{tree}"), "requirements": ["R1"],
        "checks": [{"command": "test -e log", "ok": true}],
    });
    scene.repo.git(["notes", "--ref=studio", "add", "-f", "-m", &forged.to_string(), &first]);

    let told = scene.studio(["verify", "R1", "--json"]).exits(1).json();
    assert_eq!(kinds(&told), ["other_tree"]);
    assert_eq!(told["checks"][0]["ok"], true);
}

#[test]
fn a_check_that_a_coach_relied_on_and_that_fails_now_is_reported() {
    let scene = Scene::new();
    scene.configure("checks = [\"test -e log\"]");
    scene.repo.commit_file("g3-plan/current_requirements.md", WISHES);
    let judged = crate::coach::run(&[("R1", "met", "`test -e log` passes")], true);
    let task = format!(
        "[[task]]\nagent = 'talk'\nrequirements = ['R1']\ntext = '''write log 1; {judged}'''\n"
    );
    scene.repo.write("t.toml", &task);
    scene.studio(["run", "--tasks", "t.toml", "--accept"]).exits(0);
    assert!(kinds(&scene.studio(["verify", "--json"]).exits(0).json()).is_empty());
    scene.repo.git(["rm", "-q", "log"]);
    scene.repo.git(["commit", "-q", "-m", "Lose it"]);
    let told = scene.studio(["verify", "--json"]).exits(1).json();
    assert_eq!(kinds(&told), ["disagreement"]);
    let text = "`R1` was judged met by `test -e log`, which failed";
    assert_eq!(told["findings"][0]["text"], text);
}

#[test]
fn a_concurrent_verify_and_accept_do_not_interfere() {
    let scene = Scene::new();
    let go = scene.env.home().join("bin/go");
    fs::create_dir(scene.env.home().join("bin")).expect("it can be created");
    fs::write(&go, "").expect("it can be written");
    let check = format!(
        "touch running; for n in $(seq 1200); do test -e {} && exec test -e log; sleep 0.05; done; false",
        go.display()
    );
    scene.configure(&format!("checks = [\"{check}\"]"));
    scene.repo.commit_file("g3-plan/current_requirements.md", WISHES);
    land(&scene, "write log 1", "'R1'", None);
    let id = scene.ready("write more 1");
    scene.await_free(&id);
    fs::remove_file(&go).expect("it is there");
    let running = |slot: u32| {
        let marker = scene.repo.worktrees().join(format!(".checks/{slot}/running"));
        until("a check runs", || marker.exists().then_some(()));
    };
    for slot in [1, 2] {
        let _ = fs::remove_file(scene.repo.worktrees().join(format!(".checks/{slot}/running")));
    }
    let mut verify = scene.env.start(studio(), scene.repo.path(), ["verify"]);
    running(1);
    let mut accept = scene.env.start(studio(), scene.repo.path(), ["accept", &id, "-m", "More"]);
    running(2);
    fs::write(&go, "").expect("it can be written");
    let verified = until("verify has ended", || verify.child.try_wait().expect("it is ours"));
    let accepted = until("accept has ended", || accept.child.try_wait().expect("it is ours"));
    assert!(verified.success() && accepted.success(), "{verified} {accepted}");
    assert_eq!(scene.repo.show("main", "more"), "1");
    scene.repo.is_sound();
}
