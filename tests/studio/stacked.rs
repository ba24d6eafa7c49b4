//! Stacked sessions: one that starts from another's branch lands after it, and only its own changes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::fixtures::Scene;

/// A session and one on top of it, which changes the same line.
fn stacked(scene: &Scene) -> (String, String) {
    scene.repo.commit_file("a", "start\n");
    let lower = scene.ready("write a lower; commit lower");
    scene.await_free(&lower);
    let base = format!("studio/{lower}");
    let upper = scene.exec(["--base", &base, "write a upper; commit upper; write b upper"]);
    scene.await_state(&upper, "ready");
    scene.await_free(&upper);
    (lower, upper)
}

#[test]
fn a_stacked_session_lands_after_the_one_below_it() {
    for strategy in ["squash", "rebase", "merge"] {
        let scene = Scene::new();
        let (lower, upper) = stacked(&scene);
        let before = scene.repo.everything();
        let refused = scene.studio(["accept", &upper, "-m", "x"]);
        refused.exits(3).output_contains(&format!("based on `{lower}`, which has not landed"));
        refused.output_contains(&format!("studio accept {lower}"));
        assert_eq!(scene.repo.everything(), before);
        scene.studio(["accept", &lower, "-m", "Lower"]).exits(0);
        scene.repo.commit_file("other", "1\n");
        // With the old base both sides would have changed the same line.
        let landed = scene.studio(["accept", &upper, "-m", "Upper", "--strategy", strategy]);
        landed.exits(0).output_contains("landed on main");
        assert_eq!(
            (scene.repo.read("a"), scene.repo.read("b")),
            ("upper\n".into(), "upper\n".into())
        );
        let names = scene.repo.git(["diff", "--name-only", "main^", "main"]);
        assert!(!names.contains("other"), "{strategy}: {names}");
        scene.repo.is_sound();
        scene.studio(["undo"]).exits(0);
        assert_eq!(scene.repo.read("a"), "lower\n");
        assert_eq!(scene.status(&upper)["state"], "ready");
    }
}

#[test]
fn sessions_of_a_stack_land_in_its_order() {
    let scene = Scene::new();
    let (lower, upper) = stacked(&scene);
    scene.studio(["accept", &upper, &lower]).exits(0);
    assert_eq!(scene.repo.read("a"), "upper\n");
    assert_eq!(scene.repo.git(["rev-list", "--count", "HEAD~2..HEAD"]), "2");
    assert!(scene.repo.git(["log", "-1", "--format=%B", "main~1"]).contains(&lower));
}

#[test]
fn a_session_starts_on_top_of_the_current_work_of_another() {
    let scene = Scene::new();
    let lower = scene.ready("write a 1; commit one; write b 1");
    scene.await_free(&lower);
    let upper = scene.exec(["--on-top-of", &lower, "write c 1"]);
    scene.await_state(&upper, "ready");
    scene.await_free(&upper);
    assert_eq!(scene.worktree(&upper).read("b"), "1\n");
    scene.studio(["accept", &upper, "-m", "x"]).exits(3).output_contains(&lower);
    scene.studio(["accept", &lower, &upper]).exits(0);
    assert_eq!(scene.repo.read("c"), "1\n");
    assert_eq!(scene.repo.git(["show", "--name-only", "--format=", "main"]), "c");
}

#[test]
fn a_stack_whose_lower_session_is_discarded_says_what_to_do() {
    let scene = Scene::new();
    let (lower, upper) = stacked(&scene);
    scene.studio(["discard", &lower, "--yes"]).exits(0);
    let refused = scene.studio(["accept", &upper, "-m", "x"]);
    refused.exits(3).output_contains("was discarded").output_contains("--onto BRANCH");
    scene.studio(["accept", &upper, "-m", "x", "--onto", "main"]).exits(0);
    assert_eq!(scene.repo.read("a"), "upper\n");
}
