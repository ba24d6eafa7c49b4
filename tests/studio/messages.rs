//! The commit message that is written when a session becomes ready.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use testkit::env::{CommandRun, until};

use crate::accept::with_g3;
use crate::fixtures::Scene;

/// A model that counts its answers in `asked` and names the number in each.
const COUNTS: &str = "cat > /dev/null; echo >> \"$HOME/asked\"; \
     printf 'Write message %s\\n\\nIt is written.\\n' $(grep -c '' \"$HOME/asked\")";

/// A model that says that it has started, and never answers.
const HANGS: &str =
    "echo $$ > \"$HOME/pid.new\"; mv \"$HOME/pid.new\" \"$HOME/pid\"; exec sleep 600";

fn exec(scene: &Scene, program: &Path, script: &str) -> String {
    let id = scene.env.run(program, scene.repo.path(), ["exec", script]).ok().to_owned();
    scene.await_state(&id, "ready");
    id
}

fn accept<const N: usize>(scene: &Scene, program: &Path, args: [&str; N]) -> CommandRun {
    scene.env.run(program, scene.repo.path(), args)
}

fn await_message(scene: &Scene, id: &str) -> String {
    until("the message", || scene.status(id)["message"].as_str().map(str::to_owned))
}

fn answers(scene: &Scene) -> usize {
    let text = std::fs::read_to_string(scene.env.home().join("asked"));
    text.unwrap_or_default().lines().count()
}

fn subject(scene: &Scene) -> String {
    scene.repo.git(["log", "-1", "--format=%s"])
}

#[test]
fn a_ready_session_has_a_message_and_its_landing_asks_no_model() {
    let scene = Scene::new();
    let program = with_g3(&scene, COUNTS);
    scene.repo.commit_file("list", "a\nb\nc\nd\ne\n");
    let id = exec(&scene, &program, "write new 1; sh sed -i s/c/C/ list");
    assert_eq!(await_message(&scene, &id), "Write message 1\n\nIt is written.");
    scene.studio(["status", &id]).exits(0).output_contains("message     Write message 1");
    // The target moves beside the changed lines.
    scene.repo.commit_file("list", "A\nb\nc\nd\ne\n");
    scene.repo.commit_file("other", "1\n");

    let landed = accept(&scene, &program, ["accept", &id, "--json"]).exits(0).json();

    assert_eq!(landed["landed"][0]["message_by"], "model");
    let message = scene.repo.git(["log", "-1", "--format=%B"]);
    assert!(message.starts_with("Write message 1\n\nIt is written."), "{message}");
    assert!(message.contains(&format!("Session: {id}")), "{message}");
    assert_eq!(scene.repo.read("list"), "A\nb\nC\nd\ne\n");
    assert_eq!(answers(&scene), 1);
}

#[test]
fn changed_work_gets_another_message() {
    let scene = Scene::new();
    let program = with_g3(&scene, COUNTS);
    let id = exec(&scene, &program, "write new 1");
    await_message(&scene, &id);
    scene.await_free(&id);
    scene.worktree(&id).write("more", "by hand\n");
    accept(&scene, &program, ["accept", &id]).exits(0);
    assert_eq!((subject(&scene).as_str(), answers(&scene)), ("Write message 2", 2));

    // The target has a part of the work already.
    let id = exec(&scene, &program, "write both 1; write own 1");
    await_message(&scene, &id);
    scene.repo.commit_file("both", "1\n");
    accept(&scene, &program, ["accept", &id]).exits(0);
    assert_eq!((subject(&scene).as_str(), answers(&scene)), ("Write message 4", 4));
}

#[test]
fn the_editor_starts_with_the_prepared_message() {
    let mut scene = Scene::new();
    let program = with_g3(&scene, COUNTS);
    let id = exec(&scene, &program, "write new 1");
    await_message(&scene, &id);
    scene.env.set("GIT_EDITOR", "f() { cp \"$1\" \"$HOME/shown\"; echo Mine > \"$1\"; }; f");
    accept(&scene, &program, ["accept", &id, "--edit"]).exits(0);
    let shown = std::fs::read_to_string(scene.env.home().join("shown")).unwrap();
    assert!(shown.starts_with("Write message 1\n\nIt is written."), "{shown}");
    assert_eq!((subject(&scene).as_str(), answers(&scene)), ("Mine", 1));
}

#[test]
fn a_slow_model_delays_neither_ready_nor_a_discard_and_ends_with_its_session() {
    for by_kill in [false, true] {
        let scene = Scene::new();
        let program = with_g3(&scene, HANGS);
        let id = exec(&scene, &program, "write new 1");
        let pid = until("the model to be asked", || {
            std::fs::read_to_string(scene.env.home().join("pid")).ok()?.trim().parse().ok()
        });
        assert_eq!(scene.status(&id)["state"], "ready");
        scene.await_free(&id);
        if by_kill {
            let journal = scene.journal(&id);
            let spawned = journal.iter().find(|line| line["entry"] == "spawned").unwrap();
            let supervisor = i32::try_from(spawned["pid"].as_i64().unwrap()).unwrap();
            kill_process(Pid::from_raw(supervisor).unwrap(), Signal::KILL).unwrap();
        } else {
            scene.studio(["discard", &id]).exits(0);
        }
        until("the model to end", || (!base::process::is_alive(pid)).then_some(()));
        if by_kill {
            assert_eq!(scene.status(&id)["state"], "ready");
            let program = with_g3(&scene, COUNTS);
            accept(&scene, &program, ["accept", &id]).exits(0);
            assert_eq!(subject(&scene), "Write message 1");
        }
    }
}
