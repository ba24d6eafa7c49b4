//! `studio accept --merge-by-syntax`: both sides added at the same place, and checks confirm it.

use serde_json::{Value, json};

use crate::fixtures::Scene;

const LIB: &str = "use std::fmt;\n\nmod one;\n\npub struct Config {\n    pub name: String,\n}\n\n\
                   pub const NAMES: &[&str] = &[\n    \"one\",\n];\n\npub fn first() {}\n";

/// Returns the file with one more of everything.
fn with(name: &str) -> String {
    with_all(&[name])
}

fn with_all(names: &[&str]) -> String {
    let added = |template: &str| -> String {
        names.iter().map(|name| template.replace('@', name)).collect()
    };
    LIB.replace("use std::fmt;\n", &format!("use std::fmt;\n{}", added("use std::@;\n")))
        .replace("mod one;\n", &format!("mod one;\n{}", added("mod @;\n")))
        .replace("String,\n", &format!("String,\n{}", added("    pub @: u8,\n")))
        .replace("\"one\",\n", &format!("\"one\",\n{}", added("    \"@\",\n")))
        + &added("\npub fn @() {\n    run();\n}\n")
}

/// A repository with the file, and a session that changed it; then the user changed it.
fn scene(config: &str, check: &str) -> (Scene, String) {
    let scene = Scene::new();
    scene.configure(config);
    scene.repo.commit_file("lib.rs", LIB);
    scene.repo.commit_file("check.sh", check);
    let id = session(&scene, "second");
    scene.repo.commit_file("lib.rs", with("third"));
    (scene, id)
}

/// Starts a session that adds one of everything to the file.
fn session(scene: &Scene, name: &str) -> String {
    let id = scene.ready(&format!("write {name}.txt 1"));
    scene.await_free(&id);
    scene.await_supervisor(&id);
    scene.worktree(&id).write("lib.rs", with(name));
    id
}

const CHECKS: &str = "checks = \"sh check.sh\"";
/// Passes on the base, on each side, and on a merge with all names.
const PASSES: &str = "grep -q 'fn first' lib.rs";

fn receipt(scene: &Scene) -> Value {
    let note = scene.repo.git(["notes", "--ref", "studio", "show", "main"]);
    serde_json::from_str(&note).expect("a receipt is JSON")
}

#[test]
fn what_both_sides_added_lands_when_the_checks_pass_and_can_be_undone() {
    let check = "grep -q 'fn first' lib.rs && ! grep -q '<<<<' lib.rs";
    let (scene, id) = scene(CHECKS, check);
    let before = scene.repo.rev("main");

    // Without the option it is a conflict that names the option.
    let refused = scene.studio(["accept", &id]);
    refused.exits(4).output_contains("conflict with `main` in lib.rs");
    refused.output_contains(&format!("studio accept {id} --merge-by-syntax"));
    let refused = scene.studio(["accept", &id, "--json"]).exits(4).json();
    assert_eq!(refused["refused"][0]["merges_by_syntax"], true, "{refused}");
    let dry = scene.studio(["accept", &id, "--merge-by-syntax", "--dry-run"]);
    dry.exits(0).output_contains("would land on main").output_contains("merged by syntax");
    assert_eq!(scene.repo.rev("main"), before);

    let landed = scene.studio(["accept", &id, "--merge-by-syntax", "-m", "Add", "--json"]);
    let landed = landed.exits(0).json();
    assert_eq!(landed["landed"][0]["merged_by_syntax"], json!(["lib.rs"]));
    assert_eq!(landed["landed"][0]["checks"][0]["ok"], true);
    assert_eq!(scene.repo.read("lib.rs"), with_all(&["third", "second"]), "the target's first");
    assert_eq!(scene.repo.read("second.txt"), "1\n");
    let receipt = receipt(&scene);
    assert_eq!(receipt["merged_by_syntax"], json!(["lib.rs"]));
    assert_eq!(receipt["checks"][0]["command"], "sh check.sh");
    assert_eq!(receipt["tree"], scene.repo.rev("main^{tree}").as_str());

    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.repo.rev("main"), before);
    assert_eq!(scene.repo.read("lib.rs"), with("third"));
    assert_eq!(scene.status(&id)["state"], "ready");
    assert_eq!(scene.worktree(&id).read("lib.rs"), with("second"));
    scene.repo.is_sound();
}

#[test]
fn a_merge_by_syntax_whose_checks_fail_does_not_land() {
    // Fails only where both are there.
    let check = "! grep -q 'fn second' lib.rs || ! grep -q 'fn third' lib.rs";
    let (scene, id) = scene(CHECKS, check);
    // It takes the snapshot.
    scene.studio(["accept", &id]).exits(4);
    let before = scene.repo.everything();
    let refused = scene.studio(["accept", &id, "--merge-by-syntax"]);
    refused.exits(1).output_contains("fails on the merged tree");
    refused.output_contains("merged by syntax: lib.rs").output_contains("--resolve");
    refused.output_lacks("--no-checks");
    assert_eq!(scene.repo.everything(), before);
    assert_eq!(scene.status(&id)["state"], "ready");
}

#[test]
fn a_merge_by_syntax_needs_checks() {
    let (scene, id) = scene("", PASSES);
    scene.studio(["accept", &id]).exits(4);
    let before = scene.repo.everything();
    let refused = scene.studio(["accept", &id, "--merge-by-syntax"]);
    refused.exits(3).output_contains("a merge by syntax needs checks to confirm it: lib.rs");
    refused.output_contains(&format!("studio edit {id} --check"));
    // By configuration alone it is a conflict as any other.
    scene.configure("merge_by_syntax = true");
    scene.studio(["accept", &id]).exits(4).output_contains("conflict with `main` in lib.rs");
    scene.configure(CHECKS);
    let refused = scene.studio(["accept", &id, "--merge-by-syntax", "--no-checks"]);
    refused.exits(3).output_contains("--no-checks skips them");
    assert_eq!(scene.repo.everything(), before);
}

#[test]
fn strategies_that_land_unchecked_commits_are_not_merged_by_syntax() {
    let (scene, id) = scene(&format!("{CHECKS}\nmerge_by_syntax = true"), PASSES);
    for strategy in ["rebase", "ff"] {
        let refused = scene.studio(["accept", &id, "--merge-by-syntax", "--strategy", strategy]);
        refused.exits(2).output_contains("--merge-by-syntax requires --strategy squash or merge");
    }
    scene.studio(["accept", &id, "--strategy", "rebase"]).exits(4).output_contains("conflict");
    scene.studio(["accept", &id, "--strategy", "merge", "-m", "Add"]).exits(0);
    assert_eq!(scene.repo.read("lib.rs"), with_all(&["third", "second"]));
    let parents = scene.repo.git(["rev-list", "--parents", "-1", "main"]);
    assert_eq!(parents.split_whitespace().count(), 3, "a merge commit");
}

#[test]
fn the_same_name_on_both_sides_is_a_conflict() {
    let (scene, id) = scene(CHECKS, PASSES);
    let both = with("second").replace("run();", "run_otherwise();");
    scene.repo.commit_file("lib.rs", both);
    for option in ["--yes", "--merge-by-syntax"] {
        let refused = scene.studio(["accept", &id, option, "--json"]).exits(4).json();
        assert_eq!(refused["refused"][0]["merges_by_syntax"], false, "{refused}");
    }
    scene.studio(["accept", &id]).exits(4).output_lacks("--merge-by-syntax");
    // Nor is a file merged if another one still conflicts.
    let both = session(&scene, "fourth");
    scene.worktree(&both).write("README.md", "mine\n");
    scene.repo.commit_file("README.md", "theirs\n");
    scene.repo.commit_file("lib.rs", with("fifth"));
    let refused = scene.studio(["accept", &both, "--merge-by-syntax"]);
    refused.exits(4).output_contains("README.md").output_lacks("keeps what both sides added");
}

#[test]
fn attributes_of_a_file_that_is_not_merged_by_lines_are_respected() {
    let scene = Scene::new();
    scene.configure(CHECKS);
    scene.repo.commit_file("check.sh", PASSES);
    scene.repo.commit_file(".gitattributes", "lib.rs -merge\n");
    scene.repo.commit_file("lib.rs", LIB);
    let id = session(&scene, "second");
    scene.repo.commit_file("lib.rs", with("third"));
    scene.studio(["accept", &id, "--merge-by-syntax"]).exits(4).output_contains("lib.rs");
}

#[test]
fn a_queue_merges_by_syntax_with_the_option_or_by_configuration() {
    for (config, option) in [("", "--merge-by-syntax"), ("merge_by_syntax = true", "--yes")] {
        let scene = Scene::new();
        scene.configure(&format!("{CHECKS}\nrecheck = false\n{config}"));
        scene.repo.commit_file("check.sh", PASSES);
        scene.repo.commit_file("lib.rs", LIB);
        let names = ["second", "third", "fourth"];
        let ids = names.map(|name| session(&scene, name));
        let outcome = scene.studio(["accept", "--all", option, "--json"]).exits(0).json();
        let merged: Vec<&Value> = outcome["landed"].as_array().expect("a list").iter().collect();
        assert_eq!(merged.len(), 3, "{outcome}");
        assert_eq!(merged[0]["merged_by_syntax"], json!([]));
        assert_eq!(merged[2]["merged_by_syntax"], json!(["lib.rs"]));
        assert_eq!(receipt(&scene)["merged_by_syntax"], json!(["lib.rs"]));
        let landed: Vec<&str> = merged
            .iter()
            .map(|it| names[ids.iter().position(|id| it["id"] == **id).expect("an id")])
            .collect();
        assert_eq!(scene.repo.read("lib.rs"), with_all(&landed));
        scene.repo.is_sound();
    }
}

#[test]
fn a_queue_without_the_option_refuses_the_conflict_and_lands_the_others() {
    let (scene, id) = scene(CHECKS, PASSES);
    let other = scene.ready("write other.txt 1");
    scene.await_free(&other);
    let outcome = scene.studio(["accept", "--all", "--json"]).exits(4).json();
    assert_eq!(outcome["landed"][0]["id"], other.as_str());
    assert_eq!(outcome["refused"][0]["id"], id.as_str());
    assert_eq!(outcome["refused"][0]["merges_by_syntax"], true);
}

#[test]
fn conflicts_says_which_files_can_be_merged_by_syntax() {
    let (scene, id) = scene("", PASSES);
    // The snapshot of the last turn has the work.
    scene.studio(["send", &id, "write more.txt 1"]);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    let patch = scene.studio(["conflicts", "--patch", &id]);
    patch.exits(0).output_contains("lib.rs    can be merged by syntax");
    let found = scene.studio(["conflicts", "--patch", "--json"]).exits(0).json();
    assert_eq!(found["branches"][0]["files"][0]["merges_by_syntax"], true, "{found}");
    let found = scene.studio(["conflicts", "--json"]).exits(0).json();
    assert_eq!(found["branches"][0]["files"][0]["merges_by_syntax"], Value::Null);
}
