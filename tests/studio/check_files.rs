//! Files that decide what the checks say are named wherever the work is looked at or landed.

use serde_json::Value;
use testkit::repo::Repo;

use crate::fixtures::Scene;

/// The sentence of `diff`, `review` and `accept`.
const SENTENCE: &str = "the work changes what the checks run or obey";

/// A repository whose check fails on the base: it compares a file.
fn scene(more: &str) -> Scene {
    let scene = Scene::new();
    scene.configure(&format!("checks = \"sh ci/check.sh\"\n{more}"));
    scene.repo.commit_file("ci/check.sh", "sh \"$(dirname \"$0\")/compare.sh\"\n");
    scene.repo.commit_file("ci/compare.sh", "cmp -s result want.txt || test ! -e result\n");
    scene.repo.commit_file("want.txt", "right\n");
    scene
}

/// A session that writes a wrong result and makes its check pass nevertheless.
fn cheat(scene: &Scene, script: &str) -> String {
    let id = scene.ready(&format!("write result wrong; {script}"));
    scene.await_free(&id);
    id
}

fn paths(files: &Value) -> Vec<&str> {
    let files = files.as_array().expect("a list");
    files.iter().map(|file| file["path"].as_str().expect("a path")).collect()
}

fn receipt(repo: &Repo) -> Value {
    let note = repo.git(["notes", "--ref=studio", "show", "main"]);
    serde_json::from_str(&note).expect("the receipt is JSON")
}

#[test]
fn a_changed_check_is_named_at_review_diff_and_accept_and_in_the_receipt() {
    let scene = scene("");
    // Without the change of a file that the check names by a script, the check fails.
    let honest = scene.exec(["write result wrong"]);
    scene.await_state(&honest, "failed");

    let id = cheat(&scene, "sh echo true > ci/compare.sh; write src/login.rs pub fn auth() {}");
    let review = scene.studio(["review", &id, "--json"]).exits(0).json();
    let review = &review["reviews"][0];
    let first = &review["hunks"][0];
    assert_eq!(first["path"], "ci/compare.sh", "it needs the most attention");
    assert_eq!(first["reasons"][0]["rule"], "check_file");
    assert_eq!(paths(&review["check_files"]), ["ci/compare.sh"]);
    let named = "ci/compare.sh (named by `ci/check.sh`)";
    for args in [["diff", "--stat"], ["review", "--plain"], ["accept", "--dry-run"]] {
        let ran = scene.studio([args[0], &id, args[1]]);
        ran.exits(0).output_contains(SENTENCE).output_contains(named);
    }
    let diff = scene.studio(["diff", &id, "--json"]).exits(0).json();
    assert_eq!(paths(&diff["check_files"]), ["ci/compare.sh"]);

    let landed = scene.studio(["accept", &id, "-m", "x", "--json"]).exits(0).json();
    assert_eq!(paths(&landed["landed"][0]["check_files"]), ["ci/compare.sh"]);
    assert_eq!(paths(&receipt(&scene.repo)["check_files"]), ["ci/compare.sh"]);
}

#[test]
fn work_that_changes_no_file_of_the_checks_lands_without_a_word() {
    let scene = scene("confirm_check_changes = true");
    scene.repo.commit_file("Cargo.toml", "[package]\nname = \"a\"\nversion = \"1.0.0\"\n");
    let id = scene.ready("write result right; sh sed -i s/1.0.0/1.0.1/ Cargo.toml");
    scene.await_free(&id);
    scene.studio(["diff", &id, "--stat"]).exits(0).output_lacks(SENTENCE);
    scene.studio(["accept", &id, "-m", "x"]).exits(0).output_lacks(SENTENCE);
    assert_eq!(receipt(&scene.repo)["check_files"], Value::Null);
}

#[test]
fn with_confirm_check_changes_such_work_lands_only_on_request() {
    let scene = scene("confirm_check_changes = true");
    let id = cheat(&scene, "write want.txt wrong");
    let before = scene.repo.rev("main");
    for args in [["accept", &id, "-m", "x"], ["accept", &id, "--yes", "--json"]] {
        scene
            .studio(args)
            .exits(3)
            .output_contains("want.txt (named by `ci/compare.sh`)")
            .output_contains("--allow-check-changes");
    }
    assert_eq!(scene.repo.rev("main"), before);
    scene.studio(["accept", &id, "--dry-run"]).exits(0).output_contains(SENTENCE);
    scene.studio(["accept", &id, "-m", "x", "--allow-check-changes"]).exits(0);
    assert_eq!(paths(&receipt(&scene.repo)["check_files"]), ["want.txt"]);
}

#[test]
fn configuration_of_tools_is_named_although_no_check_names_it() {
    let scene = scene("");
    scene.repo.commit_file("Cargo.toml", "[package]\nname = \"a\"\nversion = \"1.0.0\"\n");
    let runner = "sh mkdir -p .cargo .config && echo x > .cargo/config.toml && touch conftest.py";
    let profile = "sh printf '[profile.test]\\nopt-level = 1\\n' >> Cargo.toml";
    let module = "sh git mv ci/check.sh ci/renamed.sh && ln -s renamed.sh ci/check.sh";
    let id = scene.ready(&format!("write result right; {runner}; {profile}; {module}"));
    scene.await_free(&id);
    let diff = scene.studio(["diff", &id, "--json"]).exits(0).json();
    assert_eq!(
        paths(&diff["check_files"]),
        [".cargo/config.toml", "Cargo.toml", "ci/check.sh", "ci/renamed.sh", "conftest.py"]
    );
    let text = diff["check_files"].to_string();
    assert!(text.contains("read by cargo: profile"), "{text}");
}
