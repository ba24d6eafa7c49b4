//! Git hooks in landings: only those whose exact content the user approved, in the sandbox, on the
//! merged tree.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;

use base::clock::Clock;
use base::config::trust;

use crate::fixtures::Scene;
use crate::git_command::executable;

/// A repository whose user wants hooks.
fn scene() -> Scene {
    let scene = Scene::new();
    scene.configure("hooks = true");
    scene
}

/// Writes a hook of the repository.
fn hook(scene: &Scene, name: &str, line: &str) -> PathBuf {
    let file = scene.repo.path().join(".git/hooks").join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    executable(&file, line);
    file
}

/// Approves the content of a hook, as `g3 trust --file` does.
fn trust_hook(scene: &Scene, file: &str) {
    let file = scene.repo.path().canonicalize().unwrap().join(file);
    let store = scene.env.home().join(".config/g3/trust.json");
    let content = fs::read(&file).unwrap();
    trust::accept(&store, &file, &content, &Clock::from_env()).unwrap();
}

#[test]
fn approved_hooks_run_on_the_merged_tree_in_the_sandbox() {
    let scene = scene();
    let id = scene.ready("write a 1");
    scene.await_free(&id);
    // The target has moved since.
    scene.repo.commit_file("other.txt", "other\n");
    let secret = scene.env.home().join("secret");
    fs::write(&secret, "of-the-user").unwrap();
    let before = "git diff --cached --name-only; cat a; pwd; git rev-parse HEAD";
    let line = format!("({before}; cat '{}' 2>&1) > \"$TMPDIR/seen\"; exit 1", secret.display());
    hook(&scene, "pre-commit", &line);
    // Not approved: it does not run, and says so.
    let landed = scene.studio(["accept", &id, "-m", "Land it"]);
    landed.exits(0).output_contains("hook `pre-commit` is not trusted and was not run");
    scene.studio(["undo"]).exits(0);
    hook(&scene, "pre-commit", &format!("{before}; cat '{}'; exit 1", secret.display()));
    trust_hook(&scene, ".git/hooks/pre-commit");
    let all = scene.repo.everything();
    let refused = scene.studio(["accept", &id, "-m", "Land it"]);
    refused.exits(1).output_contains("hook `pre-commit` fails with exit code 1");
    // The changes of the landing are staged on the current tip of the target.
    refused.output_contains(&scene.repo.rev("main")).output_lacks("of-the-user");
    assert!(refused.err.contains("a\n") && !refused.err.contains("other.txt"), "{refused}");
    assert_eq!(scene.repo.everything(), all);
    hook(&scene, "pre-commit", "exit 0");
    trust_hook(&scene, ".git/hooks/pre-commit");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0).output_lacks("was not run");
    assert!(scene.repo.git(["notes", "--ref=studio", "show", "main"]).contains("pre-commit"));
    scene.studio(["undo"]).exits(0);
    assert_eq!(scene.status(&id)["state"], "ready");
}

#[test]
fn commit_msg_changes_or_refuses_the_message() {
    let scene = scene();
    hook(
        &scene,
        "commit-msg",
        "grep -q Land \"$1\" || { echo no ticket; exit 1; }; echo 'Reviewed: yes' >> \"$1\"",
    );
    trust_hook(&scene, ".git/hooks/commit-msg");
    let id = scene.ready("write a 1");
    let refused = scene.studio(["accept", &id, "-m", "Other"]);
    refused.exits(1).output_contains("hook `commit-msg` fails").output_contains("no ticket");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(0);
    let message = scene.repo.git(["log", "-1", "--format=%B"]);
    assert!(message.starts_with("Land it\n") && message.contains("\nReviewed: yes"), "{message}");
    assert!(message.contains(&format!("Session: {id}")), "{message}");
    // A hook cannot put a link to another file in the place of the message.
    hook(&scene, "commit-msg", "ln -sf /etc/hostname \"$1\"");
    trust_hook(&scene, ".git/hooks/commit-msg");
    let id = scene.ready("write b 1");
    scene.studio(["accept", &id, "-m", "Land it"]).exits(1);
    hook(&scene, "commit-msg", ": > \"$1\"");
    trust_hook(&scene, ".git/hooks/commit-msg");
    scene
        .studio(["accept", &id, "-m", "Land it"])
        .exits(1)
        .output_contains("left no commit message");
}

#[test]
fn a_changed_hook_does_not_run_and_is_shown_as_a_difference() {
    let scene = scene();
    let marker = scene.env.home().join("ran");
    hook(&scene, "commit-msg", "exit 0 # one");
    trust_hook(&scene, ".git/hooks/commit-msg");
    let id = scene.ready("write a 1");
    hook(&scene, "commit-msg", &format!("touch '{}' # two", marker.display()));
    let landed = scene.studio(["accept", &id, "-m", "Land it"]);
    landed.exits(0).output_contains("hook `commit-msg` changed since you trusted it");
    landed.output_contains("-exit 0 # one").output_contains("# two");
    assert!(!marker.exists());
    assert_eq!(scene.repo.git(["log", "-1", "--format=%s"]), "Land it");
    // The control: git runs it.
    scene.repo.git(["commit", "-q", "--allow-empty", "-m", "control"]);
    assert!(marker.exists());
}

#[test]
fn hooks_of_another_directory_run_only_if_approved() {
    let scene = scene();
    scene.repo.git(["config", "core.hooksPath", ".hooks"]);
    let file = scene.repo.path().join(".hooks/post-commit");
    fs::create_dir(file.parent().unwrap()).unwrap();
    executable(&file, "git log -1 --format=%s; exit 3");
    fs::write(scene.repo.path().join(".git/info/exclude"), ".hooks/\n").unwrap();
    let id = scene.ready("write a 1");
    let landed = scene.studio(["accept", &id, "-m", "Land it"]);
    landed.exits(0).output_contains("hook `post-commit` is not trusted");
    trust_hook(&scene, ".hooks/post-commit");
    let id = scene.ready("write b 1");
    // It runs after the landing, on the landed commit, and cannot refuse it.
    let landed = scene.studio(["accept", &id, "-m", "Land b"]);
    landed.exits(0).output_contains("hook `post-commit` failed with exit code 3: Land b");
    assert_eq!(scene.repo.show("main", "b"), "1");
    // Without the setting nothing runs, and a note says so.
    scene.configure("");
    let id = scene.ready("write c 1");
    let landed = scene.studio(["accept", &id, "-m", "Land c"]);
    landed.exits(0).output_contains("hooks were not run").output_lacks("post-commit");
}
