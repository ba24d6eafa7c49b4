//! Every fault at every durable step of every command: the walk of `fault_walk`, one command per
//! test. `scripts/fault-walk` walks through all pairs; a plain run walks through a subset.

use serde_json::Value;

use crate::fault_walk::{WalkedCommand, walk};
use crate::fixtures::Scene;

const TASK: &str = "write a 1; commit one; write b 2";

fn sessions(scene: &Scene) -> Vec<Value> {
    let list = scene.studio(["list", "--all", "--json"]);
    let list: Value = serde_json::from_str(&list.out).unwrap_or_default();
    list["sessions"].as_array().cloned().unwrap_or_default()
}

fn state(scene: &Scene, id: &str) -> String {
    let all = sessions(scene);
    let session = all.iter().find(|session| session["id"] == id);
    session.and_then(|session| session["state"].as_str()).unwrap_or_default().to_owned()
}

fn is_state(scene: &Scene, id: &str, wanted: &str) -> Result<(), String> {
    let state = state(scene, id);
    if state == wanted { Ok(()) } else { Err(format!("{id} is {state}, not {wanted}")) }
}

/// Creates two ready sessions.
fn two(scene: &Scene) -> Vec<String> {
    let ids = vec![scene.ready(TASK), scene.ready("write c 3")];
    ids.iter().for_each(|id| scene.await_free(id));
    ids
}

fn words(text: &str, ids: &[String]) -> Vec<String> {
    let word = |word: &str| match word {
        "FIRST" => ids[0].clone(),
        "HUNK" => ids[2].clone(),
        "TASK" => TASK.to_owned(),
        _ => word.replace('_', " "),
    };
    text.split(' ').map(word).collect()
}

fn ready_with(scene: &Scene, names: &[(&str, &str)]) -> Result<(), String> {
    for (name, text) in names {
        let has = |id: &str| {
            let path = scene.repo.worktrees().join(id).join(name);
            std::fs::read_to_string(path).is_ok_and(|content| content == *text)
        };
        let all = sessions(scene);
        let mut ready = all.iter().filter(|session| session["state"] == "ready");
        if !ready.any(|session| has(session["id"].as_str().unwrap_or_default())) {
            return Err(format!("no ready session has {name}: {all:?}"));
        }
    }
    Ok(())
}

#[test]
fn a_run_survives_every_fault() {
    walk(WalkedCommand {
        name: "run",
        prepare: |_| Vec::new(),
        args: |ids| words("run TASK", ids),
        goal: |scene, _| ready_with(scene, &[("a", "1\n"), ("b", "2\n")]),
        deletes_first: false,
    });
}

#[test]
fn a_queue_survives_every_fault() {
    walk(WalkedCommand {
        name: "queue",
        prepare: |_| Vec::new(),
        args: |ids| words("run -j 1 write_qa_1 write_qb_2", ids),
        goal: |scene, _| ready_with(scene, &[("qa", "1\n"), ("qb", "2\n")]),
        deletes_first: false,
    });
}

#[test]
fn a_snapshot_survives_every_fault() {
    walk(WalkedCommand {
        name: "snapshot",
        prepare: |scene| {
            let ids = two(scene);
            scene.worktree(&ids[0]).write("late", "written after the run\n");
            ids
        },
        args: |ids| words("send FIRST ;_write_s_1", ids),
        goal: |scene, ids| {
            is_state(scene, &ids[0], "ready")?;
            let commits = scene.repo.git(["log", "--all", "--format=%H", "--", "late"]);
            if commits.is_empty() {
                Err("no snapshot has the late file".to_owned())
            } else {
                Ok(())
            }
        },
        deletes_first: false,
    });
}

fn walk_accept(name: &'static str, args: fn(&[String]) -> Vec<String>) {
    walk(WalkedCommand {
        name,
        prepare: two,
        args,
        goal: |scene, ids| is_state(scene, &ids[0], "accepted"),
        deletes_first: false,
    });
}

#[test]
fn an_accept_survives_every_fault() {
    walk_accept("accept", |ids| words("accept FIRST -m Land", ids));
}

#[test]
fn an_accept_by_merge_survives_every_fault() {
    walk_accept("accept-merge", |ids| words("accept FIRST -m Land --strategy merge", ids));
}

#[test]
fn an_accept_by_rebase_survives_every_fault() {
    walk_accept("accept-rebase", |ids| words("accept FIRST -m Land --strategy rebase", ids));
}

#[test]
fn an_accept_by_fast_forward_survives_every_fault() {
    walk_accept("accept-ff", |ids| words("accept FIRST -m Land --strategy ff", ids));
}

#[test]
fn an_accept_that_drops_the_other_attempts_survives_every_fault() {
    walk(WalkedCommand {
        name: "accept-drop-others",
        prepare: |scene| {
            scene.studio(["run", "--attempts", "3", TASK]).exits(0);
            let all = sessions(scene);
            let id = |session: &Value| session["id"].as_str().expect("an id").to_owned();
            let ids: Vec<String> = all.iter().map(id).collect();
            ids.iter().for_each(|id| scene.await_supervisor(id));
            ids
        },
        args: |ids| words("accept FIRST --drop-others -m Land", ids),
        goal: |scene, ids| {
            is_state(scene, &ids[0], "accepted")?;
            ids[1..].iter().try_for_each(|id| is_state(scene, id, "discarded"))
        },
        deletes_first: false,
    });
}

#[test]
fn an_accept_of_hunks_survives_every_fault() {
    walk(WalkedCommand {
        name: "accept-hunks",
        prepare: |scene| {
            let mut ids = two(scene);
            let review = scene.studio(["review", &ids[0], "--json"]).json();
            let hunk = review["reviews"][0]["hunks"][0]["id"].as_str().expect("a hunk").to_owned();
            ids.push(hunk);
            ids
        },
        args: |ids| words("accept FIRST --hunks HUNK -m Land", ids),
        goal: |scene, _| {
            let has_landed = scene.repo.try_git(["cat-file", "-e", "main:a"]).0 == 0;
            if has_landed { Ok(()) } else { Err("the hunk has not landed".to_owned()) }
        },
        deletes_first: false,
    });
}

#[test]
fn a_discard_survives_every_fault() {
    walk(WalkedCommand {
        name: "discard",
        prepare: two,
        args: |ids| words("discard --yes FIRST", ids),
        goal: |scene, ids| is_state(scene, &ids[0], "discarded"),
        deletes_first: false,
    });
}

#[test]
fn an_undo_of_a_discard_survives_every_fault() {
    walk(WalkedCommand {
        name: "undo-discard",
        prepare: |scene| {
            let ids = two(scene);
            scene.studio(["discard", "--yes", &ids[0]]).exits(0);
            ids
        },
        args: |ids| words("undo", ids),
        goal: |scene, ids| {
            is_state(scene, &ids[0], "ready")?;
            ready_with(scene, &[("a", "1\n"), ("b", "2\n")])
        },
        deletes_first: false,
    });
}

#[test]
fn an_undo_of_an_accept_survives_every_fault() {
    walk(WalkedCommand {
        name: "undo-accept",
        prepare: |scene| {
            let ids = two(scene);
            scene.studio(["accept", &ids[0], "-m", "Land"]).exits(0);
            ids
        },
        args: |ids| words("undo", ids),
        goal: |scene, ids| {
            is_state(scene, &ids[0], "ready")?;
            ready_with(scene, &[("a", "1\n"), ("b", "2\n")])
        },
        deletes_first: false,
    });
}

#[test]
fn a_gc_survives_every_fault() {
    walk(WalkedCommand {
        name: "gc",
        prepare: |scene| {
            let ids = two(scene);
            scene.studio(["discard", "--yes", &ids[0]]).exits(0);
            ids
        },
        args: |ids| words("gc --older 0", ids),
        goal: |scene, _| {
            let trash = scene.repo.path().join(".git/studio/trash");
            let is_empty = std::fs::read_dir(trash).map_or(true, |mut dir| dir.next().is_none());
            if is_empty { Ok(()) } else { Err("the trash is not empty".to_owned()) }
        },
        deletes_first: true,
    });
}

#[test]
fn a_trial_survives_every_fault() {
    walk(WalkedCommand {
        name: "try",
        prepare: two,
        args: |ids| words("try --once FIRST", ids),
        goal: |_, _| Ok(()),
        deletes_first: false,
    });
}

#[test]
fn a_fork_survives_every_fault() {
    walk(WalkedCommand {
        name: "fork",
        prepare: two,
        args: |ids| words("fork FIRST ;_write_f_1", ids),
        goal: |scene, _| ready_with(scene, &[("f", "1\n")]),
        deletes_first: false,
    });
}

#[test]
fn a_resume_survives_every_fault() {
    walk(WalkedCommand {
        name: "resume",
        prepare: |scene| {
            let id = scene.exec(["write a 1; gate go; write g 1"]);
            scene.await_state(&id, "working");
            scene.studio(["stop", &id]).exits(0);
            scene.await_free(&id);
            scene.worktree(&id).write("go", "");
            vec![id]
        },
        args: |ids| words("resume FIRST", ids),
        goal: |scene, _| ready_with(scene, &[("g", "1\n")]),
        deletes_first: false,
    });
}

#[test]
fn a_plan_survives_every_fault() {
    walk(WalkedCommand {
        name: "plan",
        prepare: |scene| {
            let requirements = "{{CURRENT REQUIREMENTS}}\n\n- R1: an a\n- R2: a b\n";
            scene.repo.write("g3-plan/current_requirements.md", requirements);
            let task = |id: &str, text: &str, requirement: &str, after: &str| {
                format!(
                    "[[task]]\nid = {id:?}\ntext = {text:?}\nrequirements = [{requirement:?}]\n\
                     after = [{after}]\n\n"
                )
            };
            let tasks = [task("a", "write a 1", "R1", ""), task("b", "write b 2", "R2", "\"a\"")];
            scene.repo.write("g3-plan/tasks.toml", tasks.concat());
            Vec::new()
        },
        args: |ids| words("plan --yes", ids),
        goal: |scene, _| {
            let has =
                |name: &str| scene.repo.try_git(["cat-file", "-e", &format!("main:{name}")]).0 == 0;
            if has("a") && has("b") { Ok(()) } else { Err("the plan has not landed".to_owned()) }
        },
        deletes_first: false,
    });
}

#[test]
fn a_move_of_worktrees_survives_every_fault() {
    walk(WalkedCommand {
        name: "move",
        prepare: |scene| {
            scene.configure("worktree = \".worktrees/{id}\"");
            let ids = two(scene);
            scene.configure("");
            ids
        },
        args: |ids| words("doctor --move-worktrees", ids),
        goal: |scene, _| ready_with(scene, &[("a", "1\n"), ("b", "2\n"), ("c", "3\n")]),
        deletes_first: false,
    });
}
