//! `studio accept --hunks`: some hunks of a session land alone, and it stays open with the rest.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use testkit::env::CommandRun;
use testkit::repo::tree;

use crate::fixtures::{Scene, studio};

/// Creates a repository whose `long` has 40 lines, and a session that changes the lines 4, 12 and
/// 30, adds a file and deletes one.
fn scene() -> (Scene, String) {
    let scene = Scene::new();
    let lines: String = (1..=40).map(|n| format!("line {n}\n")).collect();
    scene.repo.commit_file("long", lines);
    scene.repo.commit_file("old", "old\n");
    let id = scene.ready(
        "sh sed -i 's/^line 4$/four/' long && sed -i 's/^line 12$/twelve/' long; \
         sh sed -i 's/^line 30$/thirty/' long; commit lines; write new 1; sh rm old",
    );
    scene.await_free(&id);
    (scene, id)
}

fn review(scene: &Scene, id: &str) -> Value {
    scene.studio(["review", id, "--json"]).exits(0).json()["reviews"][0].clone()
}

/// Returns the ids of the hunks by a line that they add or remove.
fn hunks(scene: &Scene, id: &str) -> BTreeMap<String, String> {
    let review = review(scene, id);
    let hunks = review["hunks"].as_array().expect("hunks").iter();
    hunks
        .map(|hunk| {
            let mut lines = hunk["lines"].as_array().expect("lines").iter();
            let changed = lines.rfind(|line| line["origin"] != "context").expect("a changed line");
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            (text(&changed["text"]), text(&hunk["id"]))
        })
        .collect()
}

fn keys(hunks: &BTreeMap<String, String>) -> Vec<&str> {
    hunks.keys().map(String::as_str).collect()
}

/// The refs without those of operations, and without receipts.
fn refs(scene: &Scene) -> String {
    let refs = scene.repo.git(["for-each-ref", "--format=%(refname) %(objectname)"]);
    let kept = refs.lines().filter(|line| !line.contains("/kept/") && !line.contains("/notes/"));
    kept.collect::<Vec<_>>().join("\n")
}

#[test]
fn accepted_hunks_land_alone_and_the_rest_lands_later() {
    let (scene, id) = scene();
    let all = hunks(&scene, &id);
    assert_eq!(keys(&all), ["1", "four", "old", "thirty", "twelve"]);
    let worktree = tree(scene.worktree(&id).path());
    let chosen = format!("{},{}", &all["twelve"][..6], all["1"]);
    let landed = scene.studio(["accept", &id, "--hunks", &chosen, "-m", "Part", "--json"]);
    let landed = landed.exits(0).json()["landed"][0].clone();
    assert_eq!(landed["hunks"], serde_json::json!([all["twelve"], all["1"]]));
    assert_eq!(landed["remaining_hunks"], 3);
    assert_eq!(
        scene.repo.git(["diff", "--stat", "--summary", "HEAD~1", "HEAD"]).lines().count(),
        4
    );
    assert_eq!(
        scene.repo.git(["show", "--format=", "HEAD", "--", "long"]).matches("\n+").count(),
        2
    );
    assert_eq!((scene.repo.read("new"), scene.repo.read("old")), ("1\n".into(), "old\n".into()));

    // The session is as it was, and shows only what has not landed.
    assert_eq!(tree(scene.worktree(&id).path()), worktree);
    assert_eq!(keys(&hunks(&scene, &id)), ["four", "old", "thirty"]);
    let status = scene.status(&id);
    assert_eq!((status["state"].as_str(), status["insertions"].as_u64()), (Some("ready"), Some(2)));
    assert_eq!(status["conflicts"], serde_json::json!([]));
    scene.studio(["diff", &id]).exits(0).output_contains("+four").output_lacks("twelve");

    // The branch moves on, and lines that touch neither follow.
    let text = scene.repo.read("long").replace("line 20", "twenty").replace("twelve", "TWELVE");
    scene.repo.commit_file("long", text);
    scene.studio(["accept", &id, "--hunks", &all["four"], "-m", "More"]).exits(0);
    assert_eq!(keys(&hunks(&scene, &id)), ["old", "thirty"]);
    scene.studio(["accept", &id, "-m", "Rest"]).exits(0);
    let text = scene.repo.read("long");
    for line in ["four\n", "TWELVE\n", "twenty\n", "thirty\n"] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!scene.repo.path().join("old").exists());
    assert_eq!(scene.status(&id)["state"], "accepted");
    assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
    scene.repo.is_sound();
}

#[test]
fn undo_of_landed_hunks_restores_everything_one_after_the_other() {
    let (scene, id) = scene();
    let all = hunks(&scene, &id);
    let mut states = vec![(refs(&scene), scene.repo.read("long"), all.clone())];
    for name in ["twelve", "four"] {
        scene.studio(["accept", &id, "--hunks", &all[name], "-m", name]).exits(0);
        states.push((refs(&scene), scene.repo.read("long"), hunks(&scene, &id)));
    }
    scene.studio(["undo", "op1"]).exits(3);
    scene.studio(["accept", &id, "-m", "Rest"]).exits(0);
    scene.studio(["undo"]).exits(0);
    for (refs_before, long, hunks_before) in states.iter().rev() {
        assert_eq!(&refs(&scene), refs_before);
        assert_eq!(&scene.repo.read("long"), long);
        assert_eq!(&hunks(&scene, &id), hunks_before);
        assert_eq!(scene.status(&id)["state"], "ready");
        // Objects that only an undo needs survive git's own cleaning.
        scene.repo.git(["reflog", "expire", "--expire=now", "--all"]);
        scene.repo.git(["gc", "-q", "--prune=now"]);
        scene.studio(["undo"]);
    }
    assert_eq!(scene.status(&id)["insertions"], 4);
}

#[test]
fn landed_hunks_can_be_undone_after_the_rest_was_discarded() {
    let (scene, id) = scene();
    let all = hunks(&scene, &id);
    let before = scene.repo.read("long");
    scene.studio(["accept", &id, "--hunks", &all["four"], "-m", "Four"]).exits(0);
    scene.studio(["discard", &id]).exits(0);
    scene.studio(["gc", "--older", "0"]).exits(0);
    scene.studio(["undo", "op1"]).exits(0);
    assert_eq!(scene.repo.read("long"), before);
    assert_eq!(scene.status(&id)["state"], "discarded");
    assert_eq!(scene.repo.git(["for-each-ref", "refs/studio/hunks"]), "");
    scene.repo.is_sound();
}

#[test]
fn hunks_are_checked_without_the_rest() {
    let (scene, id) = scene();
    scene.await_free(&id);
    let all = hunks(&scene, &id);
    scene.studio(["edit", &id, "--check", "! grep -q thirty long"]).exits(0);
    scene.studio(["check", &id]).exits(1);
    assert_eq!(scene.status(&id)["state"], "failed");
    let before = refs(&scene);
    let thirty = scene.studio(["accept", &id, "--force", "--hunks", &all["thirty"], "-m", "x"]);
    thirty.exits(1).output_contains("fails on the merged tree");
    assert_eq!(refs(&scene), before, "nothing landed");
    scene.studio(["accept", &id, "--hunks", &all["four"], "-m", "x"]).exits(3);
    scene.studio(["accept", &id, "--force", "--hunks", &all["four"], "-m", "Four"]).exits(0);
    assert!(scene.repo.read("long").contains("four"));
}

#[test]
fn invalid_choices_are_refused_and_all_hunks_land_the_session() {
    let (scene, id) = scene();
    let all = hunks(&scene, &id);
    let before = refs(&scene);
    let accept = |hunks: &str, more: &str| {
        let more = if more.is_empty() { "--yes" } else { more };
        scene.studio(["accept", &id, "-m", "x", "--hunks", hunks, more])
    };
    accept("beef", "").exits(5).output_contains("no such hunk: `beef`");
    accept(&all["four"], "--strategy=merge").exits(2).output_contains("squash");
    scene.repo.git(["branch", "other"]);
    accept(&all["four"], "--onto=other").exits(2).output_contains("own branch");
    accept(&all["four"], "--dry-run").exits(0);
    scene.repo.git(["branch", "-D", "other"]);
    assert_eq!(refs(&scene), before);
    let every = all.values().cloned().collect::<Vec<_>>().join(",");
    accept(&every, "").exits(0);
    assert_eq!(scene.status(&id)["state"], "accepted");
}

#[test]
fn a_session_that_merged_its_landed_hunks_is_compared_with_the_merge() {
    let (scene, id) = scene();
    let all = hunks(&scene, &id);
    scene.studio(["accept", &id, "--hunks", &all["twelve"], "-m", "Twelve"]).exits(0);
    let tip = scene.repo.rev("main");
    scene
        .studio([
            "send",
            &id,
            &format!("sh git add -A && git commit -qm all && git merge -q {tip}"),
        ])
        .exits(0);
    scene.await_state(&id, "ready");
    scene.await_free(&id);
    assert_eq!(keys(&hunks(&scene, &id)), ["1", "four", "old", "thirty"]);
    scene.studio(["accept", &id, "-m", "Rest"]).exits(0);
    assert!(
        scene.repo.read("long").contains("thirty") && scene.repo.read("long").contains("twelve")
    );
}

#[test]
fn hunks_of_a_branch_that_was_reset_are_shown_again() {
    let (scene, id) = scene();
    let all = hunks(&scene, &id);
    scene.studio(["accept", &id, "--hunks", &all["twelve"], "-m", "Twelve"]).exits(0);
    scene.repo.git(["reset", "-q", "--hard", "HEAD~1"]);
    assert_eq!(hunks(&scene, &id), all);
    scene.studio(["accept", &id, "-m", "All"]).exits(0);
    assert!(scene.repo.read("long").contains("twelve"));
}

/// Runs studio with an additional variable.
fn with(scene: &Scene, key: &str, value: &str, args: &[&str]) -> CommandRun {
    let job = scene.env.command(studio(), scene.repo.path()).args(args).env(key, value);
    scene.env.run_command(job)
}

#[test]
fn a_landing_of_hunks_and_its_undo_killed_at_any_step_are_done_or_not_done() {
    let (first, id) = scene();
    let all = hunks(&first, &id);
    let steps = |args: &[&str]| -> BTreeSet<String> {
        let file = first.env.home().join("steps");
        let _ = std::fs::remove_file(&file);
        with(&first, "G3_TEST_STEPS", &file.display().to_string(), args).exits(0);
        let text = std::fs::read_to_string(file).expect("there are steps");
        text.lines().map(str::to_owned).collect()
    };
    let accept = |id: &str| ["accept", id, "--hunks", &all["four"], "-m", "x"].map(str::to_owned);
    let accept_args = accept(&id);
    let accept_steps = steps(&accept_args.each_ref().map(String::as_str));
    let undo_steps = steps(&["undo"]);
    assert!(accept_steps.contains("hunks.moved"), "{accept_steps:?}");
    // Importing and checking the work is the same for all landings.
    let landed = accept_steps.iter().filter(|name| name.starts_with("hunks."));
    let landed = landed.map(|name| (true, name));
    let undone = undo_steps.iter().filter(|name| name.starts_with("undo."));
    for (is_accept, name) in landed.chain(undone.map(|name| (false, name))) {
        let (scene, id) = scene();
        let untouched = (refs(&scene), scene.repo.read("long"));
        let args = accept(&id);
        let args = args.each_ref().map(String::as_str);
        if !is_accept {
            scene.studio(args).exits(0);
        }
        let killed: &[&str] = if is_accept { &args } else { &["undo"] };
        with(&scene, "G3_TEST_KILL_AT", name, killed);
        scene.studio(["doctor"]);
        scene.await_free(&id);
        assert_eq!(scene.status(&id)["state"], "ready", "{name}");
        let is_landed = scene.repo.read("long").contains("four");
        assert_eq!(hunks(&scene, &id).contains_key("four"), !is_landed, "{name}");
        assert_eq!(scene.repo.git(["status", "--porcelain"]), "", "{name}");
        if is_landed {
            scene.studio(["undo"]).exits(0);
        }
        assert_eq!(hunks(&scene, &id), all, "{name}");
        assert_eq!((refs(&scene), scene.repo.read("long")), untouched, "{name}");
        scene.repo.is_sound();
    }
}

#[test]
fn renames_modes_links_and_binary_files_land_alone() {
    let scene = Scene::new();
    let lines: String = (1..=40).map(|n| format!("line {n}\n")).collect();
    scene.repo.commit_file("before", lines);
    scene.repo.commit_file("data", [0u8, 1, 2]);
    scene.repo.commit_file("tool", "echo\n");
    scene.repo.commit_file("d", "a file\n");
    scene.repo.commit_file(".gitattributes", "* -diff\n");
    let id = scene.ready(
        "sh mv before after && sed -i 's/^line 4$/four/' after && sed -i 's/^line 30$/thirty/' after; \
         sh printf '\\000\\001\\003' > data && chmod +x tool && ln -s tool link; \
         sh rm d; write d/inside in a directory",
    );
    scene.await_free(&id);
    let page = review(&scene, &id);
    let hunks = page["hunks"].as_array().expect("hunks");
    let id_of = |path: &str, words: &str| -> String {
        let is_wanted = |hunk: &&Value| hunk["path"] == path && hunk.to_string().contains(words);
        let hunk = hunks.iter().find(is_wanted).unwrap_or_else(|| panic!("{path}: {page}"));
        hunk["id"].as_str().expect("an id").to_owned()
    };
    // Attributes hide nothing.
    let four = id_of("after", "four");
    let inside = id_of("d/inside", "in a directory");
    let refused = scene.studio(["accept", &id, "-m", "x", "--hunks", &inside]);
    refused.exits(2).output_contains("do not fit together");
    let chosen =
        [four, id_of("data", "binary"), id_of("tool", "executable"), id_of("link", "symlink")];
    scene.studio(["accept", &id, "-m", "Part", "--hunks", &chosen.join(",")]).exits(0);
    let landed = scene.repo.git(["show", "--format=", "--raw", "--abbrev=4", "-M", "HEAD"]);
    let kinds: Vec<String> = landed
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            format!("{} {} {}", words[1], words[4], words[5..].join(" "))
        })
        .collect();
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    assert_eq!(
        kinds,
        ["100644 R097 before after", "100644 M data", "120000 A link", "100755 M tool"]
    );
    assert!(
        scene.repo.read("after").contains("four") && !scene.repo.read("after").contains("thirty")
    );
    let both = [inside, id_of("d", "deleted")].join(",");
    scene.studio(["accept", &id, "-m", "Directory", "--hunks", &both]).exits(0);
    assert_eq!(scene.repo.read("d/inside"), "in a directory\n");
    scene.studio(["accept", &id, "-m", "Rest"]).exits(0);
    assert!(scene.repo.read("after").contains("thirty"));
    for _ in 0..3 {
        scene.studio(["undo"]).exits(0);
    }
    assert_eq!(scene.repo.git(["status", "--porcelain"]), "");
    assert_eq!(scene.repo.read("d"), "a file\n");
    assert_eq!(review(&scene, &id)["hunks"], page["hunks"]);
}
