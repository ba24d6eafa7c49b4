//! Files that `.worktreeinclude` names: files that look like secrets are copied only if the user
//! trusts the list.

use testkit::env::built;
use testkit::model_server::reply::ScriptedReply;
use testkit::model_server::script::Script;

use crate::fixtures::Scene;

#[test]
fn a_secret_is_copied_only_if_the_list_is_trusted() {
    let scene = Scene::new("anthropic", Script::by(|_| ScriptedReply::says("Done.")));
    let repo = &scene.repo;
    repo.commit_file(".gitignore", ".env\n*.local\nsecrets/\n");
    repo.commit_file(".worktreeinclude", ".env\n*.local\nsecrets/\n");
    repo.write(".env", "KEY=1\n");
    repo.write("secrets/id", "KEY=2\n");
    repo.write("my.local", "a = 1\n");
    let first = scene.studio(["run", "be the first"]);
    first
        .output_contains("not copied: .env, secrets/id")
        .output_contains("g3 trust --file .worktreeinclude");
    let worktree = |words: &str| repo.worktrees().join(scene.id(words));
    assert!(worktree("first").join("my.local").exists());
    assert!(!worktree("first").join(".env").exists());
    assert!(!worktree("first").join("secrets").exists());

    let trust = ["trust", "--file", ".worktreeinclude"];
    let shown = scene.env.run(built("g3"), repo.path(), trust);
    shown
        .exits(0)
        .output_contains("my.local")
        .output_contains(".env")
        .output_contains("secrets/id");
    scene.studio(["run", "be the second"]).output_lacks("not copied");
    assert!(worktree("second").join(".env").exists());
    assert!(worktree("second").join("secrets/id").exists());

    repo.commit_file(".worktreeinclude", ".env\n*.local\nsecrets/\nother\n");
    scene.studio(["run", "be the third"]).output_contains("not copied: .env, secrets/id");
    assert!(!worktree("third").join(".env").exists());
}
